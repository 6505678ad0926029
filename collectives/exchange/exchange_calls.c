#include "collectives/exchange/exchange_calls.h"

#include <string.h>
#include <xxhash.h>

#include "base/trace.h"
#include "collectives/exchange/exchange_own.h"

/* The arguments of a job. */
struct group_call {
    struct dp_exchange *exchange;
    const void *mine;
    void *all;
    size_t count;
    int root;
};

/* Sums in the scratch memory, which strategies that need shared memory can reach. */
static dp_status sum_job(void *arg, int index)
{
    const struct group_call *c = arg;
    struct dp_exchange *e = c->exchange;

    (void)index;
    DP_TRY(dp_staging_read(e->staging, e->scratch, c->mine, c->count));
    DP_TRY(dp_comm_sum_exact(e->comm, (struct dp_slice){e->scratch, c->count, sizeof(float)}));
    return dp_staging_write(e->staging, c->all, e->scratch, c->count);
}

static dp_status sum_host_job(void *arg, int index)
{
    const struct group_call *c = arg;
    struct dp_exchange *e = c->exchange;

    (void)index;
    memcpy(e->scratch, c->mine, c->count * sizeof(float));
    DP_TRY(dp_comm_sum_exact(e->comm, (struct dp_slice){e->scratch, c->count, sizeof(float)}));
    memcpy(c->all, e->scratch, c->count * sizeof(float));
    return DP_OK;
}

static dp_status sum(struct dp_exchange *e, dp_status (*job)(void *arg, int index), float *data,
                     size_t count)
{
    struct group_call call = {e, data, data, count, 0};

    if (count > e->scratch_count) {
        return DP_FAIL(DP_ERR_INTERNAL,
                       "a sum of %zu numbers over ranks, where the exchange has room for %zu",
                       count, e->scratch_count);
    }
    e->order = XXH3_64bits_withSeed(&count, sizeof(count), e->order);
    return dp_engine_call(e->engine, job, &call);
}

dp_status dp_exchange_sum_host(struct dp_exchange *e, float *data, size_t count)
{
    return sum(e, sum_host_job, data, count);
}

dp_status dp_exchange_sum(struct dp_exchange *e, float *data, size_t count)
{
    return sum(e, sum_job, data, count);
}

static dp_status gather_job(void *arg, int index)
{
    const struct group_call *c = arg;

    (void)index;
    return dp_group_allgather(c->exchange->group, c->mine, c->count, c->all);
}

dp_status dp_exchange_gather(struct dp_exchange *e, const void *mine, size_t bytes, void *all)
{
    struct group_call call = {e, mine, all, bytes, 0};

    return dp_engine_call(e->engine, gather_job, &call);
}

/* Size of the pieces of a broadcast: a transport must be able to count their bytes. */
enum { BROADCAST_BYTES = 64 << 20 };

static dp_status broadcast_job(void *arg, int index)
{
    const struct group_call *c = arg;
    char *data = c->all;

    (void)index;
    for (size_t at = 0; at < c->count; at += BROADCAST_BYTES) {
        const size_t rest = c->count - at;
        DP_TRY(dp_group_broadcast(c->exchange->group, data + at,
                                  rest < BROADCAST_BYTES ? rest : BROADCAST_BYTES, c->root));
        dp_trace_beat();
    }
    return DP_OK;
}

dp_status dp_exchange_broadcast(struct dp_exchange *e, void *data, size_t bytes, int root)
{
    struct group_call call = {.exchange = e, .all = data, .count = bytes, .root = root};

    return dp_engine_call(e->engine, broadcast_job, &call);
}

static dp_status collect_job(void *arg, int index)
{
    const struct group_call *c = arg;
    struct dp_exchange *e = c->exchange;

    (void)index;
    for (int b = 0; b < e->plan->count; b++) {
        const struct dp_bucket *bucket = &e->plan->buckets[b];
        const struct dp_range mine = e->sharding->mine(e->sharding_state, bucket);
        if (bucket->exact) {
            continue;
        }
        memcpy(e->grad + mine.begin, (const float *)c->mine + bucket->owned_at,
               mine.count * sizeof(float));
        if (e->sharding->gather != NULL) {
            DP_TRY(e->sharding->gather(e->sharding_state, e->comm, b, e->grad, sizeof(float)));
        }
    }
    if (c->all != NULL) {
        memcpy(c->all, e->grad, c->count * sizeof(float));
    }
    return DP_OK;
}

dp_status dp_exchange_collect(struct dp_exchange *e, const float *owned, float *whole)
{
    const struct dp_bucket *tail = &e->plan->buckets[e->plan->count - 1];
    struct group_call call = {e, owned, whole, tail->range.begin, 0};

    return dp_engine_call(e->engine, collect_job, &call);
}

static dp_status mean_job(void *arg, int index)
{
    const struct group_call *c = arg;
    struct dp_exchange *e = c->exchange;
    const struct dp_ops *ops = e->stream->ops;
    float *data = c->all;

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
    struct group_call call = {.exchange = e, .all = data};

    return dp_engine_call(e->engine, mean_job, &call);
}

static dp_status agree_job(void *arg, int index)
{
    const struct group_call *c = arg;

    (void)index;
    return dp_group_agree(c->exchange->group, *(const dp_status *)c->mine);
}

dp_status dp_exchange_agree(struct dp_exchange *e, dp_status mine)
{
    struct group_call call = {.exchange = e, .mine = &mine};

    return dp_engine_call(e->engine, agree_job, &call);
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

dp_status dp_exchange_call(struct dp_exchange *e, dp_status (*run)(void *arg, int index), void *arg,
                           int index)
{
    struct dp_job job = {.run = run, .arg = arg, .index = index};

    DP_TRY(dp_engine_submit(e->engine, &job));
    return dp_engine_wait(e->engine, &job);
}

void dp_exchange_set_errand(struct dp_exchange *e, struct dp_errand errand)
{
    dp_engine_set_errand(e->engine, errand);
}

void dp_exchange_poke(struct dp_exchange *e)
{
    dp_engine_poke(e->engine);
}
