/*
 * evaluation.h - when a run is evaluated, and what becomes of it: by the ranks that train, which
 * wait for it, or by a rank of its own, whose answer comes some steps later (eval_rank.h).
 *
 * With an evaluator early_stop decides about an evaluation where the next one is due, so at the
 * same step in every run; the run then ends there, and that step is evaluated, too.
 */
#ifndef DP_RUNTIME_RUN_ROLES_EVALUATION_H
#define DP_RUNTIME_RUN_ROLES_EVALUATION_H

#include "runtime/run/training.h"

/* After step number `step` (from 1): whether an evaluation is scheduled, wherever the run ends; and
 * whether one is due that has not been made or begun. */
bool dp_evaluation_scheduled(const struct dp_run_job *job, uint64_t step);
bool dp_evaluation_due(const struct dp_training *run, uint64_t step);

/* How many steps lie between two of them; 0: only the last step is evaluated. */
uint64_t dp_evaluation_period(const struct dp_run_job *job);

/* Evaluates the weights after the last step, or hands them over to the evaluator; records and
 * judges what is known then. One that is broken off is not recorded; a resumed run makes it.
 * Collective. */
DP_CHECKED dp_status dp_run_evaluate(struct dp_training *run);

/* Before a checkpoint, or measuring: waits for an evaluation of earlier weights, so that it is
 * recorded. Collective. */
DP_CHECKED dp_status dp_evaluation_settle(struct dp_training *run);

/* The run ends: settles; what a resumed run makes again, or nobody needs, is broken off.
 * Collective. */
DP_CHECKED dp_status dp_evaluation_finish(struct dp_training *run);

/* Rank 0, before each step: records what has come from the evaluator. Errors: of messages, and
 * those of dp_figures_add_evaluation(). */
DP_CHECKED dp_status dp_evaluation_poll(struct dp_training *run);

#endif
