/*
 * run_files.h - the files that a run writes from its first step on.
 */
#ifndef DP_RUNTIME_RUN_RUN_FILES_H
#define DP_RUNTIME_RUN_RUN_FILES_H

#include "runtime/run/results/figures.h"

/* Whether other files are made of metrics.jsonl. */
bool dp_run_writes_reports(const struct dp_run_job *job);

/*
 * Rank 0: the files before the first step. Of those of the run that goes on only what its
 * checkpoint knows stays. A run that cannot begin leaves no config.yaml, since for that the next
 * try would be refused. Errors: DP_ERR_WRITE and so on.
 *
 *   evaluated_at  in  the step of the last evaluation that is recorded
 */
DP_CHECKED dp_status dp_run_begin_files(const struct dp_run_job *job, uint64_t evaluated_at,
                                        struct dp_figures *figures);

#endif
