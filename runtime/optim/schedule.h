/*
 * schedule.h - the learning rate of a step.
 *
 * To add a schedule: write schedule_<name>.c that defines `const struct dp_schedule
 * dp_schedule_<name>`, and add a line to runtime/config/schedules.def; options of its own are rows
 * of schedule_options in runtime/config/config_tables.c. The conformance test (test_schedule) then
 * covers it.
 */
#ifndef DP_RUNTIME_OPTIM_SCHEDULE_H
#define DP_RUNTIME_OPTIM_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/config/config.h"

struct dp_schedule {
    bool stretches; /* rates depend on how long the run is */

    /* Rate of step `at` of `length` steps after the warm-up; at < length. Of step 0 it is
     * config->lr. */
    double (*lr)(const struct dp_optimizer_config *config, uint64_t at, uint64_t length);
};

/* The one that a configuration names. */
const struct dp_schedule *dp_schedule_of(const struct dp_optimizer_config *config);

/*
 * Learning rate of step `step` (from 0) of a run that the configuration makes `steps` long: lr
 * (s+1)/W in the first W steps, then the schedule over the other steps, as PyTorch's StepLR,
 * CosineAnnealingLR and LinearLR (to eta_min), in steps. Behind the last step it stays as it was.
 */
double dp_schedule_lr(const struct dp_optimizer_config *config, uint64_t step, uint64_t steps);

#endif
