/*
 * final_report.h - what a run leaves after its last step.
 */
#ifndef DP_RUNTIME_RUN_RESULTS_FINAL_REPORT_H
#define DP_RUNTIME_RUN_RESULTS_FINAL_REPORT_H

#include "runtime/run/training.h"

/* The last checkpoint, run.json and the table, after the last step. Where the checkpoint cannot be
 * written the report still is, if possible, and says so. Collective. */
DP_CHECKED dp_status dp_run_finish(struct dp_training *run);

/* What this rank knows of the run, of which the busiest rank sends `wire` bytes a step; no tables.
 * The caller adds them, and releases it (dp_run_summary_release). Local: it only reads. */
struct dp_run_summary dp_run_summarize(const struct dp_training *run, int64_t wire);

#endif
