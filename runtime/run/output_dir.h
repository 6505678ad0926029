/*
 * output_dir.h - the folder of a run: --out, or one of its own.
 */
#ifndef DP_RUNTIME_RUN_OUTPUT_DIR_H
#define DP_RUNTIME_RUN_OUTPUT_DIR_H

#include "runtime/run/job.h"

/* Rank 0: locks --out, if it is there. Errors: DP_ERR_USAGE (another run writes there),
 * DP_ERR_WRITE, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_run_lock_out(struct dp_run_job *job);

/* Rank 0: makes the folder job->output, unless it is there, and locks it. Apart from the lock
 * nothing is written into it before the first step is certain, so that a refused run can be tried
 * again. Errors: those of the lock; DP_ERR_USAGE (it holds another run, or checkpoints). */
DP_CHECKED dp_status dp_run_make_out(struct dp_run_job *job);

/* Rank 0, under the lock: deletes and mends what a run that was killed here left half done. Errors:
 * DP_ERR_WRITE. */
DP_CHECKED dp_status dp_run_mend_out(const struct dp_run_job *job);

/* Unlocks the folder. One that was made for this run and not used is deleted, if it is empty. */
void dp_run_release_out(struct dp_output_dir *output, bool used);

#endif
