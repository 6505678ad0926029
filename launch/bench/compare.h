/*
 * compare.h - which rows are better, as far as measurements show.
 */
#ifndef DP_LAUNCH_BENCH_COMPARE_H
#define DP_LAUNCH_BENCH_COMPARE_H

#include "launch/bench/rows.h"

/* Times of calls that differ by less than this count as equal. */
#define DP_BENCH_ALIKE 1.03

/* Whether a row is compared with others, with or without compression: it is of one size, or of all
 * buckets, and its sums are right. */
bool dp_bench_counts(const struct dp_bench_row *row, bool plain);

/* The time that decides, in us: for a model how much longer its step gets, else the time of a
 * call. */
double dp_bench_time(const struct dp_bench_row *row);

/* Whether `a` takes less time than `b`, by more than their measurements vary. Sharing that is
 * hidden counts as no time. */
bool dp_bench_less(const struct dp_bench_row *a, const struct dp_bench_row *b);

/* For a model: whether steps with sharing take no longer than steps without, as far as the
 * differences show. */
bool dp_bench_hidden(const struct dp_bench_row *row);

/* The fastest row of that size, with or without compression; NULL: none. */
const struct dp_bench_row *dp_bench_fastest(const struct dp_bench_rows *rows, size_t size,
                                            bool plain);

/* The row of the same way to share at another size; NULL: none. */
const struct dp_bench_row *dp_bench_same_way(const struct dp_bench_rows *rows,
                                             const struct dp_bench_row *way, size_t size);

/* The next size above `size` of rows without compression; 0: none. */
size_t dp_bench_next_size(const struct dp_bench_rows *rows, size_t size);

/* Goes up from `size` while no other way is measurably faster than `way`, and returns the row of
 * the last such size; NULL: there is none. */
const struct dp_bench_row *dp_bench_stretch(const struct dp_bench_rows *rows,
                                            const struct dp_bench_row *way, size_t size);

#endif
