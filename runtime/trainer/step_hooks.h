/*
 * step_hooks.h - what happens at named points of every step, beside computing, summing and
 * updating: the comparison of replicas, snapshots that are being copied, counters.
 */
#ifndef DP_RUNTIME_TRAINER_STEP_HOOKS_H
#define DP_RUNTIME_TRAINER_STEP_HOOKS_H

#include "runtime/trainer/step_scalars.h"

struct dp_trainer;

enum dp_step_point {
    DP_STEP_BEFORE_COMPUTE, /* the batch is there; weights are those of the step before, but for
                               deferred ones */
    DP_STEP_AFTER_COMPUTE,  /* backward is through, the tail has not left */
    DP_STEP_BEFORE_UPDATE,  /* nothing of this step has changed weights on this rank */
    DP_STEP_AFTER_SUMS,     /* all sums but deferred ones have come, and changed the weights */
    DP_STEP_AFTER_STEP,     /* the step is done, counted, and `report` filled in */
    DP_STEP_POINTS
};

/* Calls all hooks of a point, in the order of the table in step_hooks.c. */
DP_CHECKED dp_status dp_step_hooks_call(enum dp_step_point point, struct dp_trainer *trainer,
                                        const struct dp_step_report *report);

#endif
