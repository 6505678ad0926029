/*
 * exchange_calls.h - what the ranks of an exchange do together besides buckets. Collective unless
 * marked otherwise. Each call is a job of the exchange's engine, done when it returns.
 */
#ifndef DP_COLLECTIVES_EXCHANGE_EXCHANGE_CALLS_H
#define DP_COLLECTIVES_EXCHANGE_EXCHANGE_CALLS_H

#include <stddef.h>

#include "base/status.h"
#include "collectives/core/engine.h"

struct dp_exchange;

/* Sums `data` [count], an array of the device, over all ranks, in place, anywhere in a step: for
 * synchronised batch norm. Errors: DP_ERR_INTERNAL where count is more than the configuration's
 * scratch_count. */
DP_CHECKED dp_status dp_exchange_sum(struct dp_exchange *exchange, float *data, size_t count);

/* The same for an array of the host. */
DP_CHECKED dp_status dp_exchange_sum_host(struct dp_exchange *exchange, float *data, size_t count);

/* The mean of an array [trained] of the device, in flat order, over all ranks, in place: the same
 * bits on all. Call it between steps, where every rank has the whole array; uses the gradient's
 * memory. */
DP_CHECKED dp_status dp_exchange_mean(struct dp_exchange *exchange, float *data);

/* Collects optimizer state, all on the host: each rank has its part in `owned` [flat->owned].
 * `whole` [trained] gets all of it in flat order; NULL on ranks that do not need it. Call it
 * between steps; uses the gradient's memory. */
DP_CHECKED dp_status dp_exchange_collect(struct dp_exchange *exchange, const float *owned,
                                         float *whole);

/* Gathers `bytes` of every rank, for agreement and reports, while no bucket is in flight. */
DP_CHECKED dp_status dp_exchange_gather(struct dp_exchange *exchange, const void *mine,
                                        size_t bytes, void *all);

/* Sends `data` of rank `root`, of any length, to all ranks, while no bucket is in flight. */
DP_CHECKED dp_status dp_exchange_broadcast(struct dp_exchange *exchange, void *data, size_t bytes,
                                           int root);

/* As dp_group_agree. Call it between steps. */
DP_CHECKED dp_status dp_exchange_agree(struct dp_exchange *exchange, dp_status mine);

/* Returns when all ranks have called it; sleeps while it waits. Call it between steps. */
DP_CHECKED dp_status dp_exchange_barrier(struct dp_exchange *exchange);

/* Runs a job of the caller's, which may use the group; collective if the job is. */
DP_CHECKED dp_status dp_exchange_call(struct dp_exchange *exchange,
                                      dp_status (*run)(void *arg, int index), void *arg, int index);

/* Work beside the jobs, on other groups, and the request for a call of it: as
 * dp_engine_set_errand(), dp_engine_poke(). Local; the second is callable from any thread. */
void dp_exchange_set_errand(struct dp_exchange *exchange, struct dp_errand errand);
void dp_exchange_poke(struct dp_exchange *exchange);

#endif
