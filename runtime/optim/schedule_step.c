/*
 * schedule_step.c - the rate is multiplied by gamma every step_size steps, as torch's StepLR.
 */
#include <limits.h>
#include <math.h>

#include "runtime/optim/schedule.h"

struct step {
    int step_size;
    double gamma;
};

static const struct dp_option step_options[] = {
    DP_INT(struct step, step_size, "0", 0, INT_MAX, "steps between two cuts"),
    DP_DOUBLE(struct step, gamma, "0.1", 0, 1000, "factor of a cut"),
    {0},
};

static const char *step_refuse(const void *options, const char **key)
{
    (void)key;
    return ((const struct step *)options)->step_size == 0
               ? "schedule step needs a step_size above 0"
               : NULL;
}

static double step_lr(const void *options, double lr, uint64_t at, uint64_t length)
{
    const struct step *s = options;

    (void)length;
    return lr * pow(s->gamma, floor((double)at / s->step_size));
}

const struct dp_schedule dp_schedule_step = {
    .plugin = {.name = "step",
               .help = "the rate is cut by gamma every step_size steps",
               .options = step_options,
               .state_bytes = sizeof(struct step),
               .refuse = step_refuse},
    .lr = step_lr,
};
