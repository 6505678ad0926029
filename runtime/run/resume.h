/*
 * resume.h - going on from a checkpoint.
 */
#ifndef DP_RUNTIME_RUN_RESUME_H
#define DP_RUNTIME_RUN_RESUME_H

#include "runtime/run/training.h"

/*
 * --resume, in this order. Rank 0 finds a whole checkpoint and reads state.json; all ranks learn
 * what they need to know of it, and take over the strategy that `auto` chose then; rank 0 checks
 * that the configuration goes with it, once the data are there; and with the trainer made, all rows
 * of run->kept are taken over.
 *
 * Errors: DP_ERR_NOINPUT, DP_ERR_DATA, DP_ERR_CONFIG, DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_run_find_checkpoint(struct dp_training *run); /* rank 0 */
DP_CHECKED dp_status dp_run_share_checkpoint(struct dp_training *run);
DP_CHECKED dp_status dp_run_check_checkpoint(struct dp_training *run);
DP_CHECKED dp_status dp_run_restore(struct dp_training *run);
void dp_run_tell_resume(struct dp_training *run); /* rank 0: one line for people */

#endif
