/*
 * ddp_bench.c - compares ways to share gradients: mpirun -np N ddp_bench
 */
#include "collectives/world.h"
#include "launch/bench/bench.h"

/* parsed: what came of the command line so far. */
static dp_status compare(int argc, char **argv, struct dp_bench_options *options, dp_status parsed)
{
    struct dp_world *world = NULL;
    dp_status status;
    bool tell;

    DP_TRY(dp_world_create(&world));
    status = dp_world_meet(world, parsed, &tell);
    if (tell) {
        status = dp_bench_parse(argc, argv, false, options);
    } else if (status == DP_OK) {
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

    if (status != DP_OK || !(options.help || options.version || options.list)) {
        return dp_status_exit(compare(argc, argv, &options, status));
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
