/*
 * segmented.h - building blocks of strategies that exchange with one rank at a time. An array is
 * sent in segments while incoming data is added, so that adding overlaps with sending. A fold
 * handles numbers of ranks that are not a power of two.
 */
#ifndef DP_COLLECTIVES_STRATEGIES_SEGMENTED_H
#define DP_COLLECTIVES_STRATEGIES_SEGMENTED_H

#include "collectives/core/group.h"

struct dp_segmented {
    struct dp_group *group; /* borrowed */
    float *incoming;        /* owned; a few segments */
    size_t segment;         /* elements */
};

/* For arrays of up to max_count elements, sent in segments (dp_group_segment). On error nothing is
 * left to close. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_segmented_open(struct dp_segmented *segmented, struct dp_group *group,
                                       size_t max_count, int segment_kb);
void dp_segmented_close(struct dp_segmented *segmented);

/* Sends `out` to one rank, and adds to `sum` what another rank sends; -1: none. float32. `sum` may
 * be `out`: each element is sent before it is changed. */
DP_CHECKED dp_status dp_segmented_add(const struct dp_segmented *segmented, int to,
                                      struct dp_slice out, int from, struct dp_slice sum);

/* The largest power of two that is at most `ranks`. */
int dp_segmented_core(int ranks);

/* Fold: each rank above the core sends its `data` to a rank of the core, which adds it. Unfold
 * sends the result back. */
DP_CHECKED dp_status dp_segmented_fold(const struct dp_segmented *segmented, struct dp_slice data);
DP_CHECKED dp_status dp_segmented_unfold(const struct dp_segmented *segmented,
                                         struct dp_slice data);

/* dp_strategy.keeps_order for strategies that fold: folding does not keep the tree. */
bool dp_segmented_keeps_order(const void *state, const struct dp_group *group);

#endif
