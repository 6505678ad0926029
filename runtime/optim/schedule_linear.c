/*
 * schedule_linear.c - a straight line from lr to eta_min, as torch's LinearLR.
 */
#include "runtime/optim/schedule.h"

struct linear {
    double eta_min;
};

static const struct dp_option linear_options[] = {
    DP_DOUBLE(struct linear, eta_min, "0", 0, 1e6, "the rate at the end"),
    {0},
};

static double linear_lr(const void *options, double lr, uint64_t at, uint64_t length)
{
    const struct linear *l = options;

    return lr + (l->eta_min - lr) * ((double)at / (double)length);
}

const struct dp_schedule dp_schedule_linear = {
    .plugin = {.name = "linear",
               .help = "straight down to eta_min",
               .options = linear_options,
               .state_bytes = sizeof(struct linear)},
    .stretches = true,
    .lr = linear_lr,
};
