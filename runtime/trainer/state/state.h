/*
 * state.h - access to what a trainer has learned, between steps: initial weights, weights from
 * outside, copies, the rows of a checkpoint, and repair.
 */
#ifndef DP_RUNTIME_TRAINER_STATE_STATE_H
#define DP_RUNTIME_TRAINER_STATE_STATE_H

#include "runtime/checkpoint/state_dict.h"

struct dp_trainer;

/* Sets initial weights from the seed, equal on all ranks. Collective. */
DP_CHECKED dp_status dp_trainer_init(struct dp_trainer *trainer);

/*
 * For whole float32 weights from outside, in flat order. Write them into the memory of
 * dp_trainer_whole() [trained]; of ranks that share one copy only the one for which
 * dp_exchange_writes() is true does so. Then dp_trainer_take() makes them the master weights, and
 * rounds them to the compute type; it is collective. Between steps, since the memory may be that of
 * the gradient.
 */
float *dp_trainer_whole(struct dp_trainer *trainer);
DP_CHECKED dp_status dp_trainer_take(struct dp_trainer *trainer);

/* Rounds master weights to the compute type, on all ranks. Does nothing for float32. Collective. */
DP_CHECKED dp_status dp_trainer_round(struct dp_trainer *trainer);

/* Finds where the state of ranks differs, and repairs it: dp_replica_check_resolve(), and the
 * rounding of restored master weights. Collective. */
DP_CHECKED dp_status dp_trainer_resolve_split(struct dp_trainer *trainer);

/* Compares all state of all ranks before it is saved, unless train.check_every is 0, and resolves
 * differences. Collective. */
DP_CHECKED dp_status dp_trainer_compare_replicas(struct dp_trainer *trainer);

/* Returns the weights that layers read [trained], in float32. Between steps, since they may be in
 * the gradient's memory. */
DP_CHECKED dp_status dp_trainer_wide(struct dp_trainer *trainer, const float **out);

/* Copies weights, running statistics and optimizer state of another trainer of the same model; of
 * optimizer state only what `from` owns, to the beginning, and rounded weights as master weights.
 * That is enough for measuring. */
DP_CHECKED dp_status dp_trainer_copy_state(struct dp_trainer *to, const struct dp_trainer *from);

/* Copy all that dp_trainer_add_state() lists from the device to the host, and back; they return
 * when done. Between steps. */
DP_CHECKED dp_status dp_trainer_fetch(struct dp_trainer *trainer);
DP_CHECKED dp_status dp_trainer_put(struct dp_trainer *trainer);

/* Adds a row for everything that a step changes and a later one needs. Arrays are on the host. */
void dp_trainer_add_state(struct dp_trainer *trainer, struct dp_state_dict *list);

#endif
