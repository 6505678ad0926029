/*
 * schedule.h - the learning rate of a step.
 */
#ifndef DP_RUNTIME_OPTIM_SCHEDULE_H
#define DP_RUNTIME_OPTIM_SCHEDULE_H

#include <stdint.h>

#include "runtime/config/config.h"

/*
 * Learning rate of step `step` (from 0) of a run that the configuration makes `steps` long: lr
 * (s+1)/W in the first W steps, then the schedule over the other steps, as PyTorch's StepLR,
 * CosineAnnealingLR and LinearLR (to eta_min), in steps. Behind the last step it stays as it was.
 */
double dp_schedule_lr(const struct dp_optimizer_config *config, uint64_t step, uint64_t steps);

#endif
