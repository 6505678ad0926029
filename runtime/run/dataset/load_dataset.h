/*
 * load_dataset.h - loads the data set.
 */
#ifndef DP_RUNTIME_RUN_DATASET_LOAD_DATASET_H
#define DP_RUNTIME_RUN_DATASET_LOAD_DATASET_H

#include "runtime/report/live/progress.h"
#include "runtime/run/dataset/data_memory.h"
#include "runtime/run/job.h"

/* Of so many samples one may be bad, where bad ones are replaced. */
enum { DP_BAD_SHARE = 1000 };

/* The data set into memory; job->data, names of classes, skipped samples. While it takes long, rank
 * 0 says how far it is. Collective. */
DP_CHECKED dp_status dp_run_load_data(struct dp_run_job *job, struct dp_progress *progress);

/* Closes and releases it. Collective. */
void dp_run_release_data(struct dp_run_job *job);

/* What the configured data set will take of memory; zeros where it is not found here. A server is
 * asked for a few blocks. Sets model->float_samples. */
struct dp_data_need dp_run_data_need(const struct dp_config *config, struct dp_model *model);

#endif
