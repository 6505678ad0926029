/*
 * costs.h - `ddp_bench --costs FILE`: what strategies would take on other ranks and links, by the
 * formulas of collectives/strategies/cost.h. Nothing runs, so any number of ranks may be asked for.
 *
 * FILE, "-" for stdin, is a JSON object:
 *
 *   curves      for each name of dp_cost_curve() {bytes: [...], seconds: [...]}, rising, at most
 *               DP_CURVE_POINTS; those that are left out have no points
 *   flags_s     a barrier in shared memory; 0 without it
 *   groups      [{ranks, node_of}]: so many ranks, each node_of of them on a node
 *   bytes       sizes of sums; or
 *   model       path of a model.cfg, whose buckets are summed with its comm.compressor; with
 *               set: ["comm.bucket_mb=1", ...] over what it says, and deferred: whether parts of
 *               large tensors are deferred (bucket.h)
 *   strategies  names; without it: those that `auto` would compare in each group
 *
 * It prints {alpha_us, beta_ns, gamma_ns, rows: [{ranks, node_of, strategy, seconds: [...]}]}: the
 * line through the wire's curve, and for each size, or bucket, seconds, null where there is no
 * prediction. Those of a compressor are its messages' alone. With a model also buckets: [{bytes,
 * tensor, deferred}]: tensor is the name of the one whose gradient is the last to be ready, absent
 * in the tail; and in each row encodes and decodes, to which coding of a compressor is proportional
 * (struct dp_coding_work).
 */
#ifndef DP_LAUNCH_BENCH_COSTS_H
#define DP_LAUNCH_BENCH_COSTS_H

#include "base/status.h"

/* Errors: DP_ERR_NOINPUT (no such file), DP_ERR_DATA, DP_ERR_CONFIG (unknown strategy; in the
 * model), DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_bench_costs(const char *path);

#endif
