/*
 * run_plan.h - the communication plan of a run: pinned, recalled, noted.
 */
#ifndef DP_RUNTIME_RUN_RUN_PLAN_H
#define DP_RUNTIME_RUN_RUN_PLAN_H

#include "runtime/run/training.h"

/*
 * The communication plan. Rank 0 reads the file of --plan, and checks that it can be used
 * here; all ranks take it over. Else, where `auto` has to choose, the cache is asked. With the
 * trainer made, a plan for another model is refused, and what was measured goes into the cache.
 *
 * Errors: DP_ERR_NOINPUT, DP_ERR_DATA, DP_ERR_CONFIG, DP_ERR_UNAVAILABLE, DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_run_find_plan(struct dp_training *run); /* rank 0 */
DP_CHECKED dp_status dp_run_share_plan(struct dp_training *run);
DP_CHECKED dp_status dp_run_recall_plan(struct dp_training *run);
DP_CHECKED dp_status dp_run_note_plan(struct dp_training *run);

/* Whether the strategy of a plan, made for plan->ranks and nodes, can run here with the options of
 * this run; `from` is for messages. Rank 0. */
DP_CHECKED dp_status dp_run_check_plan(const struct dp_training *run, const struct dp_plan *plan,
                                       const char *from);

/* Rank 0: config.yaml, with the plan as far as it is decided. Errors: DP_ERR_WRITE,
 * DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_run_write_config(struct dp_training *run);

#endif
