/*
 * algo_tuning.h - the algorithms that a device's libraries compute with, chosen by measuring: alike
 * on all ranks, and in every run that goes on or is repeated.
 *
 * With device.tune a stream that prepares takes the known algorithm for a shape, and measures where
 * none is known (kernels/algo_choices.h). Known at the start are, in order of precedence, those of
 * --plan, of the checkpoint that the run goes on from, and of the cache, choices.json
 * (base/files/cache.h); rank 0 reads them and sends them to all ranks. Of ranks that share
 * processors only the first of each host measures: the others would be in its way, and as slow as
 * they are many. When all have prepared, they agree (runtime/trainer/prepare/algo_agreement.h), and
 * from then on nothing is measured; a rank that evaluates for them takes theirs. Rank 0 adds what
 * is new to the cache, to config.yaml and to checkpoints.
 *
 *   device.tune  measures
 *   on           always
 *   off          never: the libraries' first proposals are taken, or those that we prefer
 *   auto         with --plan, or a checkpoint: where that run has; else where what was measured can
 *                be kept, and without train.lanes: their bits must not depend on a cache
 */
#ifndef DP_RUNTIME_RUN_PLAN_ALGO_TUNING_H
#define DP_RUNTIME_RUN_PLAN_ALGO_TUNING_H

#include "base/status.h"

struct dp_run_job;

/* Before there is a trainer: job->algo_choices, with all that is known. Collective.
 * Errors: those of reading what was asked for (--plan, a checkpoint); DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_run_find_choices(struct dp_run_job *job);

/* With the trainers made: a rank that evaluates for them (train.eval_rank) takes the choices that
 * they have agreed on, in place of its own. Collective over all ranks. Errors, with which all
 * return: DP_ERR_NOMEM, DP_ERR_COMM. */
DP_CHECKED dp_status dp_run_share_choices(struct dp_run_job *job);

/* With the trainer made, rank 0: what is new goes into the cache. */
void dp_run_keep_choices(struct dp_run_job *job);

#endif
