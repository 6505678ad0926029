/*
 * evaluation.h - the loss over the test rows, and the metric that belongs to it.
 */
#ifndef DP_RUNTIME_TRAINER_EVALUATION_H
#define DP_RUNTIME_TRAINER_EVALUATION_H

#include <stddef.h>

#include "base/status.h"

struct dp_model;
struct dp_trainer;

/* Means over rows; NaN: not of this loss. */
struct dp_evaluation {
    double loss;
    double accuracy; /* softmax, binary: right answers */
    double top5;     /* softmax of more than 5 classes: right among the best 5 */
    double error;    /* mse: the distance |output - target|, over all outputs */
};

/* Computes these over the test rows, which are divided among ranks; the results
 * are equal on all. Works in rounds of about a quarter of a second: when a rank has been asked to
 * stop, all ranks stop after the same round. Collective. Errors: also DP_STOPPED (stopped so; not
 * logged). */
DP_CHECKED dp_status dp_trainer_evaluate(struct dp_trainer *trainer, struct dp_evaluation *out);

/* ---- pieces that evaluator.c shares ---- */

/* From the sums [DP_EVALUATION_SUMS] over `rows` test rows. */
struct dp_evaluation dp_evaluation_of(const struct dp_model *model, const double *sums,
                                      double rows);

/* The number of passes of a round, after a round of `passes` that took so long. */
size_t dp_evaluation_round(size_t passes, double seconds);

#endif
