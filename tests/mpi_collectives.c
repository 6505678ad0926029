/*
 * mpi_collectives.c - what every group and every strategy must do, over MPI: run by mpirun with
 * any number of ranks. The same checks as test_group.c and test_strategy.c; with arguments, those
 * of the strategies named alone.
 */
#include <stdio.h>

#include "base/log.h"
#include "collectives/strategy.h"
#include "collectives/world.h"
#include "tests/checks.h"
#include "tests/strategy_checks.h"

/* All ranks hear of all that is wrong, so that they end together and with the same code. */
static int report(struct dp_group *group, const char *what, size_t wrong)
{
    const int failed = dp_group_agree(group, wrong == 0 ? DP_OK : DP_ERR_INTERNAL) != DP_OK;

    if (wrong > 0) {
        (void)fprintf(stderr, "rank %d of %d: %s: %zu wrong\n", group->rank, group->size, what,
                      wrong);
    } else if (group->rank == 0 && !failed) {
        (void)printf("%s: right on %d ranks\n", what, group->size);
    }
    return failed;
}

/* Options, and what needs options to run over MPI. */
static const char *const texts[] = {
    "mpi:nonblocking=1", "ring:segment_kb=1", "direct:segment_kb=1",
    "tree:segment_kb=1", "hier:inner=mpi",    "hier:inner=direct,outer=mpi",
};

static int check_texts(struct dp_group *group, const char *const *list, int count)
{
    int failed = 0;

    for (int i = 0; i < count; i++) {
        failed += report(group, list[i], check_strategy(group, list[i]));
    }
    return failed;
}

static int check_all(struct dp_group *group)
{
    const struct dp_plugin *plugin;
    int failed = report(group, "group", check_group(group, NULL));

    for (int s = 0; (plugin = dp_plugin_at(&dp_strategies, s)) != NULL; s++) {
        failed += report(group, plugin->name, check_strategy(group, plugin->name));
    }
    return failed + check_texts(group, texts, sizeof(texts) / sizeof(texts[0]));
}

int main(int argc, char **argv)
{
    const struct dp_device *device;
    struct dp_stream *stream;
    struct dp_world *world;
    int failed;

    if (dp_world_create(&world) != DP_OK || dp_device_find("cpu", &device) != DP_OK ||
        device->stream_create(device, 1, &stream) != DP_OK) {
        return 1;
    }
    world->all->stream = stream;
    failed = argc == 1 ? check_all(world->all)
                       : check_texts(world->all, (const char *const *)&argv[1], argc - 1);
    device->stream_destroy(stream);
    dp_world_destroy(world);
    return failed > 0;
}
