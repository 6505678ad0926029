#include "collectives/exchange.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

static dp_status bucket_job(void *arg, int b)
{
    struct dp_exchange *e = arg;

    return e->sharing->reduce(e->sharing_state, b);
}

static dp_status exchange_memory(struct dp_exchange *e, const struct dp_exchange_config *config,
                                 struct dp_flat *flat)
{
    const size_t count = flat->total + dp_round_up(config->scratch_count, DP_BLOCK);

    e->grad = dp_group_memory(e->group, DP_MEM_GRADIENTS, count * sizeof(float));
    e->jobs = dp_zalloc((size_t)e->plan->count, sizeof(*e->jobs));
    e->pending = dp_zalloc((size_t)e->plan->count, sizeof(*e->pending));
    if (e->grad == NULL || e->jobs == NULL || e->pending == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "gradients need %zu MB", count * sizeof(float) >> 20);
    }
    e->group->apart =
        dp_group_one_node(e->group) && e->group->size > 1 &&
        dp_group_peer(e->group, e->grad, (e->group->rank + 1) % e->group->size) == NULL;
    e->scratch = e->grad + flat->total;
    flat->grad = e->grad;
    return DP_OK;
}

static dp_status exchange_open(struct dp_exchange *e, const struct dp_exchange_config *config,
                               struct dp_flat *flat)
{
    size_t largest;

    DP_TRY(config->device->stream_create(config->device, config->threads, &e->stream));
    e->group->stream = e->stream;
    DP_TRY(dp_bucket_plan_create(flat->tensors, flat->tensor_count, flat->trained, flat->total,
                                 config->first_bucket_bytes / sizeof(float),
                                 config->bucket_bytes / sizeof(float), &e->plan));
    DP_TRY(exchange_memory(e, config, flat));
    largest = e->plan->largest > config->scratch_count ? e->plan->largest : config->scratch_count;
    DP_TRY(dp_comm_create(e->group, config->strategy, largest,
                          flat->total - flat->trained + config->scratch_count, &e->comm));
    e->sharing = &dp_sharing_replicated;
    e->sharing_state = dp_zalloc(1, e->sharing->plugin.state_bytes);
    if (e->sharing_state == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "sharing");
    }
    DP_TRY(e->sharing->open(e->sharing_state, e));
    DP_TRY(dp_engine_create(e->group, config->run, &e->engine));
    dp_exchange_set_run(e, config->run);
    return DP_OK;
}

dp_status dp_exchange_create(struct dp_group *group, const struct dp_exchange_config *config,
                             struct dp_flat *flat, struct dp_exchange **out)
{
    struct dp_exchange *e = dp_zalloc(1, sizeof(*e));
    dp_status status;

    if (e == NULL) {
        dp_group_leave(group, DP_ERR_NOMEM);
        return DP_FAIL(DP_ERR_NOMEM, "exchange");
    }
    e->group = group;
    e->threads = config->threads;
    status = exchange_open(e, config, flat);
    if (status != DP_OK) {
        dp_group_leave(group, status);
        dp_exchange_destroy(e);
        return status;
    }
    for (int b = 0; b < e->plan->count; b++) {
        e->jobs[b] = (struct dp_job){.run = bucket_job, .arg = e, .index = b};
    }
    *out = e;
    return DP_OK;
}

void dp_exchange_destroy(struct dp_exchange *e)
{
    if (e == NULL) {
        return;
    }
    dp_engine_destroy(e->engine);
    if (e->sharing_state != NULL) {
        e->sharing->close(e->sharing_state);
        dp_free(e->sharing_state);
    }
    dp_comm_destroy(e->comm);
    dp_group_release(e->group, e->grad);
    dp_free(e->pending);
    dp_free(e->jobs);
    dp_bucket_plan_destroy(e->plan);
    if (e->stream != NULL) {
        e->stream->device->stream_destroy(e->stream);
        e->group->stream = NULL;
    }
    dp_free(e);
}

void dp_exchange_set_run(struct dp_exchange *e, enum dp_run run)
{
    dp_engine_set_run(e->engine, run);
    e->stream->threads = run == DP_RUN_AT_WAIT ? e->threads : 1;
}

void dp_exchange_begin(struct dp_exchange *e)
{
    for (int b = 0; b < e->plan->count; b++) {
        e->pending[b] = e->plan->buckets[b].tensor_count;
    }
    e->submitted = 0;
}

static dp_status submit(struct dp_exchange *e, int b)
{
    assert(b == e->submitted);
    e->submitted++;
    e->order = XXH3_64bits_withSeed(&b, sizeof(b), e->order);
    return dp_engine_submit(e->engine, &e->jobs[b]);
}

dp_status dp_exchange_ready(struct dp_exchange *e, int tensor)
{
    const int b = e->plan->bucket_of[tensor];

    return --e->pending[b] == 0 ? submit(e, b) : DP_OK;
}

dp_status dp_exchange_ready_tail(struct dp_exchange *e)
{
    return submit(e, e->plan->count - 1);
}

dp_status dp_exchange_wait(struct dp_exchange *e, int b)
{
    const struct dp_job *job = &e->jobs[b];

    DP_TRY(dp_engine_wait(e->engine, &e->jobs[b]));
    e->comm_ns += job->end_ns - job->begin_ns;
    return DP_OK;
}

struct dp_range dp_exchange_mine(const struct dp_exchange *e, int b)
{
    return e->sharing->mine(e->sharing_state, &e->plan->buckets[b]);
}

dp_status dp_exchange_publish(struct dp_exchange *e, int b)
{
    return e->sharing->publish == NULL ? DP_OK : e->sharing->publish(e->sharing_state, b);
}

/* What a job of its own works on. */
struct request {
    struct dp_exchange *exchange;
    const void *mine;
    void *all;
    size_t count;
};

/* In the scratch memory, which strategies that need shared memory can reach. */
static dp_status sum_job(void *arg, int index)
{
    const struct request *r = arg;
    struct dp_exchange *e = r->exchange;

    (void)index;
    memcpy(e->scratch, r->mine, r->count * sizeof(float));
    DP_TRY(dp_comm_sum_exact(e->comm, (struct dp_slice){e->scratch, r->count, sizeof(float)}));
    memcpy(r->all, e->scratch, r->count * sizeof(float));
    return DP_OK;
}

/* NOLINTNEXTLINE(readability-non-const-parameter): the job writes to `data`. */
dp_status dp_exchange_sum(struct dp_exchange *e, float *data, size_t count)
{
    struct request r = {e, data, data, count};

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
    struct request r = {e, mine, all, bytes};

    return dp_engine_call(e->engine, gather_job, &r);
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
