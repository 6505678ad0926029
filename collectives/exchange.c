#include "collectives/exchange.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

static dp_status bucket_job(void *arg, int b)
{
    struct dp_exchange *e = arg;

    return e->sharing->reduce(e->sharing_state, b);
}

static dp_status publish_job(void *arg, int b)
{
    struct dp_exchange *e = arg;

    return e->sharing->publish(e->sharing_state, b);
}

/* What `auto` means: ranks that can share one copy of the weights do (measured: less of the caches,
 * half of the optimizer's work for two ranks); others are replicated, over what suits them. */
static const char *choose(const struct dp_group *group, const char *text, bool whole)
{
    const bool share = group->size > 1 && dp_group_one_node(group) && !group->apart && !whole;

    return strcmp(text, "auto") == 0 && share ? "zero1" : text;
}

/* "zero1:over=ring" or "ring": makes the state of the sharing, which the caller releases, and finds
 * the strategy over which it works. */
static dp_status find_sharing(const char *text, const struct dp_sharing **sharing, void **state,
                              const char **strategy, char *problem, size_t problem_size)
{
    const bool named = dp_plugin_find(&dp_sharings, text, strcspn(text, ":")) != NULL;
    const struct dp_plugin *plugin;

    DP_TRY(dp_plugin_create(&dp_sharings, named ? text : dp_plugin_at(&dp_sharings, 0)->name,
                            &plugin, state, problem, problem_size));
    *sharing = (const struct dp_sharing *)plugin;
    *strategy = named ? (*sharing)->over(*state) : text;
    return DP_OK;
}

dp_status dp_exchange_check(const char *text, bool ordered, char *problem, size_t problem_size)
{
    const struct dp_sharing *sharing;
    const struct dp_plugin *plugin;
    const char *strategy;
    void *sharing_state, *state = NULL;
    dp_status status = DP_OK;

    DP_TRY(find_sharing(text, &sharing, &sharing_state, &strategy, problem, problem_size));
    if (strcmp(strategy, "auto") != 0) {
        status = dp_plugin_create(&dp_strategies, strategy, &plugin, &state, problem, problem_size);
        if (status == DP_OK && ordered) {
            status = dp_comm_check_order((const struct dp_strategy *)plugin, state, NULL, problem,
                                         problem_size);
        }
        dp_free(state);
    }
    dp_free(sharing_state);
    return status;
}

dp_status dp_exchange_supports(const struct dp_group *group, const char *text, const char **why_not)
{
    const struct dp_sharing *sharing;
    const struct dp_plugin *plugin;
    const char *strategy, *reason;
    char problem[256];
    void *state;
    const dp_status status =
        find_sharing(text, &sharing, &state, &strategy, problem, sizeof(problem));

    if (status != DP_OK) {
        return DP_FAIL(status, "comm.strategy: %s", problem);
    }
    strategy = strcmp(strategy, "auto") == 0 ? dp_strategy_choose(group, &reason) : strategy;
    plugin = dp_plugin_find(&dp_strategies, strategy, strcspn(strategy, ":"));
    dp_free(state);
    if (plugin == NULL) {
        return DP_FAIL(DP_ERR_CONFIG, "comm.strategy: unknown strategy in '%s'", text);
    }
    *why_not = NULL;
    if (!((const struct dp_strategy *)plugin)->supports(group, &reason)) {
        *why_not = reason;
    }
    return DP_OK;
}

/* Each rank's parts of all buckets, one behind the other. */
static void place_owned(struct dp_exchange *e, struct dp_flat *flat)
{
    flat->owned = 0;
    for (int b = e->plan->count - 1; b >= 0; b--) {
        struct dp_bucket *bucket = &e->plan->buckets[b];
        if (!bucket->exact) {
            bucket->owned_at = flat->owned;
            flat->owned += e->sharing->mine(e->sharing_state, bucket).count;
        }
    }
}

/* Whether ranks of one node, on any node, got private memory only. */
static dp_status find_apart(struct dp_exchange *e)
{
    struct dp_group *group = e->group;
    dp_status status = DP_OK;

    for (int i = 0; i < group->size; i++) {
        const bool here = group->node_of[i] == group->node_of[group->rank] && i != group->rank;
        if (here && dp_group_peer(group, e->grad, i) == NULL) {
            status = DP_ERR_UNAVAILABLE;
        }
    }
    status = dp_group_agree(group, status);
    group->apart = status == DP_ERR_UNAVAILABLE;
    return group->apart ? DP_OK : status;
}

static dp_status exchange_memory(struct dp_exchange *e, const struct dp_exchange_config *config,
                                 struct dp_flat *flat)
{
    const size_t count = flat->total + dp_round_up(config->scratch_count, DP_BLOCK);

    e->grad = dp_group_memory(e->group, DP_MEM_GRADIENTS, count * sizeof(float));
    e->jobs = dp_zalloc((size_t)e->plan->count, sizeof(*e->jobs));
    e->publishing = dp_zalloc((size_t)e->plan->count, sizeof(*e->publishing));
    e->pending = dp_zalloc((size_t)e->plan->count, sizeof(*e->pending));
    if (e->grad == NULL || e->jobs == NULL || e->publishing == NULL || e->pending == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "gradients need %zu MB", count * sizeof(float) >> 20);
    }
    e->scratch = e->grad + flat->total;
    flat->grad = e->grad;
    return find_apart(e);
}

/* Where ranks update parts of the weights for each other, one copy on the node does for all: the
 * weights are then in one place of the caches, too. */
static dp_status weights_memory(struct dp_exchange *e, struct dp_flat *flat)
{
    const size_t bytes = flat->trained * sizeof(float);

    if (e->sharing->publish == NULL) {
        return DP_OK;
    }
    if (e->comm->strategy->shared && e->group->size > 1) {
        DP_TRY(dp_group_node_memory(e->group, DP_MEM_WEIGHTS, bytes, &e->one_copy));
        e->weights = e->one_copy.data;
    } else {
        e->weights = dp_group_memory(e->group, DP_MEM_WEIGHTS, bytes);
    }
    if (e->weights == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "weights need %zu MB", bytes >> 20);
    }
    flat->weights = e->weights;
    return DP_OK;
}

static dp_status exchange_open(struct dp_exchange *e, const struct dp_exchange_config *config,
                               struct dp_flat *flat)
{
    const char *strategy;
    char problem[256];
    size_t largest;
    dp_status status;
    bool plain;

    DP_TRY(config->device->stream_create(config->device, config->threads, &e->stream));
    e->group->stream = e->stream;
    DP_TRY(dp_bucket_plan_create(flat->tensors, flat->tensor_count, flat->trained, flat->total,
                                 config->first_bucket_bytes / sizeof(float),
                                 config->bucket_bytes / sizeof(float), &e->plan));
    DP_TRY(dp_exchange_compare(e, config, flat));
    DP_TRY(exchange_memory(e, config, flat));
    status = find_sharing(choose(e->group, config->strategy, config->whole), &e->sharing,
                          &e->sharing_state, &strategy, problem, sizeof(problem));
    if (status != DP_OK) {
        return DP_FAIL(status, "comm.strategy: %s", problem);
    }
    largest = e->plan->largest > config->scratch_count ? e->plan->largest : config->scratch_count;
    DP_TRY(dp_comm_create(e->group, strategy, largest,
                          flat->total - flat->trained + config->scratch_count, &e->comm));
    if (config->ordered) {
        status = dp_comm_check_order(e->comm->strategy, e->comm->state, e->group, problem,
                                     sizeof(problem));
    }
    if (status != DP_OK) {
        return DP_FAIL(status, "comm.strategy: %s", problem);
    }
    DP_TRY(weights_memory(e, flat));
    DP_TRY(e->sharing->open(e->sharing_state, e));
    e->open = true;
    place_owned(e, flat);
    plain = &e->sharing->plugin == dp_plugin_at(&dp_sharings, 0);
    (void)snprintf(e->label, sizeof(e->label), "%s%s%s", plain ? "" : e->sharing->plugin.name,
                   plain ? "" : ":over=", e->comm->text);
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
        e->publishing[b] = (struct dp_job){.run = publish_job, .arg = e, .index = b};
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
    if (e->open) {
        e->sharing->close(e->sharing_state);
    }
    dp_free(e->sharing_state);
    dp_comm_destroy(e->comm);
    if (e->one_copy.data != NULL) {
        dp_group_release_node(e->group, &e->one_copy);
    } else {
        dp_group_release(e->group, e->weights);
    }
    dp_group_release(e->group, e->grad);
    dp_free(e->publishing);
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

void dp_exchange_begin(struct dp_exchange *e, bool alone)
{
    e->alone = alone;
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

bool dp_exchange_writes(const struct dp_exchange *e)
{
    return e->one_copy.data == NULL || e->one_copy.writer;
}

bool dp_exchange_parts(const struct dp_exchange *e)
{
    return e->sharing->publish != NULL && e->group->size > 1;
}

dp_status dp_exchange_publish(struct dp_exchange *e, int b)
{
    if (e->sharing->publish == NULL || e->one_copy.data != NULL) {
        return DP_OK;
    }
    e->order = XXH3_64bits_withSeed(&b, sizeof(b), e->order + 1);
    return dp_engine_submit(e->engine, &e->publishing[b]);
}

static dp_status settle_job(void *arg, int index)
{
    (void)index;
    return dp_comm_barrier(((struct dp_exchange *)arg)->comm);
}

dp_status dp_exchange_end(struct dp_exchange *e)
{
    if (e->one_copy.data != NULL) {
        return dp_engine_call(e->engine, settle_job, e);
    }
    for (int b = 0; e->sharing->publish != NULL && b < e->plan->count; b++) {
        const struct dp_job *job = &e->publishing[b];
        if (!e->plan->buckets[b].exact) {
            DP_TRY(dp_engine_wait(e->engine, &e->publishing[b]));
            e->comm_ns += job->end_ns - job->begin_ns;
        }
    }
    return DP_OK;
}

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
    memcpy(e->scratch, r->mine, r->count * sizeof(float));
    DP_TRY(dp_comm_sum_exact(e->comm, (struct dp_slice){e->scratch, r->count, sizeof(float)}));
    memcpy(r->all, e->scratch, r->count * sizeof(float));
    return DP_OK;
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
        const struct dp_range mine = e->sharing->mine(e->sharing_state, bucket);
        if (bucket->exact) {
            continue;
        }
        memcpy(e->grad + mine.begin, (const float *)r->mine + bucket->owned_at,
               mine.count * sizeof(float));
        if (e->sharing->publish != NULL) {
            DP_TRY(dp_comm_gather(e->comm, (struct dp_slice){e->grad + bucket->range.begin,
                                                             bucket->range.count, sizeof(float)}));
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
            DP_TRY(ops->copy(e->stream, grad, data + range.begin, range.count * sizeof(float)));
            DP_TRY(dp_comm_sum(e->comm, (struct dp_slice){grad, range.count, sizeof(float)},
                               DP_KEEP_ALL));
            DP_TRY(ops->scale(e->stream, data + range.begin, grad, 1.0f / (float)e->group->size,
                              range.count));
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
