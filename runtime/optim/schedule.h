/*
 * schedule.h - the learning rate of a step.
 *
 * To add a schedule: write schedule_<name>.c that defines `const struct dp_schedule
 * dp_schedule_<name>`, and add a line to schedules.def. Its options are keys of the section
 * `optimizer.schedule`. The conformance test (test_schedule) then covers it.
 */
#ifndef DP_RUNTIME_OPTIM_SCHEDULE_H
#define DP_RUNTIME_OPTIM_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/plugin.h"

/* The state of a plug-in is its options, which are constant. */
struct dp_schedule {
    struct dp_plugin plugin;
    bool stretches; /* rates depend on the length of the run */

    /* Rate of step `at` of `length` steps after the warm-up; at < length. For step 0 it is the
     * configured rate `lr`. */
    double (*lr)(const void *options, double lr, uint64_t at, uint64_t length);
};

extern struct dp_plugin_family dp_schedules;

/* The section `optimizer.schedule` of a configuration. */
struct dp_schedule_config {
    const char *name;
    int warmup_steps;
    struct dp_plugin_choice chosen; /* one of dp_schedules */
};

/* The schedule that a configuration names. */
static inline const struct dp_schedule *dp_schedule_of(const struct dp_schedule_config *config)
{
    return (const struct dp_schedule *)config->chosen.plugin;
}

#endif
