/*
 * tail.h - fills in and reads the tail of the gradient, by which ranks know of each other in every
 * step (step_scalars.h).
 */
#ifndef DP_RUNTIME_TRAINER_TAIL_H
#define DP_RUNTIME_TRAINER_TAIL_H

#include "runtime/trainer/step_scalars.h"

struct dp_trainer;

/* Writes this rank's requests and hashes into the tail, and submits it like any bucket. */
DP_CHECKED dp_status dp_tail_send(struct dp_trainer *trainer);

/* Waits for the tail's sum, and reads loss, requests and hashes of all ranks. If weights differ it
 * resolves that. Collective. Errors: DP_ERR_DISAGREE; those of dp_trainer_resolve_split(). */
DP_CHECKED dp_status dp_tail_read(struct dp_trainer *trainer, struct dp_step_report *report);

#endif
