/*
 * compare.h - which of the rows is better, as far as was measured: what a verdict is made of.
 */
#ifndef DP_LAUNCH_BENCH_COMPARE_H
#define DP_LAUNCH_BENCH_COMPARE_H

#include "launch/bench/rows.h"

/* Times of calls that are closer than this are called equal. */
#define DP_BENCH_ALIKE 1.03

/* Whether a row is compared with others, with or without compression: that of one size, or of all
 * buckets; whose sums are right. */
bool dp_bench_counts(const struct dp_bench_row *row, bool plain);

/* What decides, in us: of a model the time that its step gets longer, else the time of a call. */
double dp_bench_time(const struct dp_bench_row *row);

/* Whether `a` takes less time than `b`, by more than what was measured of them scatters. Sharing
 * that is hidden takes no time. */
bool dp_bench_less(const struct dp_bench_row *a, const struct dp_bench_row *b);

/* Of a model: whether steps with sharing take no longer than those without, as far as their
 * differences tell. */
bool dp_bench_hidden(const struct dp_bench_row *row);

/* The fastest row of that size, with or without compression; NULL: none. */
const struct dp_bench_row *dp_bench_fastest(const struct dp_bench_rows *rows, size_t size,
                                            bool plain);

/* The row of the same way at another size; NULL: none. */
const struct dp_bench_row *dp_bench_same_way(const struct dp_bench_rows *rows,
                                             const struct dp_bench_row *way, size_t size);

/* The next size above `size` of rows without compression; 0: none. */
size_t dp_bench_next_size(const struct dp_bench_rows *rows, size_t size);

/* The row at the last of the sizes from `size` on, one after another, at which no way is measurably
 * faster than `way`; NULL: not at `size`. */
const struct dp_bench_row *dp_bench_stretch(const struct dp_bench_rows *rows,
                                            const struct dp_bench_row *way, size_t size);

#endif
