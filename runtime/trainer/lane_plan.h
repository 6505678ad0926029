/*
 * lane_plan.h - how lanes are shared by workers, and in which order their sums are closed.
 */
#ifndef DP_RUNTIME_TRAINER_LANE_PLAN_H
#define DP_RUNTIME_TRAINER_LANE_PLAN_H

#include "models/model.h"

/* Whether lanes synchronise inside of a layer. */
bool dp_lanes_synchronised(const struct dp_model *model);

/* How many workers compute `count` lanes on `threads` threads, and how many gradients they need
 * besides the rank's own. */
int dp_lanes_workers(const struct dp_model *model, int count, int threads);
int dp_lanes_extra_gradients(int count, int workers);

/* Lane j of a worker is computed into the stack at the number of bits set in j, and then closes as
 * many levels as j has ones at its end. */
int dp_lane_depth(int lane);
int dp_lane_merges(int lane);

#endif
