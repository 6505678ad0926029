/*
 * evaluate.h - ddp_train --evaluate RUN: the weights of a checkpoint over the test rows.
 */
#ifndef DP_RUNTIME_RUN_USE_EVALUATE_H
#define DP_RUNTIME_RUN_USE_EVALUATE_H

#include "base/status.h"

struct dp_run_options;
struct dp_world;

/*
 * Sets up the model of options->evaluate on all ranks, evaluates it as training does, and prints
 * what it comes to, on rank 0: a line, or with options->json an object. On as many ranks as trained
 * it, or with train.lanes, it has the bits of training's own evaluation after that step. Nothing is
 * written. Collective; what befalls one rank alone ends the others.
 *
 * Errors: DP_ERR_NOINPUT, DP_ERR_DATA, DP_ERR_CONFIG (a setting that would be another model's, or
 * other classes), and those of dp_run_setup() and of an evaluation.
 */
DP_CHECKED dp_status dp_run_evaluate_saved(const struct dp_run_options *options,
                                           struct dp_world *world);

#endif
