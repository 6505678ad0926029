/*
 * input_figures.h - whether ranks that read for the others pay (data.input_ranks).
 */
#ifndef DP_RUNTIME_RUN_ROLES_INPUT_FIGURES_H
#define DP_RUNTIME_RUN_ROLES_INPUT_FIGURES_H

#include "runtime/report/summary.h"
#include "runtime/run/training.h"

enum { DP_INPUT_VERDICT = 200 };

/* Rank 0, with the parts of all ranks' steps in the summary: how long they waited for batches, and
 * how long the same work would take on the cores of a rank that trains. `text`: for the verdict. */
void dp_input_figures_summarize(const struct dp_training *run, struct dp_run_summary *summary,
                                char text[DP_INPUT_VERDICT]);

#endif
