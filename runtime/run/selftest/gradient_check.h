/*
 * gradient_check.h - the gradient of each tensor against finite differences of the loss.
 *
 * Two directions for each tensor, in which all else stays as it is: along its gradient, each
 * element weighted differently, which sees wrong values of any size; and DP_GRADIENT_SAMPLE
 * elements drawn at random, which also sees elements whose gradient is missing. The loss is
 * computed by device ref, whose sums are doubles.
 */
#ifndef DP_RUNTIME_RUN_SELFTEST_GRADIENT_CHECK_H
#define DP_RUNTIME_RUN_SELFTEST_GRADIENT_CHECK_H

#include "runtime/run/selftest/selftest_lines.h"

enum { DP_GRADIENT_SAMPLE = 64 };

/* How many of `count` tensors are checked where one takes `one_s` seconds: as many as a minute has
 * room for, at least one. */
int dp_gradient_check_count(double one_s, int count);

/* Rank 0: a line for each tensor that there is time for, evenly over the depth, and how many those
 * are, if not all. Errors: those of the device. */
DP_CHECKED dp_status dp_gradient_check(struct dp_selftest *selftest, size_t rows);

#endif
