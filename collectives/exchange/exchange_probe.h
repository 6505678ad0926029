/*
 * exchange_probe.h - one bucket of an exchange at a time, to time what a step does with it.
 * Gradients are written and shared, and their sums read. All ranks call functions that can fail in
 * a job (dp_exchange_call).
 */
#ifndef DP_COLLECTIVES_EXCHANGE_EXCHANGE_PROBE_H
#define DP_COLLECTIVES_EXCHANGE_EXCHANGE_PROBE_H

#include "collectives/core/bucket.h"
#include "collectives/strategies/cost.h"

struct dp_exchange;

/* Whether gradients are only on a device. Else probes write them in place, at
 * dp_exchange_host_gradient(). Local. */
bool dp_exchange_probe_on_device(const struct dp_exchange *exchange);

/* Whether ranks publish weights, so that dp_exchange_follow() must be given weights. Local. */
bool dp_exchange_probe_publishes(const struct dp_exchange *exchange);

/* Where gradients are only on a device: sets bucket b to `values`, one for each element. */
DP_CHECKED dp_status dp_exchange_probe_write(struct dp_exchange *exchange, int b,
                                             const float *values);

/* Does all that a step does with bucket b: its sum and, where ranks publish weights, an update
 * (here a copy of as many bytes) and publishing. Done when it returns. */
DP_CHECKED dp_status dp_exchange_probe_share(struct dp_exchange *exchange, int b);

/* Sets *out to the bucket's sum as all ranks get it: weights, where these are published and as wide
 * as gradients. If it is only on a device it is copied to `values`, one for each element. */
DP_CHECKED dp_status dp_exchange_probe_read(struct dp_exchange *exchange, int b, float *values,
                                            const float **out);

/* The range of dp_exchange_probe_read()'s elements that are sums. Local. */
struct dp_range dp_exchange_probe_summed(const struct dp_exchange *exchange, int b);

/* The barrier of the strategy that sums the tail. */
DP_CHECKED dp_status dp_exchange_probe_barrier(struct dp_exchange *exchange);

/* Predicts the seconds of the sum of bucket b. NaN: no prediction. There is none for published
 * weights, or for gradients on a device, since no curve covers their copies. Local. */
double dp_exchange_probe_predict(const struct dp_exchange *exchange, int b,
                                 const struct dp_cost *cost);

#endif
