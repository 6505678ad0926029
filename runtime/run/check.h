/*
 * check.h - answers without training.
 */
#ifndef DP_RUNTIME_RUN_CHECK_H
#define DP_RUNTIME_RUN_CHECK_H

#include "runtime/report/live/progress.h"
#include "runtime/run/job.h"

/* Refuses, with its place, a name that no plug-in has: before any data is read. */
DP_CHECKED dp_status dp_run_check_names(const struct dp_config *config);

/* --check: no ranks. The banner; with --dry-run also topology, binding and buckets: after setup. */
DP_CHECKED dp_status dp_run_check(const struct dp_run_options *options);
void dp_run_describe(const struct dp_run_job *job, struct dp_progress *progress);

#endif
