#include "runtime/optim/schedule.h"

#define DP_SCHEDULE(name) extern const struct dp_schedule dp_schedule_##name;
#include "runtime/optim/schedules.def"
#undef DP_SCHEDULE

static const struct dp_plugin *const registry[] = {
#define DP_SCHEDULE(name) &dp_schedule_##name.plugin,
#include "runtime/optim/schedules.def"
#undef DP_SCHEDULE
};

struct dp_plugin_family dp_schedules = {
    .noun = "schedule", .rows = registry, .count = sizeof(registry) / sizeof(registry[0])};
