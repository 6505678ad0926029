/*
 * place.h - where the ranks of a run live, and the cores that each of them has.
 */
#ifndef DP_RUNTIME_RUN_PLACE_H
#define DP_RUNTIME_RUN_PLACE_H

#include "runtime/run/job.h"

/* This rank's cores, and how many threads the ranks that share them leave to it: job->machine,
 * places, threads. Warns where these cores are of one socket and its GPU hangs at another, so ranks
 * have their GPUs by then. Where one rank fails, all do. Collective. */
DP_CHECKED dp_status dp_run_place(struct dp_run_job *job);

/* Of the threads that a rank may have: as many as --threads or OMP_NUM_THREADS says, where these
 * are fewer. most: hardware threads of its cpuset. tells: it warns of what is more. */
int dp_run_threads(const struct dp_run_options *options, int threads, int most, bool tells);

#endif
