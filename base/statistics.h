/*
 * statistics.h - sorting, medians and quantiles of repeated measurements.
 */
#ifndef DP_BASE_STATISTICS_H
#define DP_BASE_STATISTICS_H

#include <stddef.h>

/* Sorts in ascending order. The functions below need sorted values, at least one. */
void dp_sort(double *values, size_t count);

/* The middle value, or the mean of the middle two. */
double dp_median(const double *sorted, size_t count);

/* The smallest value that at least `part` (0 to 1) of the values do not exceed ("nearest rank").
 * With fewer than 100 values the 99th percentile is the largest. */
double dp_quantile(const double *sorted, size_t count, double part);

#endif
