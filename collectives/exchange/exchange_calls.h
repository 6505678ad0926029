/*
 * exchange_calls.h - what the ranks of an exchange do together beside buckets. Collective, unless
 * it says otherwise; each call is a job of the exchange's engine, done when it returns.
 */
#ifndef DP_COLLECTIVES_EXCHANGE_EXCHANGE_CALLS_H
#define DP_COLLECTIVES_EXCHANGE_EXCHANGE_CALLS_H

#include <stddef.h>

#include "base/status.h"

struct dp_exchange;

/* Sums [count] over all ranks, in place, anywhere in a step: synchronised batch norm. An array of
 * the device, as that of dp_exchange_mean. Errors: DP_ERR_INTERNAL where count is more than the
 * configuration's scratch_count. */
DP_CHECKED dp_status dp_exchange_sum(struct dp_exchange *exchange, float *data, size_t count);

/* The same of an array of the host. */
DP_CHECKED dp_status dp_exchange_sum_host(struct dp_exchange *exchange, float *data, size_t count);

/* The mean of an array [trained] in flat order over all ranks, in place: the same bits everywhere.
 * Between steps, where every rank has all of it; uses the gradient's memory. */
DP_CHECKED dp_status dp_exchange_mean(struct dp_exchange *exchange, float *data);

/* Optimizer state `owned` [flat->owned], of which each rank has its part, whole in flat order, all
 * on the host: `whole` [trained], or NULL on ranks that do not want it. Between steps; uses the
 * gradient's memory. */
DP_CHECKED dp_status dp_exchange_collect(struct dp_exchange *exchange, const float *owned,
                                         float *whole);

/* Gathers `bytes` of every rank: for agreement and reports, while no bucket is on its way. */
DP_CHECKED dp_status dp_exchange_gather(struct dp_exchange *exchange, const void *mine,
                                        size_t bytes, void *all);

/* `data` of rank `root` to all, of any length, while no bucket is on its way. */
DP_CHECKED dp_status dp_exchange_broadcast(struct dp_exchange *exchange, void *data, size_t bytes,
                                           int root);

/* As dp_group_agree, between steps. */
DP_CHECKED dp_status dp_exchange_agree(struct dp_exchange *exchange, dp_status mine);

/* Returns when all ranks have called it; sleeps while it waits. Between steps. */
DP_CHECKED dp_status dp_exchange_barrier(struct dp_exchange *exchange);

/* Runs a job of the caller's, which may use the group; collective where that is. */
DP_CHECKED dp_status dp_exchange_call(struct dp_exchange *exchange,
                                      dp_status (*run)(void *arg, int index), void *arg, int index);

#endif
