/*
 * bad_data.h - samples that cannot be read while a run trains: by the rule of data.on_bad_sample.
 */
#ifndef DP_RUNTIME_RUN_DATASET_BAD_DATA_H
#define DP_RUNTIME_RUN_DATASET_BAD_DATA_H

#include "runtime/run/training.h"

/*
 * After a step. A rank that could not read a sample, or for which another one could not, has
 * requested that all end (DP_REQUEST_INPUT): the first of them reports why. Where others take the
 * places of bad samples, all ranks count them: job->skipped_samples is the most of an epoch.
 *
 * Collective. Errors, the same on all ranks, after one of them has reported it: those of
 * dp_loader_next(); DP_ERR_DATA: too many samples are bad.
 */
DP_CHECKED dp_status dp_run_judge_data(struct dp_training *run,
                                       const struct dp_step_report *report);

/*
 * Gives all ranks the failure of the first rank that has one, which reports it before any of them
 * leaves.
 *
 *   mine, error  of this rank, or of one that reads for it; DP_OK: none
 *
 * Collective. Errors: that one.
 */
DP_CHECKED dp_status dp_run_agree_input(const struct dp_run_job *job, dp_status mine,
                                        const struct dp_log_error *error);

/* Who reports it where ranks do not tell each other, as in asynchronous training: the first of each
 * host. job: borrowed. Local. */
struct dp_input_speaker dp_run_speaker(struct dp_run_job *job);

#endif
