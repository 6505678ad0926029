/*
 * exchange_probe.h - one bucket of an exchange at a time, for those who time what a step does with
 * it. Gradients are written, shared, and their sums read. Functions that can fail are called in a
 * job (dp_exchange_call) by all ranks.
 */
#ifndef DP_COLLECTIVES_EXCHANGE_EXCHANGE_PROBE_H
#define DP_COLLECTIVES_EXCHANGE_EXCHANGE_PROBE_H

#include "collectives/core/bucket.h"
#include "collectives/strategies/cost.h"

struct dp_exchange;

/* Whether gradients are a device's alone; else probes write them in place, where
 * dp_exchange_host_gradient() is. Local. */
bool dp_exchange_probe_on_device(const struct dp_exchange *exchange);

/* Whether ranks publish weights, so that dp_exchange_follow() must be given some. Local. */
bool dp_exchange_probe_publishes(const struct dp_exchange *exchange);

/* Where gradients are a device's alone: bucket b's becomes `values`, one for each element. */
DP_CHECKED dp_status dp_exchange_probe_write(struct dp_exchange *exchange, int b,
                                             const float *values);

/* All that a step does with bucket b: its sum, and where ranks publish weights, an update, here a
 * copy of as many bytes, and publishing. Done when it returns. */
DP_CHECKED dp_status dp_exchange_probe_share(struct dp_exchange *exchange, int b);

/* *out is the bucket's sum, as all ranks get it: of weights, where they are published and as wide
 * as gradients. Where that is a device's alone it is copied to `room`, one for each element. */
DP_CHECKED dp_status dp_exchange_probe_read(struct dp_exchange *exchange, int b, float *room,
                                            const float **out);

/* Of the elements that dp_exchange_probe_read() gives, those that are sums. Local. */
struct dp_range dp_exchange_probe_summed(const struct dp_exchange *exchange, int b);

/* The barrier of whatever sums the tail. */
DP_CHECKED dp_status dp_exchange_probe_barrier(struct dp_exchange *exchange);

/* Seconds that the sum of bucket b should take. NaN: no prediction; nor is there one of weights
 * that are published, or of gradients on a device, whose copies are in no curve. Local. */
double dp_exchange_probe_predict(const struct dp_exchange *exchange, int b,
                                 const struct dp_cost *cost);

#endif
