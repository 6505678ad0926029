/*
 * verdict.h - the parts of a verdict that are about a model.
 */
#ifndef DP_LAUNCH_BENCH_VERDICT_H
#define DP_LAUNCH_BENCH_VERDICT_H

#include "launch/bench/rows.h"
#include "launch/bench/text.h"

/* What is exposed of a step, the least first: a clause. */
void dp_bench_say_exposed(struct dp_bench_text *text, const struct dp_bench_rows *rows);

/* That one of the ways adds least to a step: "ring makes ..." or "ring is hidden ...". */
void dp_bench_say_least(struct dp_bench_text *text, const struct dp_bench_row *best);

/* --train: which ways diverged, and what compressors cost in accuracy; a clause each. */
void dp_bench_say_accuracy(struct dp_bench_text *text, const struct dp_bench_rows *rows);

#endif
