/*
 * step_hooks.h - what happens at named points of every step besides computing, summing and
 * updating: the comparison of replicas, the copying of snapshots, counters.
 */
#ifndef DP_RUNTIME_TRAINER_STEP_HOOKS_H
#define DP_RUNTIME_TRAINER_STEP_HOOKS_H

#include "runtime/trainer/step_scalars.h"

struct dp_trainer;

enum dp_step_point {
    DP_STEP_BEFORE_COMPUTE, /* the batch has been read; deferred weights of the last step are
                             * pending */
    DP_STEP_BEGUN,          /* it is decided what this step shares, and nothing has been sent */
    DP_STEP_AFTER_COMPUTE,  /* after backward, before the tail is sent */
    DP_STEP_BEFORE_UPDATE,  /* before this step changes weights on this rank */
    DP_STEP_AFTER_SUMS,     /* all weights have been updated, except deferred ones */
    DP_STEP_AFTER_STEP,     /* the step is done and counted, and `report` is filled in */
    DP_STEP_POINTS
};

/* Calls all hooks of a point, in the order of the table in step_hooks.c. */
DP_CHECKED dp_status dp_step_hooks_call(enum dp_step_point point, struct dp_trainer *trainer,
                                        const struct dp_step_report *report);

#endif
