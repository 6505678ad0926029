/*
 * data_only.h - --data-only: how fast the input is by itself, stage by stage.
 */
#ifndef DP_RUNTIME_RUN_DATASET_DATA_ONLY_H
#define DP_RUNTIME_RUN_DATASET_DATA_ONLY_H

#include "runtime/report/live/progress.h"
#include "runtime/run/job.h"

/* Takes all batches, and shows samples/s, what each stage did, which of them limits, and samples
 * per dollar where there is a price. Collective. Errors: those of dp_loader_next(), and of the
 * group. */
DP_CHECKED dp_status dp_run_data_only(const struct dp_run_job *job, struct dp_progress *progress);

#endif
