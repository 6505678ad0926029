/*
 * setup.h - everything before the first step.
 */
#ifndef DP_RUNTIME_RUN_SETUP_H
#define DP_RUNTIME_RUN_SETUP_H

#include "runtime/run/training.h"

/* Gives the resolved text of --config to all ranks; run->config. Collective. */
DP_CHECKED dp_status dp_run_configure(struct dp_training *run);

/* This rank's cores, and how many threads the ranks that share them leave to it: run->machine,
 * places, threads. Where one rank cannot, none can. Collective. */
DP_CHECKED dp_status dp_run_place(struct dp_training *run);

/* Everything before the first step. steps: what is done in asynchronous training, but for the
 * context; NULL where nothing is trained. Collective. */
DP_CHECKED dp_status dp_run_setup(struct dp_training *run, const struct dp_async_hooks *steps);
void dp_run_teardown(struct dp_training *run);

#endif
