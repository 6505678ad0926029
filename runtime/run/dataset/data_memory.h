/*
 * data_memory.h - whether hosts have the memory that a data set takes, beside all else of the run;
 * and so, where samples are kept.
 */
#ifndef DP_RUNTIME_RUN_DATASET_DATA_MEMORY_H
#define DP_RUNTIME_RUN_DATASET_DATA_MEMORY_H

#include "runtime/data/samples.h"
#include "runtime/run/job.h"

/* Whether hosts have what the whole run will take, with `bytes` of each for the data set; predicts
 * this rank's memory. read_tests: rows to test with that are read when they are needed.
 * Collective. Errors: those of dp_memory_check_hosts(). */
DP_CHECKED dp_status dp_run_check_data_memory(struct dp_run_job *job, size_t train_count,
                                              size_t read_tests, size_t bytes);

/*
 * Where samples are kept: data.cache, or where that is auto, what fits into data.memory_mb, or into
 * the memory that is left. Where DP_CACHE_RAW is in question, units are measured: job->raw_index.
 * Collective.
 *
 *   decoded  bytes of all samples
 *   cache    out  DP_CACHE_NONE, _RAW or _DECODED
 *
 * Errors: DP_ERR_CONFIG (the source, or data.memory_mb, does not allow what is asked for);
 * DP_ERR_NOMEM; those of the group.
 */
DP_CHECKED dp_status dp_run_choose_cache(struct dp_run_job *job, const struct dp_samples *samples,
                                         size_t decoded, int *cache);

#endif
