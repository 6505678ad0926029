/*
 * stop_criteria.h - when a run ends by itself: nothing improves (early_stop), or it fails
 * (failure_stop).
 *
 * Decisions are functions of sums over ranks, which are equal on all ranks. So all ranks decide the
 * same after the same step, without a message. The speed of the machine is the exception: rank 0
 * measures it and requests a stop (step_scalars.h). The state of decisions is plain numbers, which
 * a checkpoint keeps, so that a resumed run decides like an uninterrupted one.
 */
#ifndef DP_RUNTIME_CONTROL_STOP_CRITERIA_H
#define DP_RUNTIME_CONTROL_STOP_CRITERIA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/checkpoint/state_dict.h"
#include "runtime/config/config.h"

/* ---- early stopping ---- */

struct dp_improvement {
    double best;     /* of the metric; undefined while seen is 0 */
    uint64_t seen;   /* evaluations with a metric that is a number */
    uint64_t waited; /* evaluations since the best one */
};

/* Records the metric after an evaluation. It improves when it is better than the best one by more
 * than min_delta; NaN does not improve. */
void dp_improvement_add(struct dp_improvement *improvement,
                        const struct dp_early_stop_config *config, double metric);

/* Whether `patience` evaluations in a row have not improved; patience 0: never. */
bool dp_improvement_ended(const struct dp_improvement *improvement,
                          const struct dp_early_stop_config *config);

/* "test_accuracy", "test_loss" and so on, as in the configuration. */
const char *dp_improvement_metric(const struct dp_early_stop_config *config);

/* ---- failures ---- */

/*
 * Exponentially weighted mean and variance of the loss. T. Finch, "Incremental calculation of
 * weighted mean and variance" (2009), section 9, with weight a = max(1 / (count + 1), 2 /
 * (spike_window + 1)), so that the first values have equal weights:
 *
 *     d = x - mean;  mean += a d;  variance = (1 - a) (variance + a d^2)
 */
struct dp_spike {
    double mean, variance;
    uint64_t count; /* losses so far */
};

/* Whether `loss` is above mean + sigma * deviation, once spike_window losses are known; if not, it
 * is added to them. The deviation counts as at least a thousandth of the mean: a constant loss must
 * not stop the run by a change in its last digits. */
bool dp_spike_add(struct dp_spike *spike, const struct dp_failure_stop_config *config, double loss);

/* Right answers in training, over the second half of the first chance_steps steps. */
struct dp_chance {
    double correct, rows;
};

/* Whether `correct` of `rows` answers are no better than guessing among `classes`: not above p = 1
 * / classes by more than two standard errors sqrt(p (1 - p) / rows). */
bool dp_is_chance(double correct, double rows, size_t classes);

struct dp_stop_criteria {
    struct dp_improvement improvement;
    struct dp_spike spike;
    struct dp_chance chance;
    uint64_t evaluated_at; /* steps done when the last evaluation was recorded */
};

/* Adds all of it to the state of checkpoints. */
void dp_stop_criteria_add_state(struct dp_stop_criteria *stop_criteria, struct dp_state_dict *list);

/* A training step, summed over ranks. */
struct dp_stop_criteria_step {
    uint64_t step; /* from 1 */
    double loss, correct, rows;
    bool whole; /* not a short batch: its loss is comparable to others' */
    size_t classes;
};

/* Whether training has failed at this step. Writes why into `reason` ("step 40: ..."). */
bool dp_stop_criteria_failed(struct dp_stop_criteria *stop_criteria,
                             const struct dp_failure_stop_config *config,
                             const struct dp_stop_criteria_step *step, char *reason, size_t size);

/* Whether all of data [count] are finite numbers. */
bool dp_all_finite(const float *data, size_t count);

/* ---- speed ---- */

/*
 * Samples/s over consecutive windows of steady steps. It belongs to this machine and is never
 * saved.
 *
 * A run below min_samples_per_second is saved and stopped as if by request (exit code 75), not as
 * failed: training is sound, and the scheduler can continue it on another machine.
 */
struct dp_throughput {
    uint64_t ns, samples, steps; /* of the current window */
    double rate;                 /* of the last full window */
};

/* A window is full when it has both. */
enum { DP_THROUGHPUT_STEPS = 10 };
#define DP_THROUGHPUT_NS 2000000000u

/* Records a steady step; returns whether it filled a window with a rate below `floor`; 0: never. */
bool dp_throughput_add(struct dp_throughput *throughput, double floor, uint64_t step_ns,
                       uint64_t samples);

#endif
