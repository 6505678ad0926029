/*
 * state.h - what a trainer has learned, for those who look at it between steps: initial weights and
 * weights from outside, copies, what a checkpoint keeps, and repair.
 */
#ifndef DP_RUNTIME_TRAINER_STATE_H
#define DP_RUNTIME_TRAINER_STATE_H

#include "runtime/checkpoint/state_dict.h"

struct dp_trainer;

/* Initial weights from the seed: equal on all ranks. Collective. */
DP_CHECKED dp_status dp_trainer_init(struct dp_trainer *trainer);

/*
 * Float32 weights from outside, whole, in flat order: they are written into the memory of
 * dp_trainer_whole() [trained] (of ranks that share one copy by the one that
 * dp_exchange_writes()), then taken over as master weights and rounded to the compute type. Between
 * steps, since the memory may be that of the gradient. dp_trainer_take: collective.
 */
float *dp_trainer_whole(struct dp_trainer *trainer);
DP_CHECKED dp_status dp_trainer_take(struct dp_trainer *trainer);

/* Rounds master weights to the compute type anew, on all ranks. Nothing to do for float32.
 * Collective. */
DP_CHECKED dp_status dp_trainer_round(struct dp_trainer *trainer);

/* Ranks whose state differs find out where, and have the same again: dp_replica_check_resolve(),
 * and the rounding of restored master weights. Collective. */
DP_CHECKED dp_status dp_trainer_resolve_split(struct dp_trainer *trainer);

/* Compares all state of all ranks, unless train.check_every is 0, and resolves what differs: before
 * it is saved. Collective. */
DP_CHECKED dp_status dp_trainer_compare_replicas(struct dp_trainer *trainer);

/* The weights that layers read [trained], in float32. Between steps: may lie in the gradient's
 * memory. */
DP_CHECKED dp_status dp_trainer_wide(struct dp_trainer *trainer, const float **out);

/* Copies weights, running statistics and optimizer state of another trainer of the same model; of
 * the state only what `from` owns, to the beginning, and rounded weights for masters: enough to
 * measure with. */
DP_CHECKED dp_status dp_trainer_copy_state(struct dp_trainer *to, const struct dp_trainer *from);

/* All that dp_trainer_add_state() lists, from the device to the host and back; done when they
 * return. Between steps. */
DP_CHECKED dp_status dp_trainer_fetch(struct dp_trainer *trainer);
DP_CHECKED dp_status dp_trainer_put(struct dp_trainer *trainer);

/* Adds a row for everything that a step changes and a later one needs. Arrays are the host's. */
void dp_trainer_add_state(struct dp_trainer *trainer, struct dp_state_dict *list);

#endif
