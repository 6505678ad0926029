/*
 * local_steps.h - which steps do not share gradients, and when ranks average (train.local_steps,
 * train.local_after). weight_sync.h does the averaging.
 */
#ifndef DP_RUNTIME_TRAINER_UPDATE_LOCAL_STEPS_H
#define DP_RUNTIME_TRAINER_UPDATE_LOCAL_STEPS_H

#include <stdbool.h>

struct dp_trainer;

/* Whether the current step, or the next one between steps, does not share its gradients. */
bool dp_local_steps_now(const struct dp_trainer *trainer);

/* Whether ranks average at the end of the current step. */
bool dp_local_steps_end(const struct dp_trainer *trainer);

#endif
