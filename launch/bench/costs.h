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
 *   bytes       sizes of sums
 *   strategies  names; without it: those that `auto` would compare in each group
 *
 * It prints {alpha_us, beta_ns, gamma_ns, rows: [{ranks, node_of, strategy, seconds: [...]}]}: the
 * line through the wire's curve, and for each size seconds, null where there is no prediction.
 */
#ifndef DP_LAUNCH_BENCH_COSTS_H
#define DP_LAUNCH_BENCH_COSTS_H

#include "base/status.h"

/* Errors: DP_ERR_NOINPUT (no such file), DP_ERR_DATA, DP_ERR_CONFIG (unknown strategy),
 * DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_bench_costs(const char *path);

#endif
