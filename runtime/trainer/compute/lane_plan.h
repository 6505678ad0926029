/*
 * lane_plan.h - how lanes are distributed over workers, and in which order their gradients are
 * summed.
 */
#ifndef DP_RUNTIME_TRAINER_COMPUTE_LANE_PLAN_H
#define DP_RUNTIME_TRAINER_COMPUTE_LANE_PLAN_H

#include "models/model.h"

/* Whether lanes wait for each other inside a layer: synchronised batch norm. */
bool dp_lanes_synchronised(const struct dp_model *model);

/* The number of workers that compute `count` lanes on `threads` threads, and the number of
 * gradients that they need besides the rank's own. */
int dp_lanes_workers(const struct dp_model *model, int count, int threads);
int dp_lanes_extra_gradients(int count, int workers);

/* Lane j of a worker is computed into that entry of the stack whose index is the number of bits set
 * in j. Then the top entries are added, as many times as j ends in one-bits. */
int dp_lane_depth(int lane);
int dp_lane_merges(int lane);

#endif
