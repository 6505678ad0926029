/*
 * exchange.h - gradients in, sums out: how the buckets of one group's gradient are shared.
 *
 * In a step: begin; `ready` for each tensor as backward finishes it, and for the tail; then wait
 * for each bucket in order, update what is mine, and publish it; end. A bucket whose last tensor
 * is ready is submitted at once, so that it is shared while backward goes on.
 *
 * While deferred buckets (bucket.h) are put off, they are submitted after the tail, the first that
 * forward needs first: they are waited for after `end`, and before the next `begin`'s backward.
 *
 * What else ranks do together, between steps mostly, is in exchange_calls.h.
 */
#ifndef DP_COLLECTIVES_EXCHANGE_EXCHANGE_H
#define DP_COLLECTIVES_EXCHANGE_EXCHANGE_H

#include "collectives/core/bucket.h"
#include "collectives/exchange/exchange_config.h"
#include "kernels/flat.h"

struct dp_exchange;

/*
 * Collective. Needs flat->type. Fills in flat->grad, flat->owned, and owned_at of the buckets; and
 * flat->weights where ranks publish weights to each other, else it stays NULL. What strategy `auto`
 * becomes is said in strategy_select.h.
 *
 * Errors: DP_ERR_DISAGREE when ranks differ in strategy, plan, model or the configuration's items,
 * which is reported; those of dp_comm_create, dp_strategy_select, dp_bucket_plan_create,
 * dp_compression_create, dp_engine_create.
 */
DP_CHECKED dp_status dp_exchange_create(struct dp_group *group,
                                        const struct dp_exchange_config *config,
                                        struct dp_flat *flat, struct dp_exchange **out);
void dp_exchange_destroy(struct dp_exchange *exchange);

/* Gradients are made and used on this stream, and these weights are updated; both are borrowed.
 * Before the first step. */
void dp_exchange_follow(struct dp_exchange *exchange, struct dp_stream *stream, void *weights);

/* When jobs run: switches overlap, between steps only; and how it is. */
void dp_exchange_set_run(struct dp_exchange *exchange, enum dp_run run);
enum dp_run dp_exchange_run(const struct dp_exchange *exchange);

/* ---- a step, in order ---- */

/* Whether deferred buckets, where there are any, are put off in the steps that begin from now
 * on; the same on all ranks. dp_exchange_defers(): whether this step does so with any. */
void dp_exchange_defer(struct dp_exchange *exchange, bool on);
bool dp_exchange_defers(const struct dp_exchange *exchange);

/* alone: of this step's gradient only the tail is shared (train.local_steps). */
void dp_exchange_begin(struct dp_exchange *exchange, bool alone);

/* This rank's gradient of the tensor is final; called from the last tensor to the first. */
DP_CHECKED dp_status dp_exchange_ready(struct dp_exchange *exchange, int tensor);

/* The tail is final: after all tensors. */
DP_CHECKED dp_status dp_exchange_ready_tail(struct dp_exchange *exchange);

/* Whether bucket b is shared after the tail, and not yet there when dp_exchange_end() returns. */
bool dp_exchange_is_deferred(const struct dp_exchange *exchange, int b);

/* Bucket b is summed when it returns. */
DP_CHECKED dp_status dp_exchange_wait(struct dp_exchange *exchange, int b);

/* What this rank updates of bucket b. */
struct dp_range dp_exchange_mine(const struct dp_exchange *exchange, int b);

/* New weights of bucket b are here: they are on their way to all ranks. */
DP_CHECKED dp_status dp_exchange_publish(struct dp_exchange *exchange, int b);

/* All weights are here, on every rank: every bucket but the tail must have been published. */
DP_CHECKED dp_status dp_exchange_end(struct dp_exchange *exchange);

/* ---- what there is to know; all local ---- */

struct dp_group *dp_exchange_group(const struct dp_exchange *exchange);

/* Where the gradient is cut. */
const struct dp_bucket_plan *dp_exchange_plan(const struct dp_exchange *exchange);

/* The gradient [total] in memory of the host. Where a device makes gradients it is a copy, which is
 * free for other uses between steps; of the tail the host writes and reads its part here. */
float *dp_exchange_host_gradient(const struct dp_exchange *exchange);

/* NULL where gradients are not compressed. */
const struct dp_compression *dp_exchange_compression(const struct dp_exchange *exchange);

/* Whether gradients are shared: not by strategy none, of whose gradients each rank has its own. */
bool dp_exchange_sums(const struct dp_exchange *exchange);

/* Whether ranks own parts, so that no rank alone has the whole sum or optimizer state. */
bool dp_exchange_parts(const struct dp_exchange *exchange);

/* Whether all ranks use one copy of the weights: what one of them writes, all have. */
bool dp_exchange_has_one_copy(const struct dp_exchange *exchange);

/* Whether this rank is the one to fill in initial weights (true but for ranks that share another
 * one's); when all have been filled in, every rank calls dp_exchange_barrier. */
bool dp_exchange_writes(const struct dp_exchange *exchange);

/* Whether a bucket is handed over to the other ranks when this tensor becomes ready, in whatever
 * step. */
bool dp_exchange_hands_over(const struct dp_exchange *exchange, int tensor);

/* So many of the tensor's numbers, the first ones, are a deferred bucket's, where this step puts
 * deferred buckets off. */
size_t dp_exchange_deferred_part(const struct dp_exchange *exchange, int tensor);

/* For people, and run.json: "shm", "zero1:over=shm"; the sharding alone, "zero1"; why `auto` took
 * it, empty when the user chose. */
const char *dp_exchange_label(const struct dp_exchange *exchange);
const char *dp_exchange_sharding(const struct dp_exchange *exchange);
const char *dp_exchange_why(const struct dp_exchange *exchange);

/* Whether `auto` timed strategies to find it. */
bool dp_exchange_measured(const struct dp_exchange *exchange);

/* A hash of the jobs submitted so far: equal on all ranks that do the same. */
uint64_t dp_exchange_order(const struct dp_exchange *exchange);

/* Time that jobs of buckets took since the start; of those that have been waited for. */
uint64_t dp_exchange_comm_ns(const struct dp_exchange *exchange);

/* Bytes that this rank sent in jobs that are done. May be called while others run. */
uint64_t dp_exchange_wire(const struct dp_exchange *exchange);

/* Bytes that it sends in a step for all buckets but the tail: with the compressor, and about how
 * many with the strategy alone. False: gradients are not compressed. */
bool dp_exchange_compressed_wire(const struct dp_exchange *exchange, uint64_t *with,
                                 uint64_t *without);

#endif
