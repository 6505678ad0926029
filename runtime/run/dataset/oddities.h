/*
 * oddities.h - what is odd about a data set, and does not keep it from being used.
 */
#ifndef DP_RUNTIME_RUN_DATASET_ODDITIES_H
#define DP_RUNTIME_RUN_DATASET_ODDITIES_H

#include "runtime/data/samples.h"
#include "runtime/run/job.h"

/* Warns of it, a line each; rank 0 calls it when the set is loaded, or can be read. Labels are
 * looked at where they are in memory. */
void dp_run_tell_oddities(const struct dp_run_job *job, const struct dp_samples_info *info);

#endif
