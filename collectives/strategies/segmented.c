#include "collectives/strategies/segmented.h"

enum { DEPTH = 8 /* segments in flight */ };

dp_status dp_segmented_open(struct dp_segmented *segmented, struct dp_group *group,
                            size_t max_count, int segment_kb)
{
    const size_t segment =
        dp_group_segment(group, segment_kb, DP_SEGMENT_NODE_KB, DP_SEGMENT_WIRE_KB) / sizeof(float);

    segmented->group = group;
    segmented->segment = segment < max_count || max_count == 0 ? segment : max_count;
    segmented->incoming = dp_mem_arena(DP_MEM_COMM, DEPTH * segmented->segment * sizeof(float));
    return segmented->incoming != NULL
               ? DP_OK
               : DP_FAIL(DP_ERR_NOMEM, "segments of %zu elements", segmented->segment);
}

void dp_segmented_close(struct dp_segmented *segmented)
{
    dp_free(segmented->incoming);
    segmented->incoming = NULL;
}

static struct dp_slice slot(const struct dp_segmented *segmented, size_t i, size_t count)
{
    return (struct dp_slice){segmented->incoming + i % DEPTH * segmented->segment, count,
                             sizeof(float)};
}

dp_status dp_segmented_add(const struct dp_segmented *segmented, int to, struct dp_slice out,
                           int from, struct dp_slice sum)
{
    const size_t sent = to < 0 ? 0 : out.count, got = from < 0 ? 0 : sum.count;
    const size_t total = ((sent > got ? sent : got) + segmented->segment - 1) / segmented->segment;
    struct dp_transfer transfers[DEPTH];

    for (size_t i = 0; i < total + DEPTH; i++) {
        struct dp_transfer *transfer = &transfers[i % DEPTH];
        if (i >= DEPTH) {
            const struct dp_slice into = dp_slice_segment(sum, segmented->segment, i - DEPTH);
            const bool comes = transfer->from >= 0;
            DP_TRY(dp_group_finish(segmented->group, transfer));
            DP_TRY(comes ? dp_group_add(segmented->group, into, slot(segmented, i, into.count))
                         : DP_OK);
        }
        if (i < total) {
            const struct dp_slice piece = dp_slice_segment(out, segmented->segment, i);
            const size_t count = dp_slice_segment(sum, segmented->segment, i).count;
            DP_TRY(dp_group_start(segmented->group, piece.count > 0 ? to : -1, piece,
                                  count > 0 ? from : -1, slot(segmented, i, count), transfer));
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

dp_status dp_segmented_fold(const struct dp_segmented *segmented, struct dp_slice data)
{
    const int rank = segmented->group->rank, core = dp_segmented_core(segmented->group->size);

    if (rank >= core) {
        return dp_segmented_add(segmented, rank - core, data, -1, data);
    }
    return rank + core < segmented->group->size
               ? dp_segmented_add(segmented, -1, data, rank + core, data)
               : DP_OK;
}

dp_status dp_segmented_unfold(const struct dp_segmented *segmented, struct dp_slice data)
{
    const int rank = segmented->group->rank, core = dp_segmented_core(segmented->group->size);

    if (data.count == 0) {
        return DP_OK;
    }
    if (rank >= core) {
        return dp_group_exchange(segmented->group, -1, data, rank - core, data);
    }
    return rank + core < segmented->group->size
               ? dp_group_exchange(segmented->group, rank + core, data, -1, data)
               : DP_OK;
}

bool dp_segmented_keeps_order(const void *state, const struct dp_group *group)
{
    (void)state;
    return dp_segmented_core(group->size) == group->size;
}
