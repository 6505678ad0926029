/*
 * place.h - where the ranks of a run live, and the cores that each of them has.
 */
#ifndef DP_RUNTIME_RUN_PLACE_H
#define DP_RUNTIME_RUN_PLACE_H

#include "runtime/run/job.h"

/* This rank's cores, and how many threads the ranks that share them leave to it: job->machine,
 * places, threads. Where one rank fails, all do. Collective. */
DP_CHECKED dp_status dp_run_place(struct dp_run_job *job);

/* Warns where this process is bound to one socket, and its GPU hangs at another. Local; after the
 * ranks have their GPUs. */
void dp_run_warn_of_far_gpu(const struct dp_run_job *job);

#endif
