/*
 * deferred_update.h - updates that wait until the next step's forward needs the weights.
 *
 * The sum of a deferred bucket (collectives/core/bucket.h) travels after the tail, so the step
 * that made it ends without it: loss and requests are there, and the next batch and the first
 * layers are computed meanwhile. The weights of the bucket are updated just before their layer's
 * forward, with the step parameters of the step that made the gradient, so every weight gets the
 * bits it would get without.
 */
#ifndef DP_RUNTIME_TRAINER_DEFERRED_UPDATE_H
#define DP_RUNTIME_TRAINER_DEFERRED_UPDATE_H

#include <stdbool.h>

#include "base/status.h"

struct dp_trainer;

/* Whether this configuration allows for it: updates that see the whole gradient before (clipping,
 * fp16), that are averaged later, or not ordered by the forward of one pass (lanes, layers that
 * wait for other ranks in forward) do not. Local. */
bool dp_deferred_update_possible(const struct dp_trainer *trainer);

/* Whether steps that begin from now on put updates off, where they can; the same on all ranks. At
 * first they do not. Local. */
void dp_deferred_update_allow(struct dp_trainer *trainer, bool on);

/* Whether some weights still wait for updates of the step before. Local. */
bool dp_deferred_update_pending(const struct dp_trainer *trainer);

/* After a step's last sum: its deferred buckets are pending from now on. Local. */
void dp_deferred_update_begin(struct dp_trainer *trainer);

/* Returns when the weights of this tensor and all before it are up to date: waits for their
 * deferred buckets, and updates. A model's hook: `trainer` is a struct dp_trainer. */
DP_CHECKED dp_status dp_deferred_update_need(void *trainer, int tensor);

/* Returns when all weights are: before anything but the next step's forward looks at weights,
 * optimizer state or the gradient. dp_trainer_sync_weights() does so. */
DP_CHECKED dp_status dp_deferred_update_finish(struct dp_trainer *trainer);

#endif
