/*
 * strategy_rhd.c - Rabenseifner's allreduce: a reduce-scatter by recursive halving, then an
 * allgather by recursive doubling.
 *
 * Moves as little as a ring, in 2 lg p steps instead of 2 (p-1): best for buckets of middle size,
 * at a power of two. In the reduce-scatter partners are at distance 1, 2, 4 ..., so that sums are
 * added in the order of the tree. With 4 ranks and chunks A B C D:
 *
 *      distance 1   0 <-> 1, 2 <-> 3   ranks 0, 2 keep A B, ranks 1, 3 keep C D
 *      distance 2   0 <-> 2, 1 <-> 3   rank 0 keeps A, rank 2 B, rank 1 C, rank 3 D
 *
 * So a rank ends with the chunk whose number is its own with the bits reversed, and swaps it for
 * the one that it must keep. Ranks above a power of two first fold into the others.
 *
 * Source: Rabenseifner, "Optimization of collective reduction operations", ICCS 2004, section 4.
 */
#include "collectives/strategies/segmented.h"
#include "collectives/strategies/strategy.h"

struct rhd {
    int segment_kb;
    struct dp_segmented segmented;
};

static bool rhd_supports(const struct dp_group *group, const char **why_not)
{
    (void)group;
    (void)why_not;
    return true;
}

static dp_status rhd_open(void *state, struct dp_group *group, size_t max_count)
{
    struct rhd *rhd = state;

    return dp_segmented_open(&rhd->segmented, group, max_count, rhd->segment_kb);
}

/* Halves this rank's part of the sum until one chunk is left: *chunk. */
static dp_status halve(const struct rhd *rhd, struct dp_slice data, int core, int *chunk)
{
    const int rank = rhd->segmented.group->rank;
    int first = 0;

    for (int distance = 1; distance < core; distance *= 2) {
        const int half = core / distance / 2, peer = rank ^ distance;
        const bool upper = (rank & distance) != 0;
        const struct dp_slice out = dp_slice_chunks(data, core, upper ? first : first + half, half);
        first += upper ? half : 0;
        DP_TRY(dp_segmented_add(&rhd->segmented, peer, out, peer,
                                dp_slice_chunks(data, core, first, half)));
    }
    *chunk = first;
    return DP_OK;
}

/* The allgather: every step doubles the number of this rank's chunks. */
static dp_status double_up(const struct rhd *rhd, struct dp_slice data, int core, int chunk)
{
    const int rank = rhd->segmented.group->rank;
    int first = chunk;

    for (int distance = core / 2; distance > 0; distance /= 2) {
        const int span = core / distance / 2, peer = rank ^ distance;
        const int theirs = (rank & distance) != 0 ? first - span : first + span;
        DP_TRY(dp_group_exchange(rhd->segmented.group, peer,
                                 dp_slice_chunks(data, core, first, span), peer,
                                 dp_slice_chunks(data, core, theirs, span)));
        first = first < theirs ? first : theirs;
    }
    return DP_OK;
}

static dp_status rhd_sum(void *state, struct dp_slice data, enum dp_keep keep)
{
    const struct rhd *rhd = state;
    struct dp_group *group = rhd->segmented.group;
    const int rank = group->rank, core = dp_segmented_core(group->size);
    int chunk = 0;

    DP_TRY(dp_segmented_fold(&rhd->segmented, data));
    if (rank < core) {
        DP_TRY(halve(rhd, data, core, &chunk));
        if (keep == DP_KEEP_CHUNK && core == group->size) {
            /* Reversing bits twice changes nothing: the rank that has our chunk needs the one that
             * we have. */
            return chunk == rank
                       ? DP_OK
                       : dp_group_exchange(group, chunk, dp_slice_chunk(data, core, chunk), chunk,
                                           dp_slice_chunk(data, core, rank));
        }
        DP_TRY(double_up(rhd, data, core, chunk));
    }
    return dp_segmented_unfold(&rhd->segmented, data);
}

static double rhd_cost(const void *state, const struct dp_cost *cost, const struct dp_group *group,
                       size_t bytes)
{
    (void)state;
    return dp_cost_rabenseifner(cost, group, (double)bytes);
}

static void rhd_close(void *state)
{
    struct rhd *rhd = state;

    dp_segmented_close(&rhd->segmented);
}

#define RHD struct rhd

/* clang-format off */
static const struct dp_option rhd_options[] = {
    DP_INT(RHD, segment_kb, "0", 0, 65536,
           "KiB of a segment; 0: 96 inside a node, 1024 between nodes"),
    {0},
};
/* clang-format on */

const struct dp_strategy dp_strategy_rhd = {
    .plugin = {.name = "rhd",
               .help = "recursive halving and doubling; for buckets of middle size",
               .options = rhd_options,
               .state_bytes = sizeof(struct rhd)},
    .ordered = true,
    .keeps_order = dp_segmented_keeps_order,
    .supports = rhd_supports,
    .open = rhd_open,
    .sum = rhd_sum,
    .cost = rhd_cost,
    .close = rhd_close,
};
