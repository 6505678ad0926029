/*
 * exchange.h - gradients in, sums out: how the buckets of one group's gradient are shared.
 *
 * In a step: begin; `ready` for each tensor as backward finishes it, and for the tail. Then, for
 * each bucket in order: wait, update dp_exchange_mine(), publish; end. A bucket is submitted as
 * soon as its last tensor is ready, so that it is shared while backward continues.
 *
 * Deferred buckets (bucket.h), while dp_exchange_defer() is on, are submitted after the tail, in
 * the order in which forward needs them. Wait for them after `end`, and before the next step's
 * backward.
 *
 * What else ranks do together, mostly between steps, is in exchange_calls.h.
 */
#ifndef DP_COLLECTIVES_EXCHANGE_EXCHANGE_H
#define DP_COLLECTIVES_EXCHANGE_EXCHANGE_H

#include "collectives/core/bucket.h"
#include "collectives/exchange/bucket_times.h"
#include "collectives/exchange/exchange_config.h"
#include "kernels/flat.h"

struct dp_exchange;

/*
 * Collective. Needs flat->type. Sets flat->grad, flat->owned, and owned_at of the buckets. Sets
 * flat->weights where ranks publish weights to each other, else leaves it NULL. strategy_select.h
 * documents what `auto` chooses.
 *
 * Errors: DP_ERR_DISAGREE when ranks differ in strategy, plan, model or the configuration's items,
 * which is reported; those of dp_comm_create, dp_strategy_select, dp_bucket_plan_create,
 * dp_compression_create, dp_engine_create.
 */
DP_CHECKED dp_status dp_exchange_create(struct dp_group *group,
                                        const struct dp_exchange_config *config,
                                        struct dp_flat *flat, struct dp_exchange **out);
void dp_exchange_destroy(struct dp_exchange *exchange);

/* Sets the stream on which gradients are made and used, and the weights to update, if the exchange
 * did not allocate them; both are borrowed. Call it before the first step. */
void dp_exchange_follow(struct dp_exchange *exchange, struct dp_stream *stream, void *weights);

/* Sets when jobs run, which switches overlap on or off (between steps only); and returns it. */
void dp_exchange_set_run(struct dp_exchange *exchange, enum dp_run run);
enum dp_run dp_exchange_run(const struct dp_exchange *exchange);

/* ---- a step, in order ---- */

/* Whether deferred buckets, if any, are deferred from the next step on; the same on all ranks.
 * dp_exchange_defers(): whether this step defers any. */
void dp_exchange_defer(struct dp_exchange *exchange, bool on);
bool dp_exchange_defers(const struct dp_exchange *exchange);

/* alone: only the tail of this step's gradient is shared (train.local_steps). */
void dp_exchange_begin(struct dp_exchange *exchange, bool alone);

/* In this step, or the next, this rank's gradient of bucket b is copied to `copy` [its elements]
 * before it is shared. Only where gradients are made in the host's memory. */
void dp_exchange_keep(struct dp_exchange *exchange, int b, float *copy);

/* This rank's gradient of the tensor is final. Called from the last tensor to the first. */
DP_CHECKED dp_status dp_exchange_ready(struct dp_exchange *exchange, int tensor);

/* The tail is final. Called after all tensors. */
DP_CHECKED dp_status dp_exchange_ready_tail(struct dp_exchange *exchange);

/* Whether bucket b is shared after the tail, and may still be in flight when dp_exchange_end()
 * returns. */
bool dp_exchange_is_deferred(const struct dp_exchange *exchange, int b);

/* Waits for the sum of bucket b. */
DP_CHECKED dp_status dp_exchange_wait(struct dp_exchange *exchange, int b);

/* The part of bucket b that this rank updates. */
struct dp_range dp_exchange_mine(const struct dp_exchange *exchange, int b);

/* Starts to send the new weights of bucket b to all ranks. */
DP_CHECKED dp_status dp_exchange_publish(struct dp_exchange *exchange, int b);

/* Returns when all weights are on every rank. Every bucket but the tail must have been
 * published. */
DP_CHECKED dp_status dp_exchange_end(struct dp_exchange *exchange);

/* ---- queries; all local ---- */

struct dp_group *dp_exchange_group(const struct dp_exchange *exchange);

/* Where the gradient is cut into buckets. */
const struct dp_bucket_plan *dp_exchange_plan(const struct dp_exchange *exchange);

/* The gradient [total] in host memory. If a device makes gradients this is a copy, which is free
 * for other uses between steps; the host writes and reads its part of the tail here. */
float *dp_exchange_host_gradient(const struct dp_exchange *exchange);

/* NULL where gradients are not compressed. */
const struct dp_compression *dp_exchange_compression(const struct dp_exchange *exchange);

/* Whether gradients are shared: not with strategy none, where each rank keeps its own. */
bool dp_exchange_sums(const struct dp_exchange *exchange);

/* Whether GPUs sum the buckets of several ranks: then dp_exchange_wait() only queues what follows a
 * sum, but for the tail. */
bool dp_exchange_sums_on_gpus(const struct dp_exchange *exchange);

/* Whether sums keep the order of the tree over ranks (strategy.h). */
bool dp_exchange_keeps_order(const struct dp_exchange *exchange);

/* Whether ranks own parts, so that no rank has the whole sum or optimizer state. */
bool dp_exchange_is_sharded(const struct dp_exchange *exchange);

/* Whether all ranks use one copy of the weights: what one of them writes, all have. */
bool dp_exchange_has_one_copy(const struct dp_exchange *exchange);

/* Whether this rank must fill in initial weights (false for ranks that use another rank's copy).
 * After that every rank calls dp_exchange_barrier. */
bool dp_exchange_writes(const struct dp_exchange *exchange);

/* Whether a bucket is submitted when this tensor becomes ready, in any kind of step. */
bool dp_exchange_hands_over(const struct dp_exchange *exchange, int tensor);

/* How many of the tensor's elements, the first ones, are in a deferred bucket, if this step
 * defers. */
size_t dp_exchange_deferred_part(const struct dp_exchange *exchange, int tensor);

/* For people, and run.json: "shm", "zero1:over=shm"; the sharding alone, "zero1"; why `auto` chose
 * it, empty if the user did. */
const char *dp_exchange_label(const struct dp_exchange *exchange);
const char *dp_exchange_sharding(const struct dp_exchange *exchange);
const char *dp_exchange_why(const struct dp_exchange *exchange);

/* Whether `auto` timed strategies to choose. */
bool dp_exchange_measured(const struct dp_exchange *exchange);

/* A hash of the jobs submitted so far: equal on all ranks that submitted the same. */
uint64_t dp_exchange_order(const struct dp_exchange *exchange);

/* Time of bucket jobs since the start; only those that have been waited for. */
uint64_t dp_exchange_comm_ns(const struct dp_exchange *exchange);

/* When buckets were ready, sent and summed, borrowed; and the same from now on only. */
const struct dp_bucket_times *dp_exchange_times(const struct dp_exchange *exchange);
void dp_exchange_restart_times(struct dp_exchange *exchange);

/* Bytes that this rank sent in finished jobs. May be called while others run. */
uint64_t dp_exchange_wire(const struct dp_exchange *exchange);

/* Bytes that this rank sends in a step for all buckets but the tail: with the compressor, and an
 * estimate for the strategy alone. False: gradients are not compressed. */
bool dp_exchange_compressed_wire(const struct dp_exchange *exchange, uint64_t *with,
                                 uint64_t *without);

#endif
