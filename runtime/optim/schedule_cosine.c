/*
 * schedule_cosine.c - half a cosine from lr to eta_min, as torch's CosineAnnealingLR.
 */
#include <math.h>

#include "runtime/optim/schedule.h"

struct cosine {
    double eta_min;
};

static const struct dp_option cosine_options[] = {
    DP_DOUBLE(struct cosine, eta_min, "0", 0, 1e6, "the rate at the end"),
    {0},
};

static double cosine_lr(const void *options, double lr, uint64_t at, uint64_t length)
{
    static const double pi = 3.14159265358979323846;
    const struct cosine *c = options;

    return c->eta_min + (lr - c->eta_min) * (1.0 + cos(pi * ((double)at / (double)length))) / 2.0;
}

const struct dp_schedule dp_schedule_cosine = {
    .plugin = {.name = "cosine",
               .help = "half a cosine down to eta_min",
               .options = cosine_options,
               .state_bytes = sizeof(struct cosine)},
    .stretches = true,
    .lr = cosine_lr,
};
