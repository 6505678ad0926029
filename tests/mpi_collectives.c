/*
 * mpi_collectives.c - what every group and every strategy must do, over MPI: run by mpirun with
 * any number of ranks. The same checks as test_group.c and test_strategy.c.
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
    "hier:inner=mpi",    "hier:inner=direct",
};

int main(void)
{
    const struct dp_device *device;
    const struct dp_plugin *plugin;
    struct dp_stream *stream;
    struct dp_world *world;
    int failed;

    if (dp_world_create(&world) != DP_OK || dp_device_find("cpu", &device) != DP_OK ||
        device->stream_create(device, 1, &stream) != DP_OK) {
        return 1;
    }
    world->all->stream = stream;
    failed = report(world->all, "group", check_group(world->all, NULL));
    for (int s = 0; (plugin = dp_plugin_at(&dp_strategies, s)) != NULL; s++) {
        failed += report(world->all, plugin->name, check_strategy(world->all, plugin->name));
    }
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        failed += report(world->all, texts[i], check_strategy(world->all, texts[i]));
    }
    device->stream_destroy(stream);
    dp_world_destroy(world);
    return failed > 0;
}
