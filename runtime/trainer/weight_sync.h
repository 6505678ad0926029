/*
 * weight_sync.h - between steps: all ranks have the same weights, and those of the last step.
 */
#ifndef DP_RUNTIME_TRAINER_WEIGHT_SYNC_H
#define DP_RUNTIME_TRAINER_WEIGHT_SYNC_H

#include "base/status.h"

struct dp_trainer;

/*
 * Completes what steps left open: deferred updates, a snapshot that is being copied, local steps
 * (train.local_steps): their weights and optimizer state become their means over ranks, so that
 * all have the same again. Nothing to do where they do. Collective; before whatever looks at the
 * weights of all ranks.
 *
 * Source: Lin, Stich, Patel and Jaggi, "Don't use large mini-batches, use local SGD", ICLR 2020;
 * that the momentum is averaged too: Yu, Jin and Yang, ICML 2019, algorithm 1.
 */
DP_CHECKED dp_status dp_trainer_sync_weights(struct dp_trainer *trainer);

#endif
