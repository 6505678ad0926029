/*
 * exchange_own.h - what an exchange is made of: for its own files and for shardings.
 */
#ifndef DP_COLLECTIVES_EXCHANGE_EXCHANGE_OWN_H
#define DP_COLLECTIVES_EXCHANGE_EXCHANGE_OWN_H

#include "collectives/compressors/compression.h"
#include "collectives/core/bucket.h"
#include "collectives/core/engine.h"
#include "collectives/exchange/exchange_config.h"
#include "collectives/exchange/sharding.h"
#include "collectives/exchange/staging.h"
#include "collectives/exchange/strategy_select.h"
#include "collectives/strategies/comm.h"
#include "kernels/flat.h"

/* How a bucket gets from where backward makes it to its sum. */
enum dp_route {
    DP_ROUTE_LOCAL,         /* it stays as it is: strategy none, a local step, one rank's GPU */
    DP_ROUTE_HOST,          /* it is made in the host's memory and summed there */
    DP_ROUTE_STAGED,        /* a GPU's: copied to the host, summed there, copied back */
    DP_ROUTE_STAGED_PIECES, /* the same in pieces: each is summed while others are copied */
    DP_ROUTE_STAGED_CODES,  /* a GPU's: a compressor makes codes of it there, and only they cross */
    DP_ROUTE_GPU            /* a GPU's: a strategy on GPUs sums it where it is */
};

struct dp_exchange_bucket {
    enum dp_route route; /* in steps that share gradients */
    int pending;         /* tensors that are not ready yet, this step */
    struct dp_job sum, publish;
};

struct dp_exchange {
    struct dp_group *group;   /* borrowed */
    struct dp_stream *stream; /* owned; sums run here */
    struct dp_comm
        *comm; /* sums on the host: where `gpus` is set the tail and small sums, else all */
    struct dp_comm *gpus; /* owned; a strategy that sums buckets on GPUs (nccl, ipc), or NULL */
    const struct dp_sharding *sharding;
    void *sharding_state;
    bool open;               /* the sharding is */
    struct dp_stream *codes; /* owned; on the gradient's device, where that is not the host */
    struct dp_compression *compression; /* owned; NULL: the strategy sums everything itself */
    struct dp_engine *engine;
    int threads, servers; /* as the configuration says */

    struct dp_strategy_selection selection;
    char label[DP_EXCHANGE_LABEL]; /* "shm", "zero1:over=shm": for people, and run.json */

    struct dp_bucket_plan *plan;
    struct dp_exchange_bucket *buckets; /* owned; [plan->count] */
    int submitted;                      /* buckets, this step, in the order of the plan */
    bool defers;                        /* deferred buckets; else they are shared like others */
    bool alone;       /* gradients of this step are not shared, but for the tail */
    uint64_t order;   /* hash of the jobs submitted so far */
    uint64_t comm_ns; /* that jobs of buckets took, since the start */

    float *grad;                /* [total]; from dp_group_memory: flat->grad, or its copy */
    float *scratch;             /* [scratch_count], after grad */
    size_t scratch_count;       /* the most numbers of a small sum */
    struct dp_staging *staging; /* owned; where flat->grad is the device's alone, else NULL */
    void *weights;              /* [trained], of `width` bytes; where ranks publish weights, else
                                   NULL; flat->weights, or its copy */
    size_t width;
    struct dp_node_memory one_copy; /* of the weights, where all ranks live on one node: what one
                                       writes all have, and nothing is published */
};

/* ---- exchange_memory.c ---- */

/* Gradients and scratch, for the buckets of the plan. Sets flat->grad. Collective.
 * Errors: DP_ERR_NOMEM, those of the device. */
DP_CHECKED dp_status dp_exchange_take_gradients(struct dp_exchange *exchange,
                                                const struct dp_exchange_config *config,
                                                struct dp_flat *flat);

/* Weights, where the sharding publishes them; then flat->weights is set. Collective.
 * Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_exchange_take_weights(struct dp_exchange *exchange, struct dp_flat *flat);

/* Collective; what was not taken is no matter. */
void dp_exchange_release_memory(struct dp_exchange *exchange);

/* ---- exchange_gpus.c ---- */

/* Where *strategy sums on GPUs, opens it, and makes *strategy what sums the rest on the host.
 * largest: elements of the largest sum. Collective. Errors: those of dp_comm_create; DP_ERR_CONFIG
 * where something wants the gradients on the host. */
DP_CHECKED dp_status dp_exchange_open_gpus(struct dp_exchange *exchange,
                                           const struct dp_exchange_config *config, size_t largest,
                                           const char **strategy);

/* Where gradients are the device's alone: returns when the sum of bucket b is there; what fails on
 * a GPU is found out meanwhile. */
DP_CHECKED dp_status dp_exchange_wait_device(struct dp_exchange *exchange, int b);

/* ---- exchange_compare.c ---- */

/* Compares strategy, model, plan and the configuration's items with those of the other ranks.
 * Collective. Errors: those of dp_consistency_check. */
DP_CHECKED dp_status dp_exchange_compare(struct dp_group *group, const struct dp_bucket_plan *plan,
                                         const struct dp_exchange_config *config,
                                         const struct dp_flat *flat);

/* ---- exchange_jobs.c ---- */

/* Finds the route of each bucket, when all else is open. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_exchange_make_jobs(struct dp_exchange *exchange);

/* What makes bucket b is queued: it goes to where it is summed, after that. */
DP_CHECKED dp_status dp_exchange_hand_over(struct dp_exchange *exchange, int b);

/* Jobs. */
DP_CHECKED dp_status dp_exchange_sum_job(void *exchange, int b);
DP_CHECKED dp_status dp_exchange_publish_job(void *exchange, int b);

/* The job is done: what is queued from now on where the gradient was made finds the sum. */
DP_CHECKED dp_status dp_exchange_take_sum(struct dp_exchange *exchange, int b);

#endif
