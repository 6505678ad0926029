/*
 * step.h - the training step, and the pieces of it that asynchronous training shares (async.h).
 */
#ifndef DP_RUNTIME_TRAINER_STEP_H
#define DP_RUNTIME_TRAINER_STEP_H

#include "runtime/trainer/step_scalars.h"

struct dp_trainer;

/* What a step came to that all trainers have done. */
struct dp_step_result {
    uint64_t step; /* from 1 */
    size_t rows;   /* of the global batch */
    double lr;
    struct dp_step_report report;
};

/* One training step. Collective. */
DP_CHECKED dp_status dp_trainer_step(struct dp_trainer *trainer, struct dp_step_report *report);

/* A piece: the next batch, and the step parameters for it, on the host. */
DP_CHECKED dp_status dp_step_begin(struct dp_trainer *trainer);

/* A piece: forward and backward of this rank's rows of the batch, whose gradient is handed to the
 * exchange tensor by tensor, unless it is held back. */
DP_CHECKED dp_status dp_step_compute(struct dp_trainer *trainer);

#endif
