/*
 * exchange_own.h - the struct of an exchange, for the exchange's files and for shardings.
 */
#ifndef DP_COLLECTIVES_EXCHANGE_EXCHANGE_OWN_H
#define DP_COLLECTIVES_EXCHANGE_EXCHANGE_OWN_H

#include "collectives/compressors/compression.h"
#include "collectives/core/bucket.h"
#include "collectives/core/engine.h"
#include "collectives/exchange/bucket_times.h"
#include "collectives/exchange/exchange_config.h"
#include "collectives/exchange/sharding.h"
#include "collectives/exchange/staging.h"
#include "collectives/exchange/strategy_select.h"
#include "collectives/strategies/comm.h"
#include "kernels/flat.h"

/* How a bucket gets from backward to its sum. */
enum dp_route {
    DP_ROUTE_LOCAL,         /* unchanged: strategy none, a local step, one rank's GPU */
    DP_ROUTE_HOST,          /* made and summed in host memory */
    DP_ROUTE_STAGED,        /* on a GPU: copied to the host, summed there, copied back */
    DP_ROUTE_STAGED_PIECES, /* the same in pieces: each is summed while others are copied */
    DP_ROUTE_STAGED_CODES,  /* on a GPU: a compressor encodes it there, and only codes are copied */
    DP_ROUTE_GPU            /* on a GPU: a strategy on GPUs sums it in place */
};

struct dp_exchange_bucket {
    enum dp_route route; /* in steps that share gradients */
    int pending;         /* tensors that are not ready yet in this step */
    struct dp_job sum, publish;
};

struct dp_exchange {
    struct dp_group *group;   /* borrowed */
    struct dp_stream *stream; /* owned; sums run here */
    struct dp_comm *comm; /* sums on the host: everything, or with `gpus` the tail and small sums */
    struct dp_comm *gpus; /* owned; a strategy that sums buckets on GPUs (nccl, ipc), or NULL */
    const struct dp_sharding *sharding;
    void *sharding_state;
    bool open;               /* whether the sharding is open */
    struct dp_stream *codes; /* owned; on the gradient's device, where that is not the host */
    struct dp_compression *compression; /* owned; NULL: the strategy sums everything */
    struct dp_engine *engine;
    int threads, servers; /* from the configuration */

    struct dp_strategy_selection selection;
    char label[DP_EXCHANGE_LABEL]; /* "shm", "zero1:over=shm": for people, and run.json */

    struct dp_bucket_plan *plan;
    struct dp_exchange_bucket *buckets; /* owned; [plan->count] */
    int submitted;                      /* buckets submitted in this step, in the plan's order */
    bool defers;                        /* this step defers deferred buckets; else they are shared
                                         * like others */
    bool alone;                         /* only the tail of this step is shared */
    uint64_t order;                     /* hash of the jobs submitted so far */
    uint64_t comm_ns;                   /* time of bucket jobs since the start */
    struct dp_bucket_times *times;      /* owned */

    float *grad;          /* [total]; from dp_group_memory: flat->grad, or its copy */
    float *scratch;       /* [scratch_count], after grad */
    size_t scratch_count; /* the largest small sum, in numbers */
    float *kept;          /* borrowed: where this step copies kept_bucket to, or NULL */
    int kept_bucket;
    struct dp_staging *staging; /* owned; where only the device can use flat->grad, else NULL */
    void *weights;              /* [trained], of `width` bytes each; where ranks publish weights,
                                 * else NULL; flat->weights, or its copy */
    size_t width;
    void *gpu_weights; /* [trained], or NULL: in place of `weights` where ranks publish them on
                        * their GPUs; flat->weights */
    struct dp_node_memory one_copy; /* of the weights, where all ranks are on one node: what one
                                     * writes all have, and nothing is published */
};

/* ---- exchange_memory.c ---- */

/* Allocates gradients and scratch for the buckets of the plan. Sets flat->grad. Collective. Errors:
 * DP_ERR_NOMEM, those of the device. */
DP_CHECKED dp_status dp_exchange_take_gradients(struct dp_exchange *exchange,
                                                const struct dp_exchange_config *config,
                                                struct dp_flat *flat);

/* Allocates weights if the sharding publishes them, and then sets flat->weights. Collective.
 * Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_exchange_take_weights(struct dp_exchange *exchange, struct dp_flat *flat);

/* Collective. Memory that was not allocated is skipped. */
void dp_exchange_release_memory(struct dp_exchange *exchange);

/* ---- exchange_gpus.c ---- */

/* If *strategy sums on GPUs, opens it, and replaces *strategy by the one that sums the rest on the
 * host. largest: elements of the largest sum. Collective. Errors: those of dp_comm_create;
 * DP_ERR_CONFIG where another option needs gradients on the host. */
DP_CHECKED dp_status dp_exchange_open_gpus(struct dp_exchange *exchange,
                                           const struct dp_exchange_config *config, size_t largest,
                                           const char **strategy);

/* Where gradients are only on the device: returns when the sum of bucket b is there. Detects errors
 * of the GPU while it waits. */
DP_CHECKED dp_status dp_exchange_wait_device(struct dp_exchange *exchange, int b);

/* ---- exchange_compare.c ---- */

/* Compares strategy, model, plan and the configuration's items with those of the other ranks.
 * Collective. Errors: those of dp_consistency_check. */
DP_CHECKED dp_status dp_exchange_compare(struct dp_group *group, const struct dp_bucket_plan *plan,
                                         const struct dp_exchange_config *config,
                                         const struct dp_flat *flat);

/* ---- exchange_jobs.c ---- */

/* Finds the route of each bucket, after all else is open; pins what crosses the host. Errors:
 * DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_exchange_make_jobs(struct dp_exchange *exchange);

/* The computation of bucket b is queued: sets its job's function, which depends on the step, and
 * queues its transfer to where it is summed. */
DP_CHECKED dp_status dp_exchange_hand_over(struct dp_exchange *exchange, int b);

/* The job that publishes bucket b. */
DP_CHECKED dp_status dp_exchange_publish_job(void *exchange, int b);

/* Whether ranks send weights to each other: not one alone, or where all have one copy. */
static inline bool dp_exchange_publishes(const struct dp_exchange *e)
{
    return e->sharding->gather != NULL && e->one_copy.data == NULL && e->group->size > 1;
}

/* Before the job that publishes weights, when their update is queued; and after it: work that is
 * queued from now on sees those of all ranks. */
DP_CHECKED dp_status dp_exchange_begin_publish(struct dp_exchange *exchange, int b);
DP_CHECKED dp_status dp_exchange_end_publish(struct dp_exchange *exchange, int b);

/* The job is done: work that is queued from now on, where the gradient was made, sees the sum. */
DP_CHECKED dp_status dp_exchange_take_sum(struct dp_exchange *exchange, int b);

#endif
