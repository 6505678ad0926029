/*
 * verdict.h - the parts of a verdict that are about a model.
 */
#ifndef DP_LAUNCH_BENCH_VERDICT_H
#define DP_LAUNCH_BENCH_VERDICT_H

#include "launch/bench/rows.h"
#include "launch/bench/text.h"

/* Writes a clause about how much sharing makes a step longer, the least first. */
void dp_bench_say_exposed(struct dp_bench_text *text, const struct dp_bench_rows *rows);

/* Writes which way adds least to a step: "ring makes ..." or "ring is hidden ...". */
void dp_bench_say_least(struct dp_bench_text *text, const struct dp_bench_row *best);

/* --train: writes which ways diverged, and what compressors cost in accuracy; a clause each. */
void dp_bench_say_accuracy(struct dp_bench_text *text, const struct dp_bench_rows *rows);

#endif
