#include "runtime/optim/optimizer.h"

#define DP_OPTIMIZER(name) extern const struct dp_optimizer dp_optimizer_##name;
#include "runtime/optim/optimizers.def"
#undef DP_OPTIMIZER

static const struct dp_plugin *const registry[] = {
#define DP_OPTIMIZER(name) &dp_optimizer_##name.plugin,
#include "runtime/optim/optimizers.def"
#undef DP_OPTIMIZER
};

struct dp_plugin_family dp_optimizers = {
    .noun = "optimizer", .rows = registry, .count = sizeof(registry) / sizeof(registry[0])};

double dp_optimizer_lr(const struct dp_optimizer_config *config, uint64_t step, uint64_t steps)
{
    const struct dp_schedule_config *schedule = &config->schedule;
    const uint64_t warmup = (uint64_t)schedule->warmup_steps;
    const uint64_t length = steps > warmup ? steps - warmup : 1;

    if (step < warmup) {
        return config->lr * (double)(step + 1) / (double)warmup;
    }
    return dp_schedule_of(schedule)->lr(schedule->chosen.state, config->lr,
                                        step - warmup < length ? step - warmup : length - 1,
                                        length);
}
