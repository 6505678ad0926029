/*
 * run_plan.h - the communication plan of a run: pinned, recalled, noted.
 */
#ifndef DP_RUNTIME_RUN_PLAN_RUN_PLAN_H
#define DP_RUNTIME_RUN_PLAN_RUN_PLAN_H

#include "runtime/run/job.h"

/*
 * The communication plan. Rank 0 reads the file of --plan, and checks that it can be used here; all
 * ranks take it over. Else, where `auto` has to choose, rank 0 looks into the cache. With the
 * trainer made, a plan for another model is refused, and what was measured goes into the cache.
 *
 * Errors: DP_ERR_NOINPUT, DP_ERR_DATA, DP_ERR_CONFIG, DP_ERR_UNAVAILABLE, DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_run_find_plan(struct dp_run_job *job); /* rank 0 */
DP_CHECKED dp_status dp_run_share_plan(struct dp_run_job *job);
DP_CHECKED dp_status dp_run_recall_plan(struct dp_run_job *job);
DP_CHECKED dp_status dp_run_note_plan(struct dp_run_job *job);

/* Whether the strategy of a plan, made for plan->ranks and nodes, can run here with the options of
 * this run; `from` is for messages. Rank 0. */
DP_CHECKED dp_status dp_run_check_plan(const struct dp_run_job *job, const struct dp_plan *plan,
                                       const char *from);

/* Keeps the configuration without the places where keys were set, for the report. Errors:
 * DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_run_keep_config(struct dp_run_job *job);

/* Rank 0: config.yaml, with the plan as far as it is decided. Errors: DP_ERR_WRITE,
 * DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_run_write_config(const struct dp_run_job *job);

#endif
