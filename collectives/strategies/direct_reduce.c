#include "collectives/strategies/direct_reduce.h"

enum {
    AHEAD = 3, /* rounds that a segment has to come in, or to come back */
    DEPTH = AHEAD + 1
};

void dp_direct_reduce_close(struct dp_direct_reduce *o)
{
    dp_free(o->sharding);
    dp_free(o->reducing);
    dp_free(o->parts);
    dp_free(o->incoming);
}

/* All peers send at once: together as much as two ranks would otherwise. */
static size_t segment_bytes(const struct dp_group *group, int segment_kb)
{
    const size_t bytes = dp_group_segment(group, segment_kb, 256, DP_SEGMENT_WIRE_KB);
    const size_t part = segment_kb > 0 ? bytes : bytes * 2 / (size_t)group->size;

    return dp_round_up(part, DP_BLOCK * sizeof(float));
}

dp_status dp_direct_reduce_open(struct dp_direct_reduce *o, size_t max_count, int segment_kb)
{
    const size_t size = (size_t)o->group->size, many = DEPTH * size;
    const size_t chunk = dp_chunk_longest(max_count, o->count) * sizeof(float);
    const size_t segment = segment_bytes(o->group, segment_kb);

    o->incoming_bytes = segment < chunk ? segment : chunk;
    o->incoming = dp_mem_arena(DP_MEM_COMM, many * o->incoming_bytes);
    o->parts = dp_zalloc(size, sizeof(*o->parts)); /* NOLINT: pointers */
    o->reducing = dp_zalloc(many, sizeof(*o->reducing));
    o->sharding = dp_zalloc(many, sizeof(*o->sharding));
    if (o->incoming == NULL || o->parts == NULL || o->reducing == NULL || o->sharding == NULL) {
        dp_direct_reduce_close(o);
        return DP_FAIL(DP_ERR_NOMEM, "segments of %zu kB from %zu ranks", o->incoming_bytes >> 10,
                       size);
    }
    return DP_OK;
}

static bool owns(const struct dp_direct_reduce *o, int rank)
{
    return rank >= o->first && rank < o->first + o->count;
}

/* Empty for a rank that owns nothing. */
static struct dp_slice chunk_of(const struct dp_direct_reduce *o, struct dp_slice data, int rank)
{
    if (!owns(o, rank)) {
        data.count = 0;
        return data;
    }
    return dp_slice_chunk(data, o->count, rank - o->first);
}

struct dp_slice dp_direct_reduce_mine(const struct dp_direct_reduce *o, struct dp_slice data)
{
    return chunk_of(o, data, o->group->rank);
}

static struct dp_slice segment_of(const struct dp_direct_reduce *o, struct dp_slice data, int rank,
                                  size_t i)
{
    return dp_slice_segment(chunk_of(o, data, rank), o->incoming_bytes / data.width, i);
}

/* Where segment i of this rank's chunk comes in from `peer`. */
static struct dp_slice slot(const struct dp_direct_reduce *o, size_t i, int peer, size_t count)
{
    const size_t at = i % DEPTH * (size_t)o->group->size + (size_t)peer;

    return (struct dp_slice){(char *)o->incoming + at * o->incoming_bytes, count, sizeof(float)};
}

static struct dp_transfer *transfers_of(const struct dp_direct_reduce *o, struct dp_transfer *all,
                                        size_t i)
{
    return all + i % DEPTH * (size_t)o->group->size;
}

/* Sends segment i of every chunk to its owner, this rank's successors first, so that not all begin
 * with the same one; receives those of its own chunk. */
static dp_status reduce_start(const struct dp_direct_reduce *o, struct dp_slice data, size_t i)
{
    struct dp_group *group = o->group;
    const size_t mine = segment_of(o, data, group->rank, i).count;
    const bool brings = group->rank < o->contributors;

    for (int k = 1; k < group->size; k++) {
        const int to = (group->rank + k) % group->size;
        const int from = (group->rank + group->size - k) % group->size;
        const struct dp_slice out = segment_of(o, data, to, i);
        DP_TRY(dp_group_start(group, brings && out.count > 0 ? to : -1, out,
                              mine > 0 && from < o->contributors ? from : -1,
                              slot(o, i, from, mine), transfers_of(o, o->reducing, i) + k));
    }
    return DP_OK;
}

static dp_status finish_all(const struct dp_direct_reduce *o, struct dp_transfer *transfers)
{
    for (int k = 1; k < o->group->size; k++) {
        DP_TRY(dp_group_finish(o->group, transfers + k));
    }
    return DP_OK;
}

static dp_status reduce_finish(const struct dp_direct_reduce *o, struct dp_slice data, size_t i)
{
    const struct dp_group *group = o->group;
    const struct dp_slice mine = segment_of(o, data, group->rank, i);
    float *sum = mine.data;

    DP_TRY(finish_all(o, transfers_of(o, o->reducing, i)));
    for (int peer = 0; peer < o->contributors; peer++) {
        o->parts[peer] = peer == group->rank ? sum : slot(o, i, peer, mine.count).data;
    }
    return mine.count == 0 ? DP_OK
                           : group->stream->ops->sum_tree(group->stream, &sum, 1, o->parts,
                                                          o->contributors, mine.count);
}

/* Sends segment i of this rank's chunk to all, and receives theirs in place. */
static dp_status share_start(const struct dp_direct_reduce *o, struct dp_slice data, size_t i)
{
    struct dp_group *group = o->group;
    const struct dp_slice mine = segment_of(o, data, group->rank, i);

    for (int k = 1; k < group->size; k++) {
        const int to = (group->rank + k) % group->size;
        const int from = (group->rank + group->size - k) % group->size;
        const struct dp_slice in = segment_of(o, data, from, i);
        DP_TRY(dp_group_start(group, mine.count > 0 ? to : -1, mine, in.count > 0 ? from : -1, in,
                              transfers_of(o, o->sharding, i) + k));
    }
    return DP_OK;
}

/* Round i starts segment i on its way to its owner, adds a segment that had some rounds to come in
 * and starts it on its way back, and waits for one that had as many to come back: in this order on
 * all ranks, since messages between two of them are matched in order. */
dp_status dp_direct_reduce_run(const struct dp_direct_reduce *o, struct dp_slice data,
                               unsigned ways)
{
    const bool reduce = (ways & DP_DIRECT_REDUCE_REDUCE) != 0,
               share = (ways & DP_DIRECT_REDUCE_SHARE) != 0;
    const size_t longest = dp_chunk_longest(data.count, o->count);
    const size_t segment = data.count == 0 ? 1 : o->incoming_bytes / data.width;
    const size_t total = o->group->size == 1 ? 0 : (longest + segment - 1) / segment;
    const size_t come = reduce ? AHEAD : 0, back = come + AHEAD;

    for (size_t i = 0; total > 0 && i < total + back; i++) {
        if (reduce && i < total) {
            DP_TRY(reduce_start(o, data, i));
        }
        if (i >= come && i - come < total) {
            DP_TRY(reduce ? reduce_finish(o, data, i - come) : DP_OK);
            DP_TRY(share ? share_start(o, data, i - come) : DP_OK);
        }
        if (share && i >= back) {
            DP_TRY(finish_all(o, transfers_of(o, o->sharding, i - back)));
        }
    }
    return DP_OK;
}
