/*
 * stream_dataset.h - a data set that is not decoded before the first step: its samples are read
 * when batches need them, from files or from memory.
 */
#ifndef DP_RUNTIME_RUN_DATASET_STREAM_DATASET_H
#define DP_RUNTIME_RUN_DATASET_STREAM_DATASET_H

#include "runtime/data/samples.h"
#include "runtime/run/dataset/data_prints.h"
#include "runtime/run/job.h"

/*
 * Prepares job->data for reading from `samples`, which must stay open as long.
 *
 *   cache  DP_CACHE_NONE or _RAW: then units are read into memory now
 *
 * Collective. Errors: DP_ERR_NOMEM; DP_ERR_DISAGREE (samples of another host differ); those of the
 * group.
 */
DP_CHECKED dp_status dp_run_stream_data(struct dp_run_job *job, struct dp_samples *samples,
                                        int cache);

/* Compares this host's hashes with all others, once what they are of is known; hosts without files
 * take those of others. Collective. Errors: DP_ERR_DISAGREE; those of the group. */
DP_CHECKED dp_status dp_run_compare_hosts(struct dp_run_job *job,
                                          const struct dp_data_prints *prints);

#endif
