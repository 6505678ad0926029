/*
 * segmented.h - what strategies that exchange with one rank at a time are made of: sending an array
 * while adding what comes in, in segments, so that adding hides behind the wire; and a fold for
 * numbers of ranks that are no power of two.
 */
#ifndef DP_COLLECTIVES_STRATEGIES_SEGMENTED_H
#define DP_COLLECTIVES_STRATEGIES_SEGMENTED_H

#include "collectives/core/group.h"

struct dp_segmented {
    struct dp_group *group; /* borrowed */
    float *incoming;        /* owned; a few segments */
    size_t segment;         /* elements */
};

/* For arrays of up to max_count elements, which travel in segments (dp_group_segment). On error
 * there is nothing to close. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_segmented_open(struct dp_segmented *segmented, struct dp_group *group,
                                       size_t max_count, int segment_kb);
void dp_segmented_close(struct dp_segmented *segmented);

/* Sends `out` to one rank, and adds what another sends to `sum`; -1: nobody. float32. `sum` may be
 * `out`: each element is sent as it was. */
DP_CHECKED dp_status dp_segmented_add(const struct dp_segmented *segmented, int to,
                                      struct dp_slice out, int from, struct dp_slice sum);

/* The largest power of two that is not above `ranks`. */
int dp_segmented_core(int ranks);

/* Ranks behind the core give their `data` to one of the core each, where it is added; and unfold
 * gives them the result. */
DP_CHECKED dp_status dp_segmented_fold(const struct dp_segmented *segmented, struct dp_slice data);
DP_CHECKED dp_status dp_segmented_unfold(const struct dp_segmented *segmented,
                                         struct dp_slice data);

/* dp_strategy.keeps_order of strategies that fold: folding leaves the tree. */
bool dp_segmented_keeps_order(const void *state, const struct dp_group *group);

#endif
