/*
 * local_steps.h - which steps keep their gradients on their rank, and when ranks average
 * (train.local_steps, train.local_after). The average itself: weight_sync.h.
 */
#ifndef DP_RUNTIME_TRAINER_LOCAL_STEPS_H
#define DP_RUNTIME_TRAINER_LOCAL_STEPS_H

#include <stdbool.h>

struct dp_trainer;

/* Whether the gradients of the step that comes next, or is under way, stay on their rank. */
bool dp_local_steps_now(const struct dp_trainer *trainer);

/* Whether ranks average at the end of the step that is under way. */
bool dp_local_steps_end(const struct dp_trainer *trainer);

#endif
