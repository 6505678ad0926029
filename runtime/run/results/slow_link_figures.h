/*
 * slow_link_figures.h - what a link between hosts costs that is slower than the others.
 */
#ifndef DP_RUNTIME_RUN_RESULTS_SLOW_LINK_FIGURES_H
#define DP_RUNTIME_RUN_RESULTS_SLOW_LINK_FIGURES_H

#include "runtime/report/summary.h"
#include "runtime/run/training.h"

enum { DP_SLOW_LINK_TEXT = 192 };

/* Rank 0, with the parts of all ranks' steps in the summary: names the link, and says in one
 * warning what the run would make without it. `text`: for the name. */
void dp_slow_link_summarize(const struct dp_training *run, struct dp_run_summary *summary,
                            char text[DP_SLOW_LINK_TEXT]);

#endif
