/*
 * data_memory.h - whether hosts have the memory that a data set takes, beside all else of the run;
 * and so, where samples are kept.
 */
#ifndef DP_RUNTIME_RUN_DATASET_DATA_MEMORY_H
#define DP_RUNTIME_RUN_DATASET_DATA_MEMORY_H

#include "runtime/data/samples.h"
#include "runtime/run/job.h"

/* What a data set takes of memory; zeros: it is not known. */
struct dp_data_need {
    size_t bytes;      /* of each host */
    size_t rows;       /* to train on */
    size_t read_tests; /* rows to test with that are read when they are needed */
    size_t reader;     /* bytes in which a thread works that reads samples */
    size_t window;     /* bytes that the threads of a rank want to share (dp_samples_share()) */
};

/* Training rows that are read from the same units about the same time: those of a window, and a
 * quarter more, since one thread begins a window while another ends the one before. rows: of the
 * set. */
size_t dp_data_window_rows(const struct dp_config *config, size_t rows);

/* Bytes that the threads of one of `readers` ranks of a host share: what they want, within what
 * data.memory_mb leaves. */
size_t dp_data_shared_bytes(const struct dp_config *config, const struct dp_data_need *need,
                            int readers);

/* The ranks of this rank's host that read training rows; 1 or more. */
int dp_data_readers_here(const struct dp_run_job *job);

/* Whether hosts have what the whole run will take; predicts this rank's memory. Collective. Errors:
 * those of dp_memory_check_hosts(). */
DP_CHECKED dp_status dp_run_check_data_memory(struct dp_run_job *job,
                                              const struct dp_data_need *need);

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
