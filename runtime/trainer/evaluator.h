/*
 * evaluator.h - a rank that evaluates weights of others, and trains nothing.
 *
 * It computes the test rows of all ranks that train, one rank's share after the other, in the same
 * passes and with the same sums as dp_trainer_evaluate() on those ranks. So it finds the same bits,
 * if its threads are as many as theirs, and its algorithms the same. It has weights and running
 * statistics, but neither gradients nor optimizer state.
 */
#ifndef DP_RUNTIME_TRAINER_EVALUATOR_H
#define DP_RUNTIME_TRAINER_EVALUATOR_H

#include <stdbool.h>

#include "models/model.h"
#include "runtime/config/config.h"
#include "runtime/trainer/compute/input.h"
#include "runtime/trainer/evaluation.h"

struct dp_evaluator;

struct dp_evaluator_config {
    const struct dp_config *config; /* borrowed */
    const struct dp_model *model;   /* borrowed */
    const struct dp_device *device; /* whose memory the host can use */
    const struct dp_dataset *data;  /* borrowed; the test rows */
    int trainers, threads;          /* ranks that train; threads of this one */
    struct dp_algo_choices
        *algo_choices; /* borrowed: the trainers', frozen; NULL: they have none */
};

/* Errors: those of dp_trainer_create(). */
DP_CHECKED dp_status dp_evaluator_create(const struct dp_evaluator_config *config,
                                         struct dp_evaluator **out);
void dp_evaluator_destroy(struct dp_evaluator *evaluator);

/* Where the weights that layers read [trained], and running statistics [statistics], go. */
void *dp_evaluator_weights(struct dp_evaluator *evaluator);
float *dp_evaluator_running(struct dp_evaluator *evaluator);

/* Evaluates them. About every quarter of a second `stop` is asked, or is NULL: true ends it.
 * Errors: also DP_STOPPED (ended so; not logged). */
typedef bool dp_evaluator_stop(void *context);
DP_CHECKED dp_status dp_evaluator_run(struct dp_evaluator *evaluator, dp_evaluator_stop *stop,
                                      void *context, struct dp_evaluation *out);

#endif
