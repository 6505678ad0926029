/*
 * eval_serve.h - the run of a rank that evaluates for the others (eval_rank.h).
 */
#ifndef DP_RUNTIME_RUN_ROLES_EVAL_SERVE_H
#define DP_RUNTIME_RUN_ROLES_EVAL_SERVE_H

#include "runtime/run/job.h"
#include "runtime/trainer/evaluator.h"

/* Its whole run, once all is set up: evaluates what comes until it is told to end; *end is the
 * status that it is to end with. Errors: those of messages and of the evaluator. */
DP_CHECKED dp_status dp_eval_serve(struct dp_run_job *job, struct dp_evaluator *evaluator,
                                   dp_status *end);

#endif
