/*
 * schedule_step.c - every step_size steps the rate is cut by gamma, as torch's StepLR.
 */
#include <math.h>

#include "runtime/optim/schedule.h"

static double step_lr(const struct dp_optimizer_config *config, uint64_t at, uint64_t length)
{
    const struct dp_schedule_config *s = &config->schedule;

    (void)length;
    return config->lr * pow(s->gamma, floor((double)at / s->step_size));
}

const struct dp_schedule dp_schedule_step = {
    .lr = step_lr,
};
