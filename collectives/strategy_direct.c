/*
 * strategy_direct.c - every part goes straight to its owner, is summed there, and comes straight
 * back.
 *
 *      rank 0   [ A0 | B0 ]        rank r gets chunk r of everybody, all at once, adds in tree
 *      rank 1   [ A1 | B1 ]        order, and sends the sum to everybody
 *
 * As many bytes as a ring, in two steps of p-1 messages each. Since the owner adds in the order of
 * the one tree, sums have the same bits on any number of ranks, and the bits of shm.
 *
 * Chunks travel in segments: while one is being added, later ones come in and sums of earlier ones
 * go out.
 *
 * Source: the reduce-scatter of pairwise exchanges and its allgather in Thakur, Rabenseifner and
 * Gropp, "Optimization of collective communication operations in MPICH", Int. J. High Perform.
 * Comput. Appl. 19 (2005), sections 4.1 and 4.3, with all exchanges at once.
 */
#include "collectives/strategy.h"

enum {
    DIRECT_AHEAD = 3, /* rounds that a segment has to come in, or to come back */
    DIRECT_DEPTH = DIRECT_AHEAD + 1
};

struct direct {
    int segment_kb;
    struct dp_group *group;       /* borrowed */
    float *incoming;              /* owned; [DIRECT_DEPTH, size] segments */
    size_t incoming_bytes;        /* of one of them */
    const float **parts;          /* owned; [size]: what is added */
    struct dp_transfer *reducing; /* owned; [DIRECT_DEPTH, size] */
    struct dp_transfer *sharing;  /* owned; [DIRECT_DEPTH, size] */
};

static bool direct_supports(const struct dp_group *group, const char **why_not)
{
    (void)group;
    (void)why_not;
    return true;
}

static void direct_close(void *state)
{
    struct direct *d = state;

    dp_free(d->sharing);
    dp_free(d->reducing);
    dp_free(d->parts);
    dp_free(d->incoming);
}

/* All peers send at once: together as much as two ranks would otherwise. */
static size_t segment_bytes(const struct direct *d, const struct dp_group *group)
{
    const size_t bytes = dp_group_segment(group, d->segment_kb);
    const size_t part = d->segment_kb > 0 ? bytes : bytes * 2 / (size_t)group->size;

    return dp_round_up(part, DP_BLOCK * sizeof(float));
}

static dp_status direct_open(void *state, struct dp_group *group, size_t max_count)
{
    struct direct *d = state;
    const size_t size = (size_t)group->size, many = DIRECT_DEPTH * size;
    const size_t chunk = dp_chunk_longest(max_count, group->size) * sizeof(float);
    const size_t segment = segment_bytes(d, group);

    d->group = group;
    d->incoming_bytes = segment < chunk ? segment : chunk;
    d->incoming = dp_mem_arena(DP_MEM_COMM, many * d->incoming_bytes);
    d->parts = dp_zalloc(size, sizeof(*d->parts)); /* NOLINT: pointers */
    d->reducing = dp_zalloc(many, sizeof(*d->reducing));
    d->sharing = dp_zalloc(many, sizeof(*d->sharing));
    if (d->incoming == NULL || d->parts == NULL || d->reducing == NULL || d->sharing == NULL) {
        direct_close(d);
        return DP_FAIL(DP_ERR_NOMEM, "direct: segments of %zu kB from %d ranks",
                       d->incoming_bytes >> 10, group->size);
    }
    return DP_OK;
}

static struct dp_slice chunk_segment(const struct direct *d, struct dp_slice data, int owner,
                                     size_t i)
{
    return dp_slice_segment(dp_slice_chunk(data, d->group->size, owner),
                            d->incoming_bytes / data.width, i);
}

/* Where segment i of this rank's chunk comes in from `peer`. */
static struct dp_slice slot(const struct direct *d, size_t i, int peer, size_t count)
{
    const size_t at = i % DIRECT_DEPTH * (size_t)d->group->size + (size_t)peer;

    return (struct dp_slice){(char *)d->incoming + at * d->incoming_bytes, count, sizeof(float)};
}

static struct dp_transfer *transfers_of(const struct direct *d, struct dp_transfer *all, size_t i)
{
    return all + i % DIRECT_DEPTH * (size_t)d->group->size;
}

/* Sends segment i of every chunk to its owner, this rank's successors first, so that not all begin
 * with the same one; receives those of its own chunk. */
static dp_status reduce_start(const struct direct *d, struct dp_slice data, size_t i)
{
    struct dp_group *group = d->group;
    const size_t mine = chunk_segment(d, data, group->rank, i).count;

    for (int k = 1; k < group->size; k++) {
        const int to = (group->rank + k) % group->size;
        const int from = (group->rank + group->size - k) % group->size;
        const struct dp_slice out = chunk_segment(d, data, to, i);
        DP_TRY(dp_group_start(group, out.count > 0 ? to : -1, out, mine > 0 ? from : -1,
                              slot(d, i, from, mine), transfers_of(d, d->reducing, i) + k));
    }
    return DP_OK;
}

static dp_status finish_all(const struct direct *d, struct dp_transfer *transfers)
{
    for (int k = 1; k < d->group->size; k++) {
        DP_TRY(dp_group_finish(d->group, transfers + k));
    }
    return DP_OK;
}

static dp_status reduce_finish(const struct direct *d, struct dp_slice data, size_t i)
{
    const struct dp_group *group = d->group;
    const struct dp_slice mine = chunk_segment(d, data, group->rank, i);
    float *sum = mine.data;

    DP_TRY(finish_all(d, transfers_of(d, d->reducing, i)));
    for (int peer = 0; peer < group->size; peer++) {
        d->parts[peer] = peer == group->rank ? sum : slot(d, i, peer, mine.count).data;
    }
    return mine.count == 0 ? DP_OK
                           : group->stream->ops->sum_tree(group->stream, &sum, 1, d->parts,
                                                          group->size, mine.count);
}

/* Sends segment i of this rank's chunk to all, and receives theirs in place. */
static dp_status share_start(const struct direct *d, struct dp_slice data, size_t i)
{
    struct dp_group *group = d->group;
    const struct dp_slice mine = chunk_segment(d, data, group->rank, i);

    for (int k = 1; k < group->size; k++) {
        const int to = (group->rank + k) % group->size;
        const int from = (group->rank + group->size - k) % group->size;
        const struct dp_slice in = chunk_segment(d, data, from, i);
        DP_TRY(dp_group_start(group, mine.count > 0 ? to : -1, mine, in.count > 0 ? from : -1, in,
                              transfers_of(d, d->sharing, i) + k));
    }
    return DP_OK;
}

/* Round i starts segment i on its way to its owner, adds a segment that had some rounds to come in
 * and starts it on its way back, and waits for one that had as many to come back: in this order on
 * all ranks, since messages between two of them are matched in order. */
static dp_status direct_rounds(const struct direct *d, struct dp_slice data, bool reduce,
                               bool share)
{
    const size_t longest = dp_chunk_longest(data.count, d->group->size);
    const size_t segment = data.count == 0 ? 1 : d->incoming_bytes / data.width;
    const size_t total = d->group->size == 1 ? 0 : (longest + segment - 1) / segment;
    const size_t come = reduce ? DIRECT_AHEAD : 0, back = come + DIRECT_AHEAD;

    for (size_t i = 0; total > 0 && i < total + back; i++) {
        if (reduce && i < total) {
            DP_TRY(reduce_start(d, data, i));
        }
        if (i >= come && i - come < total) {
            DP_TRY(reduce ? reduce_finish(d, data, i - come) : DP_OK);
            DP_TRY(share ? share_start(d, data, i - come) : DP_OK);
        }
        if (share && i >= back) {
            DP_TRY(finish_all(d, transfers_of(d, d->sharing, i - back)));
        }
    }
    return DP_OK;
}

static dp_status direct_sum(void *state, struct dp_slice data, enum dp_keep keep)
{
    return direct_rounds(state, data, true, keep == DP_KEEP_ALL);
}

static dp_status direct_gather(void *state, struct dp_slice data)
{
    return direct_rounds(state, data, false, true);
}

/* Both ways: chunks of this node's other ranks, and what all ranks of the node send over its wire. */
static double direct_cost(const void *state, const struct dp_cost *cost,
                          const struct dp_group *group, size_t bytes)
{
    const double chunk = (double)bytes / group->size;
    const int near = group->local_size - 1, far = group->size - group->local_size;
    double seconds = dp_curve_at(&cost->sum, (group->size - 1) * chunk);

    (void)state;
    if (near > 0) {
        seconds += 2.0 * dp_curve_at(&cost->exchange[DP_LINK_NODE], near * chunk);
    }
    if (far > 0) {
        seconds +=
            2.0 * dp_curve_at(&cost->exchange[DP_LINK_WIRE], far * chunk * group->local_size);
    }
    return seconds;
}

#define DIRECT struct direct

/* clang-format off */
static const struct dp_option direct_options[] = {
    DP_INT(DIRECT, segment_kb, "0", 0, 65536, "KiB that travel as one; 0: 512/p inside a node, 2048/p between nodes"),
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
