/*
 * run_end.h - how a run ends before its last step.
 */
#ifndef DP_RUNTIME_RUN_RUN_END_H
#define DP_RUNTIME_RUN_RUN_END_H

#include "runtime/run/training.h"

/* These set run->exit and run->reason, alike on all
 * ranks. */

/* What this rank requests goes into the next step's tail. */
void dp_run_request(struct dp_training *run);

/* Rank 0: whether the steady steps are too slow, for the next wishes. */
void dp_run_note_throughput(struct dp_training *run);

/* Some rank was asked to stop: all find out which, and why. Behind the last step the run is only
 * `hurried`, since it has finished. Within local steps nothing ends yet, but for SIGTERM and
 * SIGINT: the request is heard again behind the next step. Collective. */
DP_CHECKED dp_status dp_run_asked(struct dp_training *run);

/* Behind a step: whether training has failed, by step `number` (from 1) of a global batch of
 * `rows`. Local, alike on all ranks. */
void dp_run_judge_step(struct dp_training *run, uint64_t number, size_t rows,
                       const struct dp_step_report *report);

/* Behind a step: what ranks wish [DP_REQUEST_COUNT], unless it has failed. Collective. */
DP_CHECKED dp_status dp_run_judge_requests(struct dp_training *run, const bool *request);

/* Behind a recorded evaluation: early stopping. The second one notes nothing new: for a run that
 * goes on from a checkpoint. */
void dp_run_judge_evaluation(struct dp_training *run);
void dp_run_judge_improvement(struct dp_training *run);

/* The last checkpoint was not written, for that reason. Local, alike on all ranks. */
void dp_run_judge_saving(struct dp_training *run, dp_status written);

/* Before a checkpoint: with weights that are not numbers the run has diverged. Collective. */
DP_CHECKED dp_status dp_run_judge_weights(struct dp_training *run);

/* The status that the run ends with; rank 0 says why, and how to go on: the last line on stderr. */
DP_CHECKED dp_status dp_run_last_word(struct dp_training *run);

#endif
