/*
 * schedule_linear.c - a straight line from lr to eta_min, as torch's LinearLR.
 */
#include "runtime/optim/schedule.h"

static double linear_lr(const struct dp_optimizer_config *config, uint64_t at, uint64_t length)
{
    const double done = (double)at / (double)length;

    return config->lr + (config->schedule.eta_min - config->lr) * done;
}

const struct dp_schedule dp_schedule_linear = {
    .stretches = true,
    .lr = linear_lr,
};
