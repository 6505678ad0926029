/*
 * run_end.h - how a run ends before its last step: on request, or by a decision of its own.
 *
 * These functions set the outcome, alike on all ranks.
 */
#ifndef DP_RUNTIME_RUN_RESULTS_RUN_END_H
#define DP_RUNTIME_RUN_RESULTS_RUN_END_H

#include "runtime/run/training.h"

/* Puts what this rank requests into the next step's tail. */
void dp_run_request(struct dp_training *run);

/* Rank 0: whether the steady steps are too slow, for the next requests. */
void dp_run_judge_throughput(const struct dp_run_job *job, struct dp_figures *figures,
                             struct dp_outcome *outcome);

/* Some rank was asked to stop: all find out which, and why. After the last step that only sets
 * `late_stop`, since the run has finished. Within local steps nothing ends yet, but for SIGTERM and
 * SIGINT: the request is heard again after the next step. Collective. */
DP_CHECKED dp_status dp_run_judge_stop(struct dp_training *run);

/* After a step: whether training has failed, by step `number` (from 1) of a global batch of
 * `rows`. Local, alike on all ranks. */
void dp_run_judge_step(struct dp_training *run, uint64_t number, size_t rows,
                       const struct dp_step_report *report);

/* After a step: what ranks request [DP_REQUEST_COUNT], unless it has failed. Collective. */
DP_CHECKED dp_status dp_run_judge_requests(struct dp_training *run, const bool *request);

/* After a recorded evaluation: counts for early stopping. The second one decides. */
void dp_run_judge_evaluation(const struct dp_run_job *job, const struct dp_figures *figures,
                             struct dp_outcome *outcome);
void dp_run_judge_improvement(const struct dp_run_job *job, struct dp_outcome *outcome);

/* The last checkpoint was not written, for that reason. Local, alike on all ranks. */
void dp_run_judge_saving(const struct dp_run_job *job, struct dp_outcome *outcome,
                         dp_status written);

/* Before a checkpoint: with weights that are not numbers the run has diverged. Collective. */
DP_CHECKED dp_status dp_run_judge_weights(const struct dp_run_job *job, struct dp_outcome *outcome);

/* The status that the run ends with, if something has ended it; else DP_OK. Local, alike on all
 * ranks. */
DP_CHECKED dp_status dp_run_end_status(const struct dp_outcome *outcome);

/* The same; rank 0 reports why, and how to go on: the last line on stderr. */
DP_CHECKED dp_status dp_run_last_word(const struct dp_training *run);

#endif
