/*
 * sum_check.h - every strategy and every compressor that can run here, on the model's own buckets.
 *
 * A strategy must give the exact sum, where it keeps the order of the tree (strategy.h) also of
 * numbers whose sum depends on the order. After a compressor all ranks must have the same bits;
 * what its residuals keep and what was sent must add up to what came in, or, without residuals, the
 * sum must be as near as a code of 8 bits can be.
 */
#ifndef DP_RUNTIME_RUN_SELFTEST_SUM_CHECK_H
#define DP_RUNTIME_RUN_SELFTEST_SUM_CHECK_H

#include "runtime/run/selftest/selftest_lines.h"

/* A line for each. Collective. Errors: in a job of several ranks those of its groups. */
DP_CHECKED dp_status dp_sum_check(struct dp_selftest *selftest);

#endif
