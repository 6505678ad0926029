/*
 * ddp_bench.c - compares ways to share gradients: mpirun -np N ddp_bench
 */
#include "collectives/world.h"
#include "launch/bench/bench.h"

static dp_status compare(const struct dp_bench_options *options)
{
    struct dp_world *world = NULL;
    dp_status status;

    DP_TRY(dp_world_create(&world));
    status = dp_bench_main(options, world);
    dp_world_destroy(world);
    return status;
}

/* mpirun ends the others as soon as one rank fails: here all meet first, so that the one that tells
 * has told. */
static int leave_together(dp_status status)
{
    struct dp_world *world = NULL;

    if (dp_world_launch_rank() >= 0 && dp_world_create(&world) == DP_OK) {
        dp_world_destroy(world);
    }
    return dp_status_exit(status);
}

int main(int argc, char **argv)
{
    const int rank = dp_world_launch_rank();
    struct dp_bench_options options;
    const dp_status status = dp_bench_parse(argc, argv, rank > 0, &options);

    if (status != DP_OK) {
        return leave_together(status);
    }
    if (!options.help && !options.version && !options.list) {
        return dp_status_exit(compare(&options));
    }
    if (rank > 0) {
        return 0; /* one rank answers */
    }
    if (options.help) {
        dp_bench_help();
    } else if (options.version) {
        dp_bench_version();
    } else {
        dp_bench_list();
    }
    return 0;
}
