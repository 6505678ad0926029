/*
 * weight_sync.h - makes weights equal on all ranks, and those of the last step, between steps.
 */
#ifndef DP_RUNTIME_TRAINER_UPDATE_WEIGHT_SYNC_H
#define DP_RUNTIME_TRAINER_UPDATE_WEIGHT_SYNC_H

#include "base/status.h"

struct dp_trainer;

/*
 * Completes what steps left open: deferred updates, the copy of a snapshot, and local steps
 * (train.local_steps), whose weights and optimizer state are replaced by their means over ranks.
 * Does nothing if nothing is open. Call it before anything that uses the weights of all ranks.
 * Collective.
 *
 * Source: Lin, Stich, Patel and Jaggi, "Don't use large mini-batches, use local SGD", ICLR 2020;
 * that the momentum is averaged too: Yu, Jin and Yang, ICML 2019, algorithm 1.
 */
DP_CHECKED dp_status dp_trainer_sync_weights(struct dp_trainer *trainer);

#endif
