/*
 * run.h - one training run from what it is asked for to its report, and the pieces of it that
 * programs call one by one (runtime/lockstep.h).
 */
#ifndef DP_RUNTIME_RUN_RUN_H
#define DP_RUNTIME_RUN_RUN_H

#include "base/status.h"

struct dp_run_options;
struct dp_step_result;
struct dp_stop;
struct dp_training;
struct dp_world;

/* All of it: what main() calls. `stop`: where requests to stop arrive; or NULL. */
DP_CHECKED dp_status dp_run_main(const struct dp_run_options *options, struct dp_world *world,
                                 struct dp_stop *stop);

/* A piece: all is set up, and steps begin. Local; rank 0 alone may fail, of its files. */
DP_CHECKED dp_status dp_run_start(struct dp_training *run);

/* A piece: one step that all ranks take together, and what it says about the run's outcome.
 * Collective. */
DP_CHECKED dp_status dp_run_step(struct dp_training *run, struct dp_step_result *result);

#endif
