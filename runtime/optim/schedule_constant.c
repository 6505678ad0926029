/*
 * schedule_constant.c - the rate stays.
 */
#include "runtime/optim/schedule.h"

static double constant_lr(const struct dp_optimizer_config *config, uint64_t at, uint64_t length)
{
    (void)at;
    (void)length;
    return config->lr;
}

const struct dp_schedule dp_schedule_constant = {
    .lr = constant_lr,
};
