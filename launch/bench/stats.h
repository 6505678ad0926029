/*
 * stats.h - statistics of measured times and of errors.
 */
#ifndef DP_LAUNCH_BENCH_STATS_H
#define DP_LAUNCH_BENCH_STATS_H

#include <stddef.h>

/* With fewer values there is no range of the median. */
enum { DP_STATS_FEWEST = 3 };

struct dp_stats_range {
    double low, high;
};

/* Of sorted values: the two between which the true median lies, whatever the distribution, in 19 of
 * 20 cases; with 3 to 5 values the least and the largest, in 3 of 4 cases or more. NaN with fewer.
 * Conover, "Practical Nonparametric Statistics", 3rd ed., section 3.2. */
struct dp_stats_range dp_stats_median_range(const double *sorted, size_t count);

/* Writes more[i] - less[i], sorted, into `out`: the differences of two things measured in turns.
 * The machine's speed affects both of a pair alike, but may change by more than that between
 * pairs. */
void dp_stats_differences(const double *less, const double *more, size_t count, double *out);

/* GB/s (1e9) of an allreduce of `bytes` in `us`: bytes over time, and that times 2 (p-1)/p, which
 * can be compared with a link's bandwidth for any number of ranks (nccl-tests, PERFORMANCE.md). */
double dp_stats_algbw(double bytes, double us);
double dp_stats_busbw(double bytes, double us, int ranks);

/* |found - exact| in units in the last place (float32) of `magnitude`, the sum of the magnitudes of
 * what was added, since cancellation is not an error of the sum. The magnitude is at least the
 * smallest normal number. */
double dp_stats_ulps(float found, double exact, double magnitude);

/* sqrt(error2 / exact2), of two sums of squares; 0 when both are 0. */
double dp_stats_relative(double error2, double exact2);

#endif
