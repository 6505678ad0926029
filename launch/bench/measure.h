/*
 * measure.h - measures one way to share one bucket: how long it takes, and whether the sums are
 * right.
 */
#ifndef DP_LAUNCH_BENCH_MEASURE_H
#define DP_LAUNCH_BENCH_MEASURE_H

/* What is measured. */
#include "collectives/exchange/exchange.h"
#include "collectives/strategies/cost.h"
#include "launch/bench/options.h"
#include "launch/bench/rows.h"

/*
 * Measures bucket b of an open exchange and fills in the row's numbers, which are the same on every
 * rank, except `sent`.
 *
 * A call is what a step does with a bucket: the sharding's reduce, and where ranks publish weights,
 * an update (here a copy of the sum) and publish. Before every call the gradient is written again,
 * and all ranks pass a barrier; the call takes as long as on the slowest rank. The bucket's
 * gradient, and published weights, are overwritten. Where only a device has the gradients the
 * exchange must follow a stream (dp_exchange_follow); a call ends when the stream has the sum.
 * Collective.
 *
 *   cost  NULL: no prediction
 *
 * Errors: DP_ERR_NOMEM, those of the strategy.
 */
DP_CHECKED dp_status dp_bench_measure(struct dp_exchange *exchange, int b,
                                      const struct dp_bench_options *options,
                                      const struct dp_cost *cost, struct dp_bench_row *row);

/* The least time of an allreduce of `bytes` among ranks of one node: n (1 + 1/p + 2 (p-1)/p) bytes,
 * which the busiest rank must read and write, divided by the bandwidth of a copy of n bytes (which
 * reads n and writes n) that all ranks do at the same time, measured now. It is a bound only where
 * memory limits the time: a copy needs two arrays of n bytes per rank, a sum in place one. So there
 * are sizes at which the sum fits into the caches and the copy does not, and the sum is faster than
 * the bound. Collective; no engine may own the group. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_bench_bound(struct dp_group *group, size_t bytes,
                                    const struct dp_bench_options *options, double *us);

#endif
