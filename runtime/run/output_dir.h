/*
 * output_dir.h - the folder of a run: --out, or one of its own.
 */
#ifndef DP_RUNTIME_RUN_OUTPUT_DIR_H
#define DP_RUNTIME_RUN_OUTPUT_DIR_H

#include "runtime/run/training.h"

/* Rank 0: locks --out, if it is there. Errors: DP_ERR_USAGE (another run writes there),
 * DP_ERR_WRITE, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_run_lock_out(struct dp_training *run);

/* Rank 0: run->out, which is made here unless it is there, and locked. But for the lock nothing is
 * written into it before the first step is certain, so that a refused run can be tried again.
 * Errors: those of the lock; DP_ERR_USAGE (it holds a run that is not to go on, or checkpoints). */
DP_CHECKED dp_status dp_run_make_out(struct dp_training *run);

#endif
