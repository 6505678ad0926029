/*
 * strategy_doubling.c - recursive doubling: in lg p steps ranks exchange all their data with ranks
 * at distance 1, 2, 4 ..., and add.
 *
 * The fewest possible steps, at lg p times the volume: best for small buckets. Distances grow, so
 * at a power of two sums are added in the order of the tree. Ranks above a power of two first fold
 * into the others.
 *
 * Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
 * MPICH", Int. J. High Perform. Comput. Appl. 19 (2005), section 4.4.
 */
#include "collectives/strategies/segmented.h"
#include "collectives/strategies/strategy.h"

struct doubling {
    int segment_kb;
    struct dp_segmented segmented;
};

static bool doubling_supports(const struct dp_group *group, const char **why_not)
{
    (void)group;
    (void)why_not;
    return true;
}

static dp_status doubling_open(void *state, struct dp_group *group, size_t max_count)
{
    struct doubling *d = state;

    return dp_segmented_open(&d->segmented, group, max_count, d->segment_kb);
}

/* Every rank has the whole sum after the last step, so keeping only a chunk saves nothing. */
static dp_status doubling_sum(void *state, struct dp_slice data, enum dp_keep keep)
{
    const struct doubling *d = state;
    const int rank = d->segmented.group->rank, core = dp_segmented_core(d->segmented.group->size);

    (void)keep;
    DP_TRY(dp_segmented_fold(&d->segmented, data));
    for (int distance = 1; rank < core && distance < core; distance *= 2) {
        DP_TRY(dp_segmented_add(&d->segmented, rank ^ distance, data, rank ^ distance, data));
    }
    return dp_segmented_unfold(&d->segmented, data);
}

static double doubling_cost(const void *state, const struct dp_cost *cost,
                            const struct dp_group *group, size_t bytes)
{
    (void)state;
    return dp_cost_doubling(cost, group, (double)bytes);
}

static void doubling_close(void *state)
{
    struct doubling *d = state;

    dp_segmented_close(&d->segmented);
}

#define DOUBLING struct doubling

/* clang-format off */
static const struct dp_option doubling_options[] = {
    DP_INT(DOUBLING, segment_kb, "0", 0, 65536,
           "KiB of a segment; 0: 96 inside a node, 1024 between nodes"),
    {0},
};
/* clang-format on */

const struct dp_strategy dp_strategy_doubling = {
    .plugin = {.name = "doubling",
               .help = "recursive doubling; fewest steps, for small buckets",
               .options = doubling_options,
               .state_bytes = sizeof(struct doubling)},
    .ordered = true,
    .keeps_order = dp_segmented_keeps_order,
    .supports = doubling_supports,
    .open = doubling_open,
    .sum = doubling_sum,
    .cost = doubling_cost,
    .close = doubling_close,
};
