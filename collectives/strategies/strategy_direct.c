/*
 * strategy_direct.c - every part goes directly to its owner, is summed there, and comes directly
 * back (direct_reduce.h); every rank owns one part.
 *
 * As many bytes as a ring, in two steps of p-1 messages each. The owner adds in the order of the
 * tree, so sums have the same bits on any number of ranks, and the bits of shm.
 *
 * Source: the reduce-scatter of pairwise exchanges and its allgather in Thakur, Rabenseifner and
 * Gropp, "Optimization of collective communication operations in MPICH", Int. J. High Perform.
 * Comput. Appl. 19 (2005), sections 4.1 and 4.3, with all exchanges at the same time.
 */
#include "collectives/strategies/direct_reduce.h"
#include "collectives/strategies/strategy.h"

struct direct {
    int segment_kb;
    struct dp_direct_reduce direct_reduce;
};

static bool direct_supports(const struct dp_group *group, const char **why_not)
{
    (void)group;
    (void)why_not;
    return true;
}

static dp_status direct_open(void *state, struct dp_group *group, size_t max_count)
{
    struct direct *d = state;

    d->direct_reduce = (struct dp_direct_reduce){
        .group = group, .contributors = group->size, .first = 0, .count = group->size};
    return dp_direct_reduce_open(&d->direct_reduce, max_count, d->segment_kb);
}

static dp_status direct_sum(void *state, struct dp_slice data, enum dp_keep keep)
{
    const struct direct *d = state;

    return dp_direct_reduce_run(&d->direct_reduce, data,
                                DP_DIRECT_REDUCE_REDUCE |
                                    (keep == DP_KEEP_ALL ? DP_DIRECT_REDUCE_SHARE : 0u));
}

static dp_status direct_gather(void *state, struct dp_slice data)
{
    return dp_direct_reduce_run(&((struct direct *)state)->direct_reduce, data,
                                DP_DIRECT_REDUCE_SHARE);
}

static void direct_close(void *state)
{
    dp_direct_reduce_close(&((struct direct *)state)->direct_reduce);
}

/* Both directions: chunks of this node's other ranks, and all that the ranks of the node send over
 * its wire, where each message takes the latency once: Thakur et al. (cost.h), section 4.4, the
 * pairwise exchange. */
static double direct_cost(const void *state, const struct dp_cost *cost,
                          const struct dp_group *group, size_t bytes)
{
    const double chunk = (double)bytes / group->size;
    const int near = group->local_size - 1, far = group->size - group->local_size;
    double seconds = 0.0;

    (void)state;
    if (group->size == 1) {
        return 0.0;
    }
    if (near > 0) {
        seconds += dp_cost_exchange_add(cost, group, 1, near * chunk) +
                   dp_cost_exchange(cost, group, 1, near * chunk);
    }
    if (far > 0) {
        seconds +=
            2.0 * dp_curve_at(&cost->exchange[DP_LINK_WIRE], far * chunk * group->local_size) +
            2.0 * ((double)far * group->local_size - 1.0) * cost->alpha[DP_LINK_WIRE] +
            dp_curve_at(&cost->sum, far * chunk);
    }
    return seconds;
}

#define DIRECT struct direct

/* clang-format off */
static const struct dp_option direct_options[] = {
    DP_INT(DIRECT, segment_kb, "0", 0, 65536,
           "KiB of a segment; 0: 512/p inside a node, 2048/p between nodes"),
    {0},
};
/* clang-format on */

const struct dp_strategy dp_strategy_direct = {
    .plugin = {.name = "direct",
               .help = "each part is summed by its owner, in tree order; least volume, two steps",
               .options = direct_options,
               .state_bytes = sizeof(struct direct)},
    .ordered = true,
    .supports = direct_supports,
    .open = direct_open,
    .sum = direct_sum,
    .gather = direct_gather,
    .cost = direct_cost,
    .close = direct_close,
};
