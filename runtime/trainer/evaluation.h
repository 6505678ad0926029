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

/* Computes mean loss and accuracy over the test rows, which are divided among ranks; the results
 * are equal on all. Works in rounds of about a quarter of a second: when a rank has been asked to
 * stop, all ranks stop after the same round. Collective. Errors: also DP_STOPPED (stopped so; not
 * logged). */
DP_CHECKED dp_status dp_trainer_evaluate(struct dp_trainer *trainer, struct dp_evaluation *out);

#endif
