#include "runtime/optim/schedule.h"

#define DP_SCHEDULE(name, NAME) extern const struct dp_schedule dp_schedule_##name;
#include "runtime/config/schedules.def"
#undef DP_SCHEDULE

static const struct dp_schedule *const registry[] = {
#define DP_SCHEDULE(name, NAME) [DP_SCHEDULE_##NAME] = &dp_schedule_##name,
#include "runtime/config/schedules.def"
#undef DP_SCHEDULE
};

const struct dp_schedule *dp_schedule_of(const struct dp_optimizer_config *config)
{
    return registry[config->schedule.name];
}

double dp_schedule_lr(const struct dp_optimizer_config *config, uint64_t step, uint64_t steps)
{
    const uint64_t warmup = (uint64_t)config->schedule.warmup_steps;
    const uint64_t length = steps > warmup ? steps - warmup : 1;

    if (step < warmup) {
        return config->lr * (double)(step + 1) / (double)warmup;
    }
    return dp_schedule_of(config)->lr(config, step - warmup < length ? step - warmup : length - 1,
                                      length);
}
