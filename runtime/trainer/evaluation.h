/*
 * evaluation.h - loss and accuracy over the test rows.
 */
#ifndef DP_RUNTIME_TRAINER_EVALUATION_H
#define DP_RUNTIME_TRAINER_EVALUATION_H

#include "base/status.h"

struct dp_trainer;

struct dp_evaluation {
    double loss, accuracy;
};

/* Mean loss and accuracy over the test rows, sharded over ranks; equal on all. Collective. Goes in
 * rounds of about a quarter of a second, and is broken off after one of them, on all ranks, when a
 * rank has been asked to stop. Errors: also DP_STOPPED (broken off; not logged). */
DP_CHECKED dp_status dp_trainer_evaluate(struct dp_trainer *trainer, struct dp_evaluation *out);

#endif
