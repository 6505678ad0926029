/*
 * ddp_bench.c - compares ways to share gradients: mpirun -np N ddp_bench
 */
#include <stdio.h>

#include "collectives/world.h"
#include "launch/bench/bench.h"

/* The question of a command line that asks one, as answer() decides, or nothing. */
static const char *question(const struct dp_bench_options *options)
{
    return options->help      ? " --help"
           : options->version ? " --version"
           : options->list    ? " --list"
                              : "";
}

static void answer(const struct dp_bench_options *options)
{
    if (options->help) {
        dp_bench_help();
    } else if (options->version) {
        dp_bench_version();
    } else {
        dp_bench_list();
    }
}

/* parsed: what came of the command line so far. */
static dp_status compare(int argc, char **argv, struct dp_bench_options *options, dp_status parsed)
{
    const bool asks = *question(options) != '\0';
    struct dp_world *world = NULL;
    char asked[32];
    dp_status status;
    bool tell;

    (void)snprintf(asked, sizeof(asked), "ddp_bench%s", question(options));
    DP_TRY(dp_world_create(&world));
    status = dp_world_meet(world, asked, parsed, &tell);
    if (tell) {
        status = dp_bench_parse(argc, argv, false, options);
    } else if (status == DP_OK && asks && world->all->rank == 0) {
        answer(options); /* one rank does */
    } else if (status == DP_OK && !asks) {
        status = dp_bench_main(options, world);
    }
    dp_world_destroy(world);
    return status;
}

int main(int argc, char **argv)
{
    const int rank = dp_world_launch_rank();
    struct dp_bench_options options;
    const dp_status status = dp_bench_parse(argc, argv, rank > 0, &options);

    return dp_status_exit(compare(argc, argv, &options, status));
}
