/*
 * schedule_constant.c - a constant rate.
 */
#include "runtime/optim/schedule.h"

static double constant_lr(const void *options, double lr, uint64_t at, uint64_t length)
{
    (void)options;
    (void)at;
    (void)length;
    return lr;
}

const struct dp_schedule dp_schedule_constant = {
    .plugin = {.name = "constant", .help = "the rate is constant"},
    .lr = constant_lr,
};
