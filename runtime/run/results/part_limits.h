/*
 * part_limits.h - each part of a step next to its limit.
 */
#ifndef DP_RUNTIME_RUN_RESULTS_PART_LIMITS_H
#define DP_RUNTIME_RUN_RESULTS_PART_LIMITS_H

#include "runtime/report/summary.h"
#include "runtime/run/training.h"

/* Rank 0: sets the table `parts` of a summary whose ranks and limits are filled in; parts whose
 * limit is not known are left out. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_part_limits_summarize(struct dp_training *run,
                                              struct dp_run_summary *summary);

#endif
