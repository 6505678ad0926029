#include "collectives/strategies/segmented.h"

enum { PIPE_DEPTH = 8 /* segments under way */ };

dp_status dp_segmented_open(struct dp_segmented *pipe, struct dp_group *group, size_t max_count,
                            int segment_kb)
{
    const size_t segment =
        dp_group_segment(group, segment_kb, DP_SEGMENT_NODE_KB, DP_SEGMENT_WIRE_KB) / sizeof(float);

    pipe->group = group;
    pipe->segment = segment < max_count || max_count == 0 ? segment : max_count;
    pipe->incoming = dp_mem_arena(DP_MEM_COMM, PIPE_DEPTH * pipe->segment * sizeof(float));
    return pipe->incoming != NULL
               ? DP_OK
               : DP_FAIL(DP_ERR_NOMEM, "segments of %zu elements", pipe->segment);
}

void dp_segmented_close(struct dp_segmented *pipe)
{
    dp_free(pipe->incoming);
    pipe->incoming = NULL;
}

static struct dp_slice pipe_slot(const struct dp_segmented *pipe, size_t i, size_t count)
{
    return (struct dp_slice){pipe->incoming + i % PIPE_DEPTH * pipe->segment, count, sizeof(float)};
}

dp_status dp_segmented_add(const struct dp_segmented *pipe, int to, struct dp_slice out, int from,
                           struct dp_slice sum)
{
    const size_t sent = to < 0 ? 0 : out.count, got = from < 0 ? 0 : sum.count;
    const size_t total = ((sent > got ? sent : got) + pipe->segment - 1) / pipe->segment;
    struct dp_transfer transfers[PIPE_DEPTH];

    for (size_t i = 0; i < total + PIPE_DEPTH; i++) {
        struct dp_transfer *transfer = &transfers[i % PIPE_DEPTH];
        if (i >= PIPE_DEPTH && i - PIPE_DEPTH < total) {
            const struct dp_slice into = dp_slice_segment(sum, pipe->segment, i - PIPE_DEPTH);
            const bool comes = transfer->from >= 0;
            DP_TRY(dp_group_finish(pipe->group, transfer));
            DP_TRY(comes ? dp_group_add(pipe->group, into, pipe_slot(pipe, i, into.count)) : DP_OK);
        }
        if (i < total) {
            const struct dp_slice piece = dp_slice_segment(out, pipe->segment, i);
            const size_t count = dp_slice_segment(sum, pipe->segment, i).count;
            DP_TRY(dp_group_start(pipe->group, piece.count > 0 ? to : -1, piece,
                                  count > 0 ? from : -1, pipe_slot(pipe, i, count), transfer));
        }
    }
    return DP_OK;
}

int dp_segmented_core(int ranks)
{
    int core = 1;

    while (2 * core <= ranks) {
        core *= 2;
    }
    return core;
}

dp_status dp_segmented_fold(const struct dp_segmented *pipe, struct dp_slice data)
{
    const int rank = pipe->group->rank, core = dp_segmented_core(pipe->group->size);

    if (rank >= core) {
        return dp_segmented_add(pipe, rank - core, data, -1, data);
    }
    return rank + core < pipe->group->size ? dp_segmented_add(pipe, -1, data, rank + core, data)
                                           : DP_OK;
}

dp_status dp_segmented_unfold(const struct dp_segmented *pipe, struct dp_slice data)
{
    const int rank = pipe->group->rank, core = dp_segmented_core(pipe->group->size);

    if (data.count == 0) {
        return DP_OK;
    }
    if (rank >= core) {
        return dp_group_exchange(pipe->group, -1, data, rank - core, data);
    }
    return rank + core < pipe->group->size
               ? dp_group_exchange(pipe->group, rank + core, data, -1, data)
               : DP_OK;
}

bool dp_segmented_keeps_order(const void *state, const struct dp_group *group)
{
    (void)state;
    return dp_segmented_core(group->size) == group->size;
}
