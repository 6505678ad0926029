/*
 * tail.h - what ranks know of each other in every step: the tail of the gradient (step_scalars.h),
 * filled in and read.
 */
#ifndef DP_RUNTIME_TRAINER_TAIL_H
#define DP_RUNTIME_TRAINER_TAIL_H

#include "runtime/trainer/step_scalars.h"

struct dp_trainer;

/* This rank's requests and hashes go into the tail, which is then shared like any bucket. */
DP_CHECKED dp_status dp_tail_send(struct dp_trainer *trainer);

/* Loss, requests and hashes of all ranks, once the tail's sum is there. Ranks whose weights differ
 * find out where, and have the same again. Collective.
 * Errors: DP_ERR_DISAGREE; those of dp_trainer_resolve_split(). */
DP_CHECKED dp_status dp_tail_read(struct dp_trainer *trainer, struct dp_step_report *report);

#endif
