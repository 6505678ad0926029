#include "collectives/strategies/direct_reduce.h"

enum {
    AHEAD = 3, /* rounds between sending a segment and using it, each way */
    DEPTH = AHEAD + 1
};

void dp_direct_reduce_close(struct dp_direct_reduce *d)
{
    dp_free(d->sharing);
    dp_free(d->reducing);
    dp_free(d->parts);
    dp_free(d->incoming);
}

/* All peers send together: in total as much as two ranks would otherwise. */
static size_t segment_bytes(const struct dp_group *group, int segment_kb)
{
    const size_t bytes = dp_group_segment(group, segment_kb, 256, DP_SEGMENT_WIRE_KB);
    const size_t part = segment_kb > 0 ? bytes : bytes * 2 / (size_t)group->size;

    return dp_round_up(part, DP_BLOCK * sizeof(float));
}

dp_status dp_direct_reduce_open(struct dp_direct_reduce *d, size_t max_count, int segment_kb)
{
    const size_t size = (size_t)d->group->size, many = DEPTH * size;
    const size_t chunk = dp_chunk_room(max_count, d->count) * sizeof(float);
    const size_t segment = segment_bytes(d->group, segment_kb);

    d->incoming_bytes = segment < chunk ? segment : chunk;
    d->incoming = dp_mem_arena(DP_MEM_COMM, many * d->incoming_bytes);
    d->parts = dp_zalloc(size, sizeof(*d->parts)); /* NOLINT: pointers */
    d->reducing = dp_zalloc(many, sizeof(*d->reducing));
    d->sharing = dp_zalloc(many, sizeof(*d->sharing));
    if (d->incoming == NULL || d->parts == NULL || d->reducing == NULL || d->sharing == NULL) {
        dp_direct_reduce_close(d);
        return DP_FAIL(DP_ERR_NOMEM, "segments of %zu kB from %zu ranks", d->incoming_bytes >> 10,
                       size);
    }
    return DP_OK;
}

static bool owns(const struct dp_direct_reduce *d, int rank)
{
    return rank >= d->first && rank < d->first + d->count;
}

/* The chunk of a rank; empty for a rank that owns none. */
static struct dp_slice chunk_of(const struct dp_direct_reduce *d, struct dp_slice data, int rank)
{
    if (!owns(d, rank)) {
        data.count = 0;
        return data;
    }
    return dp_slice_chunk(data, d->count, rank - d->first);
}

struct dp_slice dp_direct_reduce_mine(const struct dp_direct_reduce *d, struct dp_slice data)
{
    return chunk_of(d, data, d->group->rank);
}

static struct dp_slice segment_of(const struct dp_direct_reduce *d, struct dp_slice data, int rank,
                                  size_t i)
{
    return dp_slice_segment(chunk_of(d, data, rank), d->incoming_bytes / data.width, i);
}

/* Where segment i of this rank's chunk is received from `peer`. */
static struct dp_slice slot(const struct dp_direct_reduce *d, size_t i, int peer, size_t count)
{
    const size_t at = i % DEPTH * (size_t)d->group->size + (size_t)peer;

    return (struct dp_slice){(char *)d->incoming + at * d->incoming_bytes, count, sizeof(float)};
}

static struct dp_transfer *transfers_of(const struct dp_direct_reduce *d, struct dp_transfer *all,
                                        size_t i)
{
    return all + i % DEPTH * (size_t)d->group->size;
}

/* Sends segment i of every chunk to its owner, and receives those of this rank's chunk. Starts with
 * this rank's successors, so that not all ranks send to the same one first. */
static dp_status reduce_start(const struct dp_direct_reduce *d, struct dp_slice data, size_t i)
{
    struct dp_group *group = d->group;
    const size_t mine = segment_of(d, data, group->rank, i).count;
    const bool brings = group->rank < d->contributors;

    for (int k = 1; k < group->size; k++) {
        const int to = (group->rank + k) % group->size;
        const int from = (group->rank + group->size - k) % group->size;
        const struct dp_slice out = segment_of(d, data, to, i);
        DP_TRY(dp_group_start(group, brings && out.count > 0 ? to : -1, out,
                              mine > 0 && from < d->contributors ? from : -1,
                              slot(d, i, from, mine), transfers_of(d, d->reducing, i) + k));
    }
    return DP_OK;
}

static dp_status finish_all(const struct dp_direct_reduce *d, struct dp_transfer *transfers)
{
    for (int k = 1; k < d->group->size; k++) {
        DP_TRY(dp_group_finish(d->group, transfers + k));
    }
    return DP_OK;
}

static dp_status reduce_finish(const struct dp_direct_reduce *d, struct dp_slice data, size_t i)
{
    const struct dp_group *group = d->group;
    const struct dp_slice mine = segment_of(d, data, group->rank, i);
    float *sum = mine.data;

    DP_TRY(finish_all(d, transfers_of(d, d->reducing, i)));
    for (int peer = 0; peer < d->contributors; peer++) {
        d->parts[peer] = peer == group->rank ? sum : slot(d, i, peer, mine.count).data;
    }
    return mine.count == 0 ? DP_OK
                           : group->stream->ops->sum_tree(group->stream, &sum, 1, d->parts,
                                                          d->contributors, mine.count);
}

/* Sends segment i of this rank's chunk to all, and receives theirs in place. */
static dp_status share_start(const struct dp_direct_reduce *d, struct dp_slice data, size_t i)
{
    struct dp_group *group = d->group;
    const struct dp_slice mine = segment_of(d, data, group->rank, i);

    for (int k = 1; k < group->size; k++) {
        const int to = (group->rank + k) % group->size;
        const int from = (group->rank + group->size - k) % group->size;
        const struct dp_slice in = segment_of(d, data, from, i);
        DP_TRY(dp_group_start(group, mine.count > 0 ? to : -1, mine, in.count > 0 ? from : -1, in,
                              transfers_of(d, d->sharing, i) + k));
    }
    return DP_OK;
}

/* Round i sends segment i to its owner. It adds an earlier segment, which had some rounds to
 * arrive, and sends that back; then it waits for one that had as many rounds to come back. The
 * order is the same on all ranks, since messages between two ranks are matched in order. */
dp_status dp_direct_reduce_run(const struct dp_direct_reduce *d, struct dp_slice data,
                               unsigned ways)
{
    const bool reduce = (ways & DP_DIRECT_REDUCE_REDUCE) != 0,
               share = (ways & DP_DIRECT_REDUCE_SHARE) != 0;
    const size_t longest = dp_chunk_longest(data.count, d->count);
    const size_t segment = data.count == 0 ? 1 : d->incoming_bytes / data.width;
    const size_t total = d->group->size == 1 ? 0 : (longest + segment - 1) / segment;
    const size_t come = reduce ? AHEAD : 0, back = come + AHEAD;

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
