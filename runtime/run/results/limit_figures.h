/*
 * limit_figures.h - what this machine allows, in a run: measured after the first steps, and put
 * next to what was achieved in the summary.
 */
#ifndef DP_RUNTIME_RUN_RESULTS_LIMIT_FIGURES_H
#define DP_RUNTIME_RUN_RESULTS_LIMIT_FIGURES_H

#include "runtime/report/summary.h"
#include "runtime/run/training.h"

/* Collective, between steps; its time belongs to no step. */
DP_CHECKED dp_status dp_run_measure_limits(struct dp_training *run);

/* The same after the last step: the machine's rates are the better ones of both. */
DP_CHECKED dp_status dp_run_measure_limits_again(struct dp_training *run);

/* Memory of this rank that measuring takes for a while: of the machine, or on rank 0 of one rank
 * alone. */
size_t dp_run_measuring_bytes(const struct dp_run_job *job, const struct dp_figures *figures);

/* Sets what a rank knows of its own limits. Local. */
void dp_run_describe_limits(const struct dp_trainer *trainer, const struct dp_limits *limits,
                            struct dp_run_rank *rank);

/* Rank 0: sets limits, mfu and layers of a summary whose ranks are filled in. Errors:
 * DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_run_summarize_limits(const struct dp_figures *figures,
                                             struct dp_run_summary *summary);

#endif
