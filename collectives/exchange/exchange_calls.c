/*
 * exchange_calls.c - what an exchange does beside buckets: each call is a job of its own.
 */
#include <string.h>
#include <xxhash.h>

#include "collectives/exchange/exchange.h"

/* What a job of its own works on. */
struct request {
    struct dp_exchange *exchange;
    const void *mine;
    void *all;
    size_t count;
    int root;
};

/* In the scratch memory, which strategies that need shared memory can reach. */
static dp_status sum_job(void *arg, int index)
{
    const struct request *r = arg;
    struct dp_exchange *e = r->exchange;

    (void)index;
    DP_TRY(dp_staging_read(e->staging, e->scratch, r->mine, r->count));
    DP_TRY(dp_comm_sum_exact(e->comm, (struct dp_slice){e->scratch, r->count, sizeof(float)}));
    return dp_staging_write(e->staging, r->all, e->scratch, r->count);
}

static dp_status sum_host_job(void *arg, int index)
{
    const struct request *r = arg;
    struct dp_exchange *e = r->exchange;

    (void)index;
    memcpy(e->scratch, r->mine, r->count * sizeof(float));
    DP_TRY(dp_comm_sum_exact(e->comm, (struct dp_slice){e->scratch, r->count, sizeof(float)}));
    memcpy(r->all, e->scratch, r->count * sizeof(float));
    return DP_OK;
}

dp_status dp_exchange_sum_host(struct dp_exchange *e, float *data, size_t count)
{
    struct request r = {e, data, data, count, 0};

    e->order = XXH3_64bits_withSeed(&count, sizeof(count), e->order);
    return dp_engine_call(e->engine, sum_host_job, &r);
}

dp_status dp_exchange_sum(struct dp_exchange *e, float *data, size_t count)
{
    struct request r = {e, data, data, count, 0};

    e->order = XXH3_64bits_withSeed(&count, sizeof(count), e->order);
    return dp_engine_call(e->engine, sum_job, &r);
}

static dp_status gather_job(void *arg, int index)
{
    const struct request *r = arg;

    (void)index;
    return dp_group_allgather(r->exchange->group, r->mine, r->count, r->all);
}

dp_status dp_exchange_gather(struct dp_exchange *e, const void *mine, size_t bytes, void *all)
{
    struct request r = {e, mine, all, bytes, 0};

    return dp_engine_call(e->engine, gather_job, &r);
}

/* Pieces whose bytes a transport can count. */
enum { BROADCAST_BYTES = 64 << 20 };

static dp_status broadcast_job(void *arg, int index)
{
    const struct request *r = arg;
    char *data = r->all;

    (void)index;
    for (size_t at = 0; at < r->count; at += BROADCAST_BYTES) {
        const size_t rest = r->count - at;
        DP_TRY(dp_group_broadcast(r->exchange->group, data + at,
                                  rest < BROADCAST_BYTES ? rest : BROADCAST_BYTES, r->root));
    }
    return DP_OK;
}

dp_status dp_exchange_broadcast(struct dp_exchange *e, void *data, size_t bytes, int root)
{
    struct request r = {.exchange = e, .all = data, .count = bytes, .root = root};

    return dp_engine_call(e->engine, broadcast_job, &r);
}

static dp_status collect_job(void *arg, int index)
{
    const struct request *r = arg;
    struct dp_exchange *e = r->exchange;

    (void)index;
    for (int b = 0; b < e->plan->count; b++) {
        const struct dp_bucket *bucket = &e->plan->buckets[b];
        const struct dp_range mine = e->sharding->mine(e->sharding_state, bucket);
        if (bucket->exact) {
            continue;
        }
        memcpy(e->grad + mine.begin, (const float *)r->mine + bucket->owned_at,
               mine.count * sizeof(float));
        if (e->sharding->gather != NULL) {
            DP_TRY(e->sharding->gather(e->sharding_state, b, e->grad, sizeof(float)));
        }
    }
    if (r->all != NULL) {
        memcpy(r->all, e->grad, r->count * sizeof(float));
    }
    return DP_OK;
}

dp_status dp_exchange_collect(struct dp_exchange *e, const float *owned, float *whole)
{
    const struct dp_bucket *tail = &e->plan->buckets[e->plan->count - 1];
    struct request r = {e, owned, whole, tail->range.begin, 0};

    return dp_engine_call(e->engine, collect_job, &r);
}

static dp_status mean_job(void *arg, int index)
{
    const struct request *r = arg;
    struct dp_exchange *e = r->exchange;
    const struct dp_ops *ops = e->stream->ops;
    float *data = r->all;

    (void)index;
    for (int b = 0; b < e->plan->count; b++) {
        const struct dp_range range = e->plan->buckets[b].range;
        float *grad = e->grad + range.begin;
        if (!e->plan->buckets[b].exact) {
            DP_TRY(dp_staging_read(e->staging, grad, data + range.begin, range.count));
            DP_TRY(dp_comm_sum(e->comm, (struct dp_slice){grad, range.count, sizeof(float)},
                               DP_KEEP_ALL));
            DP_TRY(ops->scale(e->stream, grad, grad, 1.0f / (float)e->group->size, range.count));
            DP_TRY(dp_staging_write(e->staging, data + range.begin, grad, range.count));
        }
    }
    return DP_OK;
}

dp_status dp_exchange_mean(struct dp_exchange *e, float *data)
{
    struct request r = {e, data, data, 0, 0};

    return dp_engine_call(e->engine, mean_job, &r);
}

static dp_status agree_job(void *arg, int index)
{
    const struct request *r = arg;

    (void)index;
    return dp_group_agree(r->exchange->group, *(const dp_status *)r->mine);
}

dp_status dp_exchange_agree(struct dp_exchange *e, dp_status mine)
{
    struct request r = {e, &mine, NULL, 0, 0};

    return dp_engine_call(e->engine, agree_job, &r);
}

static dp_status barrier_job(void *arg, int index)
{
    (void)index;
    return dp_group_barrier(((struct dp_exchange *)arg)->group);
}

dp_status dp_exchange_barrier(struct dp_exchange *e)
{
    return dp_engine_call(e->engine, barrier_job, e);
}
