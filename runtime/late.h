/*
 * late.h - updates that wait until the next step's forward needs the weights.
 *
 * The sum of a late bucket (collectives/bucket.h) travels behind the tail, so the step that made it
 * ends without it: loss and wishes are there, and the next batch and the first layers are computed
 * meanwhile. The weights of the bucket are updated just before their layer's forward, with the
 * knobs of the step that made the gradient, so every weight gets the bits it would get without.
 */
#ifndef DP_RUNTIME_LATE_H
#define DP_RUNTIME_LATE_H

#include "kernels/flat.h"
#include "runtime/config.h"

struct dp_trainer;

/* Zeroed: no updates are put off. */
struct dp_late {
    bool on;               /* of steps that begin from now on; the same on all ranks */
    int end;               /* of the late buckets below this number updates are pending */
    struct dp_knobs knobs; /* theirs */
};

/* Whether this configuration allows for it: updates that see the whole gradient before (clipping,
 * fp16), that are averaged later, or not ordered by the forward of one pass (lanes, layers that
 * wait for other ranks in forward) do not. Local. */
bool dp_late_possible(const struct dp_trainer *trainer);

/* Behind a step's last sum: its late buckets are pending from now on. Local. */
void dp_late_begin(struct dp_trainer *trainer);

/* Returns when the weights of this tensor and all before it are up to date: waits for their late
 * buckets, and updates. A model's hook: `trainer` is a struct dp_trainer. */
DP_CHECKED dp_status dp_late_need(void *trainer, int tensor);

/* Returns when all weights are: before anything but the next step's forward looks at weights,
 * optimizer state or the gradient. dp_trainer_meet() does so. */
DP_CHECKED dp_status dp_late_finish(struct dp_trainer *trainer);

#endif
