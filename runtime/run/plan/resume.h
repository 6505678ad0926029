/*
 * resume.h - going on from a checkpoint.
 */
#ifndef DP_RUNTIME_RUN_PLAN_RESUME_H
#define DP_RUNTIME_RUN_PLAN_RESUME_H

#include "runtime/report/live/progress.h"
#include "runtime/run/job.h"
#include "runtime/run/saver.h"

/*
 * --resume, in this order. Rank 0 finds a whole checkpoint and reads state.json. It sends all ranks
 * what they need to know of it; they take over the strategy that `auto` chose then. With the data
 * loaded, rank 0 checks that the configuration fits the checkpoint. With the trainer made, all rows
 * of saver->state_dict are read.
 *
 * Errors: DP_ERR_NOINPUT, DP_ERR_DATA, DP_ERR_CONFIG, DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_run_find_checkpoint(struct dp_run_job *job); /* rank 0 */
DP_CHECKED dp_status dp_run_share_checkpoint(struct dp_run_job *job);
DP_CHECKED dp_status dp_run_check_checkpoint(struct dp_run_job *job, struct dp_progress *progress);
DP_CHECKED dp_status dp_run_restore(struct dp_run_job *job, struct dp_saver *saver);

/* Rank 0: one line for people. */
void dp_run_describe_resume(const struct dp_run_job *job, struct dp_progress *progress);

#endif
