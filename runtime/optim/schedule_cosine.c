/*
 * schedule_cosine.c - half a cosine from lr to eta_min, as torch's CosineAnnealingLR.
 */
#include <math.h>

#include "runtime/optim/schedule.h"

static double cosine_lr(const struct dp_optimizer_config *config, uint64_t at, uint64_t length)
{
    static const double pi = 3.14159265358979323846;
    const double end = config->schedule.eta_min, done = (double)at / (double)length;

    return end + (config->lr - end) * (1.0 + cos(pi * done)) / 2.0;
}

const struct dp_schedule dp_schedule_cosine = {
    .stretches = true,
    .lr = cosine_lr,
};
