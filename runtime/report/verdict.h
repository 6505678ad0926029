/*
 * verdict.h - what bounds a run, what to do about it, and what that would give.
 *
 * A step loses time to several things: waiting for batches, for gradients, for a rank that is late;
 * to ranks that share cores; to moving state; to calls that cost more than what they compute. The
 * largest loss bounds the run, if it is a tenth of the step or more; else computing does. What an
 * action would give follows from the terms of the step and from the limits of the machine, both in
 * run.json: dp_verdict_explain() prints all of it.
 */
#ifndef DP_RUNTIME_REPORT_VERDICT_H
#define DP_RUNTIME_REPORT_VERDICT_H

#include <stdio.h>

#include "runtime/report/summary.h"

struct dp_verdict {
    const char *bound; /* static: "input" ..., as verdict_detail.bound; NULL: too few steps */
    double share;      /* of the step that is lost; of `compute`: that computes */
    char evidence[256];
    char action[192]; /* something to type, or a sentence; empty: none is known */
    double rate;      /* samples/s that it would give; NaN: not known */
    double error;     /* of 1: by how much of it that may be off; NaN: not known */
    char text[768];   /* all of it in one line; empty: no rank reported */
};

/* " would give 6,900 samples/s (+74 %, give or take 8 %)", of what the summary has of a verdict;
 * how far it may be off where that is more than a twentieth; "" where nothing is predicted, or
 * where that may be off by more than itself. */
enum { DP_VERDICT_GAIN = 160 };
const char *dp_verdict_gain(const struct dp_run_summary *summary, char text[DP_VERDICT_GAIN]);

/* Judges a summary whose ranks, limits, layers and stragglers are filled in, as far as they are
 * known. */
void dp_verdict_find(const struct dp_run_summary *summary, struct dp_verdict *out);

/* Sets the summary's verdict and verdict_detail; its texts are those of `verdict`. */
void dp_verdict_put(const struct dp_verdict *verdict, struct dp_run_summary *summary);

/* Prints how it was found: the terms of the step, every loss with its action, and the verdict.
 * Where the summary is `printed` already, only a verdict that differs from its own. */
void dp_verdict_explain(const struct dp_run_summary *summary, bool printed, FILE *out);

#endif
