/*
 * setup.h - everything before the first step.
 */
#ifndef DP_RUNTIME_RUN_SETUP_H
#define DP_RUNTIME_RUN_SETUP_H

#include "runtime/run/training.h"

/* A run of which nothing is set up. All is borrowed. */
void dp_run_init(struct dp_training *run, const struct dp_run_options *options,
                 struct dp_world *world);

/* Gives the resolved text of the configuration to all ranks; job->config, model and device.
 * Collective. */
DP_CHECKED dp_status dp_run_configure(struct dp_run_job *job);

/* After dp_run_configure() what trainers are made of: places, data, numbers of steps, and what is
 * known of plan, checkpoint and algorithms. Where nothing is left to do, job->resume.finished.
 * Collective. */
DP_CHECKED dp_status dp_run_prepare(struct dp_training *run);

/* After that job->trainer, with weights of zero. Collective. */
DP_CHECKED dp_status dp_run_make_trainer(struct dp_run_job *job);

/* All that comes between dp_run_configure() and the first step, these two included. steps: what is
 * done in asynchronous training, but for the context; NULL where there is none. Collective. */
DP_CHECKED dp_status dp_run_setup(struct dp_training *run, const struct dp_async_hooks *steps);
void dp_run_teardown(struct dp_training *run);

#endif
