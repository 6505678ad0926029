/*
 * verdict_losses.h - what a step loses time to, and what could be done about each: the verdict is
 * the largest of them.
 */
#ifndef DP_RUNTIME_REPORT_VERDICT_LOSSES_H
#define DP_RUNTIME_REPORT_VERDICT_LOSSES_H

#include "runtime/report/step_terms.h"

#define DP_LOSS_LEAST 0.1 /* of the step: a smaller one bounds nothing */

/* A loss of time, and what can be done about it. */
struct dp_loss {
    const char *bound;
    double ms;
    double step_ms; /* predicted with the action; NaN: not known */
    double batch;   /* then, as a multiple of the present one */
    bool alone;     /* it is computed from what one rank alone does */
    char evidence[256], action[192];
    char how[200]; /* how step_ms is computed, for dp_verdict_explain() */
};

enum { DP_LOSSES = 6 };

/* All of them, of a summary that has steady steps; some may be 0 ms. */
void dp_losses_find(const struct dp_run_summary *summary, const struct dp_step_terms *terms,
                    struct dp_loss losses[DP_LOSSES]);

#endif
