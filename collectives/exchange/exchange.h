/*
 * exchange.h - gradients in, sums out: owns comm, sharing, plan, engine and jobs of one group.
 *
 * In a step: begin; `ready` for each tensor as backward finishes it, and for the tail; then wait
 * for each bucket in order, update what is mine, and publish it; end. A bucket whose last tensor
 * is ready is submitted at once, so that it is shared while backward goes on.
 *
 * While deferred buckets (bucket.h) are put off, they are submitted behind the tail, the first that
 * forward needs first: they are waited for after `end`, and before the next `begin`'s backward.
 */
#ifndef DP_COLLECTIVES_EXCHANGE_EXCHANGE_H
#define DP_COLLECTIVES_EXCHANGE_EXCHANGE_H

#include "collectives/compressors/compression.h"
#include "collectives/core/bucket.h"
#include "collectives/core/consistency.h"
#include "collectives/exchange/engine.h"
#include "collectives/exchange/sharding.h"
#include "collectives/exchange/staging.h"
#include "collectives/exchange/strategy_autotune.h"
#include "collectives/strategies/comm.h"
#include "kernels/flat.h"

struct dp_exchange_config {
    const char *strategy;
    bool recalled;          /* `auto` took that strategy before: it becomes auto again where
                                   * it cannot run, for want of shared memory say */
    const char *compressor; /* NULL: none */
    const struct dp_step_params *step_params; /* for a compressor: those of each step; borrowed */
    uint64_t seed;                            /* for a compressor: of its random numbers */
    size_t bucket_bytes, first_bucket_bytes;
    enum dp_run run;
    size_t scratch_count; /* the largest dp_exchange_sum, in elements */
    int servers;          /* the last ranks, which bring no gradients; 0: none */
    bool whole;           /* every rank updates all weights: local steps */
    bool deferred;        /* deferred buckets may be put off, which the caller can deal with */
    bool ordered;         /* sums must keep the order of the tree over ranks: lanes */
    size_t tail_made; /* elements of the tail, the first ones, that are computed by the device */
    const struct dp_device *device;
    int threads; /* of this rank: sums use them while nothing else does */
    const struct dp_consistency_item *items; /* what else ranks must have alike; NULL: nothing */
    int item_count;                          /* at most DP_EXCHANGE_ITEMS */
};

enum { DP_EXCHANGE_ITEMS = 8 };

/* Room for the name of a strategy with its options and its sharing. */
enum { DP_EXCHANGE_LABEL = 128 };

#define DP_EXCHANGE_AUTOTUNE_S 1.2

struct dp_exchange {
    struct dp_group *group;   /* borrowed */
    int servers;              /* the last ranks of it */
    struct dp_stream *stream; /* owned; sums run here */
    struct dp_comm
        *comm; /* sums on the host: where `gpus` is set the tail and small sums, else all */
    struct dp_comm *gpus; /* owned; a strategy that sums buckets on GPUs (nccl, ipc), or NULL */
    struct dp_bucket_plan *plan;
    struct dp_engine *engine;
    struct dp_stream *codes; /* owned; on the gradient's device, where that is not the host */
    struct dp_compression
        *compression; /* the compressor; NULL: the strategy sums everything itself */
    const struct dp_sharding *sharding;
    void *sharding_state;
    bool open;                          /* the sharing is */
    char label[DP_EXCHANGE_LABEL];      /* "shm", "zero1:over=shm": for people, and run.json */
    char why[DP_STRATEGY_AUTOTUNE_WHY]; /* why `auto` took it; empty when the user chose */
    bool measured;                      /* `auto` timed strategies to find it */
    void *weights; /* [trained], of `width` bytes; where ranks publish weights, else NULL;
                                 flat->weights, or its copy */
    size_t width;
    struct dp_node_memory one_copy; /* of the weights, where all ranks live on one node: what one
                                       writes all have, and nothing is published */
    float *grad;                    /* [total]; from dp_group_memory: flat->grad, or its copy */
    struct dp_staging *staging;     /* owned; where flat->grad is the device's alone, else NULL */
    float *scratch;                 /* [scratch_count], behind grad */
    int threads;
    struct dp_job *jobs;       /* [plan->count] */
    struct dp_job *publishing; /* [plan->count] */
    int *pending;              /* [plan->count]: tensors not yet ready */
    int submitted;             /* buckets, this step, in the order of the plan */
    bool defers;               /* deferred buckets; else they are shared like others */
    uint64_t order;            /* hash of the jobs submitted so far */
    uint64_t comm_ns;          /* that jobs of buckets took, since the start */
    bool alone;                /* gradients of this step are not shared, but for the tail */
};

/* Part of creating: whether deferred buckets can be: replicated on several nodes' hosts, so that
 * nothing but this rank's own updates changes its weights, and without a compressor to which it
 * matters where buckets are cut. Local. */
bool dp_exchange_may_defer(const struct dp_exchange *exchange,
                           const struct dp_exchange_config *config);

/* Whether `text` ("ring", "zero1:over=ring", "auto") names a strategy, or a sharing over one, which
 * keeps the order of sums if that is wanted; says in `problem` what is wrong. Local.
 * Errors: DP_ERR_CONFIG, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_exchange_check(const char *text, bool ordered, char *problem,
                                       size_t problem_size);

/* Whether what `text` names, and dp_exchange_check accepts, can run in this group: *why_not is
 * NULL, or the reason. Local. Errors: DP_ERR_CONFIG, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_exchange_supports(const struct dp_group *group, const char *text,
                                          const char **why_not);

/* Whether `auto` may have measured that `text` is best, in this group, for gradients of `device`
 * and with or without lanes. Local. */
bool dp_exchange_may_measure(const struct dp_group *group, const struct dp_device *device,
                             bool ordered, const char *text);

/*
 * Strategy `auto` becomes: ps with servers; on GPUs nccl where each rank has one (and lanes do not
 * want the order of the tree), else ipc where ranks reach each other's, else staged over what
 * follows; zero1 over shm where all ranks share a node's memory (shm under local steps); else what
 * dp_strategy_autotune_run finds within DP_EXCHANGE_AUTOTUNE_S.
 *
 * Collective. Needs flat->type. Fills in flat->grad, flat->owned, and owned_at of the buckets; and
 * flat->weights where ranks publish weights to each other, else it stays NULL.
 * Errors: DP_ERR_DISAGREE when ranks differ in strategy, plan, model or claims, which is told;
 * those of dp_comm_create, dp_strategy_autotune_run, dp_bucket_plan_create, dp_compression_create,
 * dp_engine_create.
 */
DP_CHECKED dp_status dp_exchange_create(struct dp_group *group,
                                        const struct dp_exchange_config *config,
                                        struct dp_flat *flat, struct dp_exchange **out);
/* Part of creating: what comm.strategy is, or becomes where it is `auto`: e->why says why, then,
 * and `room` may keep the text. Collective. Errors: those of dp_strategy_autotune_run. */
DP_CHECKED dp_status dp_exchange_choose(struct dp_exchange *exchange,
                                        const struct dp_exchange_config *config,
                                        struct dp_strategy_autotune_result *room,
                                        const char **text);

/* Part of creating: "zero1:over=ring" or "ring": makes the state of the sharing, which the caller
 * releases, and finds the strategy over which it works. Local. Errors: those of
 * dp_plugin_create. */
DP_CHECKED dp_status dp_exchange_find_sharding(const char *text,
                                               const struct dp_sharding **sharding, void **state,
                                               const char **strategy, char *problem,
                                               size_t problem_size);

/* Part of creating: where `strategy` sums on GPUs, opens it, and makes *strategy what sums the rest
 * on the host. Collective. Errors: those of dp_comm_create; DP_ERR_CONFIG where something wants the
 * gradients on the host. */
DP_CHECKED dp_status dp_exchange_open_gpus(struct dp_exchange *exchange,
                                           const struct dp_exchange_config *config, size_t largest,
                                           const char **strategy);

/* Part of ending a step, where gradients are the device's alone: returns when the sum of bucket b
 * is there; what fails on a GPU is found out meanwhile. */
DP_CHECKED dp_status dp_exchange_settle(struct dp_exchange *exchange, int b);

/* Part of creating: compares strategy, model, plan and claims with those of the other ranks.
 * Collective. Errors: those of dp_consistency_check. */
DP_CHECKED dp_status dp_exchange_compare(struct dp_exchange *exchange,
                                         const struct dp_exchange_config *config,
                                         const struct dp_flat *flat);

void dp_exchange_destroy(struct dp_exchange *exchange);

/* Gradients are made and used on this stream, and these weights are updated; both are borrowed.
 * Before the first step. */
void dp_exchange_follow(struct dp_exchange *exchange, struct dp_stream *stream, void *weights);

/* Switches overlap; between steps only. */
void dp_exchange_set_run(struct dp_exchange *exchange, enum dp_run run);

/* Whether deferred buckets, where there are any, are put off in the steps that begin from now
 * on; the same on all ranks. */
void dp_exchange_defer(struct dp_exchange *exchange, bool on);

/* Whether bucket b is shared behind the tail, and not yet there when dp_exchange_end() returns. */
static inline bool dp_exchange_is_deferred(const struct dp_exchange *exchange, int b)
{
    return exchange->defers && exchange->plan->buckets[b].deferred;
}

/* Bytes that this rank sent in jobs that are done. May be called while others run. */
uint64_t dp_exchange_wire(const struct dp_exchange *exchange);

/* alone: of this step's gradient only the tail is shared (train.local_steps). */
void dp_exchange_begin(struct dp_exchange *exchange, bool alone);

/* This rank's gradient of the tensor is final; called from the last tensor to the first. */
DP_CHECKED dp_status dp_exchange_ready(struct dp_exchange *exchange, int tensor);

/* So many of the tensor's numbers, the first ones, are a deferred bucket's: where this step puts
 * late buckets off. */
static inline size_t dp_exchange_deferred_part(const struct dp_exchange *exchange, int tensor)
{
    const int *bucket_of = exchange->plan->bucket_of;
    const struct dp_bucket *next = &exchange->plan->buckets[bucket_of[tensor] + 1];
    const bool first = tensor == 0 || bucket_of[tensor - 1] != bucket_of[tensor];

    return exchange->defers && next->deferred && first ? next->range.count : 0;
}

/* Whether a bucket is handed over to the other ranks when this tensor becomes ready, in whatever
 * step. */
bool dp_exchange_hands_over(const struct dp_exchange *exchange, int tensor);

/* The tail is final: after all tensors. */
DP_CHECKED dp_status dp_exchange_ready_tail(struct dp_exchange *exchange);

/* For shardings, inside a job: replaces this rank's gradient of bucket b by its sum; the tail
 * exactly, others through the compressor if there is one. */
DP_CHECKED dp_status dp_exchange_reduce(struct dp_exchange *exchange, int b, enum dp_keep keep);

/* Bucket b is summed when it returns. */
DP_CHECKED dp_status dp_exchange_wait(struct dp_exchange *exchange, int b);

/* What this rank updates of bucket b. */
struct dp_range dp_exchange_mine(const struct dp_exchange *exchange, int b);

/* Whether ranks own parts, so that no rank alone has the whole sum or optimizer state. */
bool dp_exchange_parts(const struct dp_exchange *exchange);

/* New weights of bucket b are here: they are on their way to all ranks. */
DP_CHECKED dp_status dp_exchange_publish(struct dp_exchange *exchange, int b);

/* All weights are here, on every rank: every bucket but the tail must have been published. */
DP_CHECKED dp_status dp_exchange_end(struct dp_exchange *exchange);

/* Inside a job of the engine, for those who time it: all that dp_exchange_ready and
 * dp_exchange_wait do with bucket b; its sum is there when it returns. */
DP_CHECKED dp_status dp_exchange_share_now(struct dp_exchange *exchange, int b);

/* The same of dp_exchange_publish and dp_exchange_end, of a bucket but the tail, where weights are
 * published; those of a device are on their way on the stream that dp_exchange_follow told. */
DP_CHECKED dp_status dp_exchange_publish_now(struct dp_exchange *exchange, int b);

/* Whether this rank is the one to fill in initial weights (true but for ranks that share another
 * one's); when all have been filled in, every rank calls dp_exchange_barrier. */
bool dp_exchange_writes(const struct dp_exchange *exchange);

/* Optimizer state `owned` [flat->owned], of which each rank has its part, whole in flat order, all
 * on the host: `whole` [trained], or NULL on ranks that do not want it. Between steps; uses the
 * gradient's memory. */
DP_CHECKED dp_status dp_exchange_collect(struct dp_exchange *exchange, const float *owned,
                                         float *whole);

/* Sums [count] over all ranks, in place, anywhere in a step: synchronised batch norm. An array of
 * the device, as that of dp_exchange_mean. */
DP_CHECKED dp_status dp_exchange_sum(struct dp_exchange *exchange, float *data, size_t count);

/* The same of an array of the host. */
DP_CHECKED dp_status dp_exchange_sum_host(struct dp_exchange *exchange, float *data, size_t count);

/* The mean of an array [trained] in flat order over all ranks, in place: the same bits everywhere.
 * Between steps, where every rank has all of it; uses the gradient's memory. */
DP_CHECKED dp_status dp_exchange_mean(struct dp_exchange *exchange, float *data);

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

#endif
