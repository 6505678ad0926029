/*
 * step.h - the training step, and the pieces of it that asynchronous training shares (async.h).
 */
#ifndef DP_RUNTIME_TRAINER_STEP_H
#define DP_RUNTIME_TRAINER_STEP_H

#include "runtime/trainer/step_scalars.h"

struct dp_trainer;

/* The results of a step that all trainers have done. */
struct dp_step_result {
    uint64_t step; /* from 1 */
    size_t rows;   /* of the global batch */
    double lr;
    struct dp_step_report report;
};

/* One training step. Collective. */
DP_CHECKED dp_status dp_trainer_step(struct dp_trainer *trainer, struct dp_step_report *report);

/* A piece: gets the next batch, and sets the step parameters for it, on the host. */
DP_CHECKED dp_status dp_step_begin(struct dp_trainer *trainer);

/* A piece: forward and backward of this rank's rows of the batch. Each tensor's gradient is passed
 * to the exchange when it is ready, unless gradients are held back. Then starts to copy the next
 * batch, if it is ready, to the device. */
DP_CHECKED dp_status dp_step_compute(struct dp_trainer *trainer);

#endif
