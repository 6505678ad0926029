/*
 * stats.h - what is made of measured times and of errors.
 */
#ifndef DP_LAUNCH_BENCH_STATS_H
#define DP_LAUNCH_BENCH_STATS_H

#include <stddef.h>

/* Sorts; quantiles want sorted values. */
void dp_stats_sort(double *values, size_t count);

/* Of sorted values, at least one: the middle one, or the mean of the middle two. */
double dp_stats_median(const double *sorted, size_t count);

/* Of fewer values no range of the median is known. */
enum { DP_STATS_FEWEST = 3 };

struct dp_stats_range {
    double low, high;
};

/* Of sorted values: between which two of them the median lies that many more values would have,
 * whatever their distribution, in 19 of 20 cases; of 3 to 5 values between the least and the
 * largest, in 3 of 4 cases and more. NaN of fewer. Conover, "Practical Nonparametric Statistics",
 * 3rd ed., section 3.2. */
struct dp_stats_range dp_stats_median_range(const double *sorted, size_t count);

/* Of sorted values, at least one: the smallest that at least `part` (0 to 1) of them do not exceed
 * ("nearest rank"). With fewer than 100 values the 99th percentile is the largest. */
double dp_stats_quantile(const double *sorted, size_t count, double part);

/* more[i] - less[i], sorted, into `out`: what two things measured in turns differ by. The machine's
 * speed, which both of a pair have in common, may change by more between pairs. */
void dp_stats_differences(const double *less, const double *more, size_t count, double *out);

/* GB/s (1e9) of an allreduce of `bytes` in `us`: bytes over time, and times 2 (p-1)/p, which can be
 * compared with what a link carries whatever the number of ranks (nccl-tests, PERFORMANCE.md). */
double dp_stats_algbw(double bytes, double us);
double dp_stats_busbw(double bytes, double us, int ranks);

/* |found - exact| in units in the last place (float32) of `magnitude`, the sum of the magnitudes of
 * what was added: cancellation is not the fault of who adds. At least the smallest normal number is
 * taken for the magnitude. */
double dp_stats_ulps(float found, double exact, double magnitude);

/* sqrt(error2 / exact2), of sums of squares; 0 when both are 0. */
double dp_stats_relative(double error2, double exact2);

#endif
