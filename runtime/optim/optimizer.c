#include "runtime/optim/optimizer.h"

#include <math.h>

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

unsigned dp_optimizer_no_decay(const struct dp_optimizer *optimizer, const void *options)
{
    const struct dp_option *row = dp_option_find(optimizer->plugin.options, "no_decay");

    return row == NULL ? 0 : *(const unsigned *)(const void *)((const char *)options + row->offset);
}

double dp_optimizer_lr_factor(const struct dp_optimizer_config *config)
{
    if (config->scale_lr == DP_SCALE_LR_NONE) {
        return 1.0;
    }
    const double ratio = (double)config->global_batch / (double)config->base_batch;

    return config->scale_lr == DP_SCALE_LR_LINEAR ? ratio : sqrt(ratio);
}

double dp_optimizer_lr(const struct dp_optimizer_config *config, uint64_t step, uint64_t steps)
{
    const struct dp_schedule_config *schedule = &config->schedule;
    const uint64_t warmup = (uint64_t)schedule->warmup_steps;
    const uint64_t length = steps > warmup ? steps - warmup : 1;
    const double lr = config->lr * dp_optimizer_lr_factor(config);

    if (step < warmup) {
        return lr * (double)(step + 1) / (double)warmup;
    }
    return dp_schedule_of(schedule)->lr(
        schedule->chosen.state, lr, step - warmup < length ? step - warmup : length - 1, length);
}
