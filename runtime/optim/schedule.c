#include "runtime/optim/schedule.h"

#include <math.h>

double dp_schedule_lr(const struct dp_optimizer_config *config, uint64_t step, uint64_t steps)
{
    static const double pi = 3.14159265358979323846;
    const struct dp_schedule_config *s = &config->schedule;
    const uint64_t warmup = (uint64_t)s->warmup_steps;
    uint64_t at, length;
    double done;

    if (step < warmup) {
        return config->lr * (double)(step + 1) / (double)warmup;
    }
    length = steps > warmup ? steps - warmup : 1;
    at = step - warmup < length ? step - warmup : length - 1;
    done = (double)at / (double)length;
    switch (s->name) {
    case DP_SCHEDULE_STEP:
        return config->lr * pow(s->gamma, floor((double)at / s->step_size));
    case DP_SCHEDULE_COSINE:
        return s->eta_min + (config->lr - s->eta_min) * (1.0 + cos(pi * done)) / 2.0;
    case DP_SCHEDULE_LINEAR:
        return config->lr + (s->eta_min - config->lr) * done;
    default:
        return config->lr;
    }
}
