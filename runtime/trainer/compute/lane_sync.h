/*
 * lane_sync.h - where the threads of a rank's lanes wait for each other inside a synchronised
 * layer.
 *
 * Every member contributes an array. When all have arrived, the first one sums them, since it is
 * the rank's main thread and only that may communicate; all continue with the result. Members
 * compute only while they have one of a few permits, so that a rank with more lanes than cores
 * computes them in turns.
 */
#ifndef DP_RUNTIME_TRAINER_COMPUTE_LANE_SYNC_H
#define DP_RUNTIME_TRAINER_COMPUTE_LANE_SYNC_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct dp_lane_sync;

/* Called by the first member: replaces each of arrays [members], each [count], by their sum. */
struct dp_lane_sync_sum {
    dp_status (*sum)(void *context, float *const *arrays, size_t count);
    void *context;
};

/* Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_lane_sync_create(int members, int permits, struct dp_lane_sync_sum sum,
                                         struct dp_lane_sync **out);
void dp_lane_sync_destroy(struct dp_lane_sync *lane_sync);

/* A member calls it before it computes; waits for a permit. */
void dp_lane_sync_enter(struct dp_lane_sync *lane_sync);

/* A member calls it when it has finished. If it failed nobody waits for it: all later sums end with
 * DP_ERR_CANCELLED. */
void dp_lane_sync_leave(struct dp_lane_sync *lane_sync, bool failed);

/* Member `index` contributes `array`; returns when it contains the sum. Others may compute
 * meanwhile. Errors: that of the sum, on all members; DP_ERR_CANCELLED (a member failed). */
DP_CHECKED dp_status dp_lane_sync_reduce(struct dp_lane_sync *lane_sync, int index, float *array,
                                         size_t count);

#endif
