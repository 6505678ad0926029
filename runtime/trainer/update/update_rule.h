/*
 * update_rule.h - when weights change within a step.
 *
 *   streaming     each bucket is updated as its sum arrives, while later ones are on the wire
 *   recorded      one rank on a device that records steps: all buckets at the end of backward, as a
 *                 part of the recording
 *   after sums    when all sums are there: clipping by norm, layer-wise rates, and fp16, which
 *                 skips a step whose gradient is not finite
 *   agreed first  fp16 with a compressor: gradients are held back until all ranks know that theirs
 *                 are finite, and what a compressor keeps for later steps is of good steps alone
 *
 * The rule is chosen when the trainer is created. Each has a twin for steps in which the scalars of
 * all ranks are read before anything is updated, which one rank alone never does.
 */
#ifndef DP_RUNTIME_TRAINER_UPDATE_UPDATE_RULE_H
#define DP_RUNTIME_TRAINER_UPDATE_UPDATE_RULE_H

#include <stdbool.h>

#include "runtime/trainer/step_scalars.h"

struct dp_trainer;

/* Called in this order; `summed` for each bucket that is not deferred. */
struct dp_update_rule {
    /* After backward: sends gradients that were held back. */
    dp_status (*computed)(struct dp_trainer *trainer);
    /* The sum of bucket b has arrived. */
    dp_status (*summed)(struct dp_trainer *trainer, int b);
    /* All sums have arrived: updates the weights that have not been updated. */
    dp_status (*update)(struct dp_trainer *trainer, struct dp_step_report *report);
    /* All weights are updated: reads the scalars of all ranks, if that was not done before. */
    dp_status (*read)(struct dp_trainer *trainer, struct dp_step_report *report);
    const struct dp_update_rule *scalars_first; /* the twin */
    /* Queues updates at the end of backward: struct dp_micro_batches. NULL: none. */
    dp_status (*after_backward)(void *trainer);
};

/* Returns the rule that a trainer's configuration needs. Local. */
const struct dp_update_rule *dp_update_rule_choose(const struct dp_trainer *trainer);

#endif
