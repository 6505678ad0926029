/*
 * lane_sync.h - where the threads of a rank's lanes come together inside of a synchronised layer.
 *
 * Every member brings an array; when all have come, the first one, which is the rank's main thread
 * and alone may communicate, sums them, and all go on with the result. Members compute only while
 * they hold one of a few permits, so that a rank with more lanes than cores computes them in turns.
 */
#ifndef DP_RUNTIME_TRAINER_LANE_SYNC_H
#define DP_RUNTIME_TRAINER_LANE_SYNC_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct dp_lane_sync;

/* What the first member calls: arrays [members], each [count]; all of them are to hold the sum. */
struct dp_lane_sync_sum {
    dp_status (*sum)(void *context, float *const *arrays, size_t count);
    void *context;
};

/* Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_lane_sync_create(int members, int permits, struct dp_lane_sync_sum sum,
                                         struct dp_lane_sync **out);
void dp_lane_sync_destroy(struct dp_lane_sync *lane_sync);

/* A member begins to compute; waits for a permit. */
void dp_lane_sync_enter(struct dp_lane_sync *lane_sync);

/* It has ended. When it failed, nobody waits for it: all sums end with DP_ERR_CANCELLED. */
void dp_lane_sync_leave(struct dp_lane_sync *lane_sync, bool failed);

/* Member `index` brings `array`; returns when it holds the sum. Others compute meanwhile.
 * Errors: that of the sum, on all members; DP_ERR_CANCELLED (a member failed). */
DP_CHECKED dp_status dp_lane_sync_reduce(struct dp_lane_sync *lane_sync, int index, float *array,
                                         size_t count);

#endif
