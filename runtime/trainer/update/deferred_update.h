/*
 * deferred_update.h - updates that wait until the next step's forward needs the weights.
 *
 * A deferred bucket (collectives/core/bucket.h) is sent after the tail. Its step ends without it:
 * loss and requests have arrived, and the next batch's first layers are computed meanwhile. The
 * bucket's weights are updated just before their layer's forward, with the step parameters of the
 * step that computed the gradient. So every weight has the same bits as without deferring.
 */
#ifndef DP_RUNTIME_TRAINER_UPDATE_DEFERRED_UPDATE_H
#define DP_RUNTIME_TRAINER_UPDATE_DEFERRED_UPDATE_H

#include <stdbool.h>

#include "base/status.h"

struct dp_trainer;

/* Whether this configuration allows it. Not with updates that need the whole gradient first
 * (clipping, layer-wise rates, fp16), that are averaged later, or whose order is not that of one
 * pass's forward (lanes, layers that wait for other ranks in forward). Local. */
bool dp_deferred_update_possible(const struct dp_trainer *trainer);

/* Whether steps that begin from now on defer updates, where they can; the same on all ranks. Off at
 * first. Local. */
void dp_deferred_update_allow(struct dp_trainer *trainer, bool on);

/* Whether some weights still wait for updates of the previous step. Local. */
bool dp_deferred_update_pending(const struct dp_trainer *trainer);

/* Called after a step's last sum: its deferred buckets are pending from now on. Local. */
void dp_deferred_update_begin(struct dp_trainer *trainer);

/* Returns when the weights of this tensor and all before it are up to date: waits for their
 * deferred buckets, and updates. A model's hook: `trainer` is a struct dp_trainer. */
DP_CHECKED dp_status dp_deferred_update_need(void *trainer, int tensor);

/* Returns when all weights are up to date. Call it before anything but the next step's forward uses
 * weights, optimizer state or the gradient. dp_trainer_sync_weights() does so. */
DP_CHECKED dp_status dp_deferred_update_finish(struct dp_trainer *trainer);

#endif
