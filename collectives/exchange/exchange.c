#include "collectives/exchange/exchange.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "collectives/gpu/gpu_peers.h"

/* Whether bucket b of this step travels: then it has to be where the ranks can reach it. */
static bool travels(const struct dp_exchange *e, int b)
{
    return e->plan->buckets[b].exact || (e->group->size > 1 && !e->alone &&
                                         (e->comm->strategy->sum != NULL || e->sharding->sums));
}

/* Whether codes of bucket b leave the device, and not its numbers. */
static bool coded(const struct dp_exchange *e, int b)
{
    return e->compression != NULL && !e->plan->buckets[b].exact && !e->sharding->sums;
}

/* Whether it is summed on GPUs, where it is. */
static bool stays(const struct dp_exchange *e, int b)
{
    return e->gpus != NULL && travels(e, b) && !e->plan->buckets[b].exact;
}

/* Whether pieces of it may be summed as they come: all of each is wanted by everybody. */
static bool flows(const struct dp_exchange *e, int b)
{
    return e->staging != NULL && e->sharding->gather == NULL && !e->sharding->sums &&
           e->compression == NULL && !e->plan->buckets[b].exact;
}

static dp_status job_on_gpus(struct dp_exchange *e, int b)
{
    struct dp_stream *stream = e->group->gpus->stream;

    DP_TRY(dp_staging_begin(e->staging, b, stream));
    DP_TRY(e->sharding->reduce(e->sharding_state, b));
    return dp_staging_end(e->staging, b, stream);
}

static dp_status job_of_codes(struct dp_exchange *e, int b)
{
    DP_TRY(dp_staging_arrive(e->staging, b, 0, e->group->cancel));
    DP_TRY(e->sharding->reduce(e->sharding_state, b));
    return dp_staging_end(e->staging, b, e->codes);
}

static dp_status bucket_job(void *arg, int b)
{
    struct dp_exchange *e = arg;
    const bool through = e->staging != NULL && travels(e, b);
    const int pieces = through ? dp_staging_pieces(e->staging, b) : 0;

    if (stays(e, b)) {
        return job_on_gpus(e, b);
    }
    if (through && coded(e, b)) {
        return job_of_codes(e, b);
    }
    if (through && !flows(e, b)) {
        DP_TRY(dp_staging_arrive(e->staging, b, pieces - 1, e->group->cancel));
    }
    DP_TRY(e->sharding->reduce(e->sharding_state, b));
    if (through && !flows(e, b) && e->group->size > 1) {
        const struct dp_range made = dp_staging_piece(e->staging, b, 0);
        struct dp_range mine = e->sharding->mine(e->sharding_state, &e->plan->buckets[b]);
        mine.count = e->plan->buckets[b].exact ? made.count : mine.count;
        return dp_staging_in(e->staging, b, mine);
    }
    return DP_OK;
}

/* The sum of each piece goes back while the next one is summed. */
static dp_status sum_pieces(struct dp_exchange *e, int b)
{
    for (int i = 0; i < dp_staging_pieces(e->staging, b); i++) {
        const struct dp_range piece = dp_staging_piece(e->staging, b, i);
        const struct dp_slice data = {e->grad + piece.begin, piece.count, sizeof(float)};
        DP_TRY(dp_staging_arrive(e->staging, b, i, e->group->cancel));
        DP_TRY(dp_comm_sum(e->comm, data, DP_KEEP_ALL));
        DP_TRY(dp_staging_in(e->staging, b, piece));
    }
    return DP_OK;
}

static dp_status publish_job(void *arg, int b)
{
    struct dp_exchange *e = arg;

    if (e->staging != NULL) {
        DP_TRY(dp_staging_arrive(e->staging, b, 0, e->group->cancel));
    }
    return e->sharding->gather(e->sharding_state, b, e->weights, e->width);
}

/* Each rank's parts of all buckets, one behind the other. */
static void place_owned(struct dp_exchange *e, struct dp_flat *flat)
{
    flat->owned = 0;
    for (int b = e->plan->count - 1; b >= 0; b--) {
        struct dp_bucket *bucket = &e->plan->buckets[b];
        if (!bucket->exact) {
            bucket->owned_at = flat->owned;
            flat->owned += e->sharding->mine(e->sharding_state, bucket).count;
        }
    }
}

static dp_status exchange_memory(struct dp_exchange *e, const struct dp_exchange_config *config,
                                 struct dp_flat *flat)
{
    const size_t count = flat->total + dp_round_up(config->scratch_count, DP_BLOCK);

    e->group->apart = false; /* what had no room before is no matter of sums */
    e->grad = dp_group_memory(e->group, DP_MEM_GRADIENTS, count * sizeof(float));
    e->jobs = dp_zalloc((size_t)e->plan->count, sizeof(*e->jobs));
    e->publishing = dp_zalloc((size_t)e->plan->count, sizeof(*e->publishing));
    e->pending = dp_zalloc((size_t)e->plan->count, sizeof(*e->pending));
    if (e->grad == NULL || e->jobs == NULL || e->publishing == NULL || e->pending == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "gradients need %zu MB", count * sizeof(float) >> 20);
    }
    e->scratch = e->grad + flat->total;
    flat->grad = e->grad;
    if (!config->device->host_memory) {
        const struct dp_staging_config staging = {
            .device = config->device,
            .plan = e->plan,
            .host = e->grad,
            .total = flat->total,
            .tail = config->tail_made,
        };
        DP_TRY(dp_staging_create(e->group, &staging, &e->staging));
        flat->grad = dp_staging_gradient(e->staging);
    }
    return DP_OK;
}

/* One copy of the weights for all ranks, unless there is no room for it: then none. */
static dp_status one_copy(struct dp_exchange *e, size_t bytes)
{
    DP_TRY(dp_group_node_memory(e->group, DP_MEM_WEIGHTS, bytes, &e->one_copy));
    if (!dp_group_reaches(e->group, e->one_copy.handle)) {
        dp_group_release_node(e->group, &e->one_copy);
    }
    e->weights = e->one_copy.data;
    return DP_OK;
}

/* Where ranks update parts of the weights for each other, one copy on the node does for all: the
 * weights are then in one place of the caches, too. */
static dp_status weights_memory(struct dp_exchange *e, struct dp_flat *flat)
{
    const size_t bytes = flat->trained * dp_type_bytes(flat->type);

    e->width = dp_type_bytes(flat->type);
    if (e->sharding->gather == NULL) {
        return DP_OK;
    }
    /* A server may write while another one, which brings nothing to its sums, still reads. */
    if (e->comm->strategy->shared && e->group->size > 1 && e->servers == 0 && e->staging == NULL) {
        DP_TRY(one_copy(e, bytes));
    }
    if (e->weights == NULL) {
        e->weights = dp_group_memory(e->group, DP_MEM_WEIGHTS, bytes);
    }
    if (e->weights == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "weights need %zu MB", bytes >> 20);
    }
    flat->weights = e->staging == NULL ? e->weights : NULL; /* or the device's own */
    return DP_OK;
}

/* A compressor makes its codes where the gradient is made. */
static dp_status parcels_create(struct dp_exchange *e, const struct dp_compression_config *config,
                                const struct dp_flat *flat)
{
    if (e->staging != NULL && config->compressor != NULL) {
        const struct dp_device *device = dp_staging_device(e->staging);
        DP_TRY(device->stream_create(device, 1, &e->codes));
        e->comm->codes = e->codes;
    }
    return dp_compression_create(e->comm, e->plan, flat->grad, flat->trained, config,
                                 &e->compression);
}

static dp_status exchange_open(struct dp_exchange *e, const struct dp_exchange_config *config,
                               struct dp_flat *flat)
{
    const struct dp_compression_config compression = {config->compressor, config->step_params,
                                                      config->seed};
    const struct dp_bucket_sizes sizes = {config->first_bucket_bytes / sizeof(float),
                                          config->bucket_bytes / sizeof(float),
                                          dp_exchange_may_defer(e, config)};
    const struct dp_device *host = config->device;
    struct dp_strategy_autotune_result room;
    const char *text, *strategy;
    char problem[256];
    size_t largest;
    dp_status status;
    bool plain;

    if (!config->device->host_memory) { /* what is shared is summed on the host, or on GPUs */
        DP_TRY(dp_device_find("cpu", &host));
        DP_TRY(dp_gpu_peers_create(e->group, config->device));
    }
    DP_TRY(host->stream_create(host, config->threads, &e->stream));
    e->group->stream = e->stream;
    DP_TRY(dp_bucket_plan_create(flat->tensors, flat->tensor_count, flat->trained, flat->total,
                                 &sizes, &e->plan));
    DP_TRY(dp_exchange_compare(e, config, flat));
    DP_TRY(exchange_memory(e, config, flat));
    DP_TRY(dp_exchange_choose(e, config, &room, &text));
    status = dp_exchange_find_sharding(text, &e->sharding, &e->sharding_state, &strategy, problem,
                                       sizeof(problem));
    if (status != DP_OK) {
        return DP_FAIL(status, "comm.strategy: %s", problem);
    }
    largest = e->plan->largest > config->scratch_count ? e->plan->largest : config->scratch_count;
    DP_TRY(dp_exchange_open_gpus(e, config, largest, &strategy));
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
    DP_TRY(parcels_create(e, &compression, flat));
    DP_TRY(e->sharding->open(e->sharding_state, e));
    e->open = true;
    place_owned(e, flat);
    plain = &e->sharding->plugin == dp_plugin_at(&dp_shardings, 0);
    (void)snprintf(e->label, sizeof(e->label), "%s%s%s", plain ? "" : e->sharding->plugin.name,
                   plain ? "" : ":over=", e->gpus != NULL ? e->gpus->text : e->comm->text);
    if (e->why[0] == '\0' && e->gpus == NULL) {
        (void)snprintf(e->why, sizeof(e->why), "%s", e->comm->why);
    }
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
    group->ordered = config->ordered;
    e->threads = config->threads;
    e->servers = config->servers;
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
        e->sharding->close(e->sharding_state);
    }
    dp_free(e->sharding_state);
    dp_compression_destroy(e->compression);
    dp_comm_destroy(e->gpus);
    dp_comm_destroy(e->comm);
    if (e->codes != NULL) {
        e->codes->device->stream_destroy(e->codes);
    }
    if (e->one_copy.data != NULL) {
        dp_group_release_node(e->group, &e->one_copy);
    } else {
        dp_group_release(e->group, e->weights);
    }
    dp_staging_destroy(e->staging);
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

void dp_exchange_follow(struct dp_exchange *e, struct dp_stream *stream, void *weights)
{
    if (e->staging != NULL) {
        dp_staging_follow(e->staging, stream, weights, e->weights, e->width);
    }
}

void dp_exchange_set_run(struct dp_exchange *e, enum dp_run run)
{
    dp_engine_set_run(e->engine, run);
    e->stream->threads = run == DP_RUN_AT_WAIT ? e->threads : 1;
}

void dp_exchange_defer(struct dp_exchange *e, bool on)
{
    e->defers = on && e->plan->deferred > 0;
}

uint64_t dp_exchange_wire(const struct dp_exchange *e)
{
    return dp_engine_wire(e->engine);
}

void dp_exchange_begin(struct dp_exchange *e, bool alone)
{
    if (e->alone != alone) { /* never while jobs of deferred buckets, which read it, run */
        e->alone = alone;
    }
    for (int b = 0; b < e->plan->count; b++) {
        e->pending[b] = e->plan->buckets[b].tensor_count;
    }
    e->submitted = 0;
}

/* What makes bucket b is queued: it goes to where it is summed, behind that. */
static dp_status hand_over(struct dp_exchange *e, int b)
{
    if (e->staging == NULL || !travels(e, b)) {
        return DP_OK;
    }
    return stays(e, b) || coded(e, b) ? dp_staging_ready(e->staging, b)
                                      : dp_staging_out(e->staging, b);
}

static dp_status submit(struct dp_exchange *e, int b)
{
    dp_compression_ready(e->compression, b);
    e->order = XXH3_64bits_withSeed(&b, sizeof(b), e->order);
    DP_TRY(hand_over(e, b));
    return dp_engine_submit(e->engine, &e->jobs[b]);
}

dp_status dp_exchange_ready(struct dp_exchange *e, int tensor)
{
    const int b = e->plan->bucket_of[tensor];

    if (--e->pending[b] > 0) {
        return DP_OK;
    }
    assert(b == e->submitted);
    e->submitted++;
    DP_TRY(submit(e, b));
    if (!e->plan->buckets[b + 1].deferred) {
        return DP_OK;
    }
    e->submitted++;
    return e->defers ? DP_OK : submit(e, b + 1);
}

bool dp_exchange_hands_over(const struct dp_exchange *e, int tensor)
{
    const int *bucket_of = e->plan->bucket_of;

    return e->group->size > 1 && (tensor == 0 || bucket_of[tensor - 1] != bucket_of[tensor]);
}

dp_status dp_exchange_ready_tail(struct dp_exchange *e)
{
    assert(e->submitted == e->plan->count - 1);
    e->submitted++;
    DP_TRY(submit(e, e->plan->count - 1));
    for (int b = e->plan->count - 1; b >= 0; b--) {
        DP_TRY(dp_exchange_is_deferred(e, b) ? submit(e, b) : DP_OK);
    }
    return DP_OK;
}

dp_status dp_exchange_reduce(struct dp_exchange *e, int b, enum dp_keep keep)
{
    const struct dp_bucket *bucket = &e->plan->buckets[b];
    float *array = stays(e, b) ? dp_staging_gradient(e->staging) : e->grad;
    const struct dp_slice grad = {array + bucket->range.begin, bucket->range.count, sizeof(float)};

    if (bucket->exact) {
        return dp_comm_sum_exact(e->comm, grad);
    }
    if (e->alone) {
        return DP_OK;
    }
    if (stays(e, b)) {
        return dp_comm_sum(e->gpus, grad, keep);
    }
    if (travels(e, b) && flows(e, b)) {
        return sum_pieces(e, b);
    }
    return e->compression != NULL ? dp_compression_sum(e->compression, b, keep)
                                  : dp_comm_sum(e->comm, grad, keep);
}

dp_status dp_exchange_wait(struct dp_exchange *e, int b)
{
    const struct dp_job *job = &e->jobs[b];

    DP_TRY(dp_engine_wait(e->engine, &e->jobs[b]));
    e->comm_ns += job->end_ns - job->begin_ns;
    return e->staging != NULL && travels(e, b) && e->group->size > 1
               ? dp_staging_take(e->staging, b)
               : DP_OK;
}

struct dp_range dp_exchange_mine(const struct dp_exchange *e, int b)
{
    return e->sharding->mine(e->sharding_state, &e->plan->buckets[b]);
}

bool dp_exchange_writes(const struct dp_exchange *e)
{
    return e->one_copy.data == NULL || e->one_copy.writer;
}

bool dp_exchange_parts(const struct dp_exchange *e)
{
    return e->sharding->gather != NULL && e->group->size > 1;
}

dp_status dp_exchange_publish(struct dp_exchange *e, int b)
{
    if (e->sharding->gather == NULL || e->one_copy.data != NULL) {
        return DP_OK;
    }
    e->order = XXH3_64bits_withSeed(&b, sizeof(b), e->order + 1);
    if (e->staging != NULL) {
        DP_TRY(dp_staging_weights_out(e->staging, b, dp_exchange_mine(e, b)));
    }
    return dp_engine_submit(e->engine, &e->publishing[b]);
}

dp_status dp_exchange_share_now(struct dp_exchange *e, int b)
{
    DP_TRY(hand_over(e, b));
    DP_TRY(bucket_job(e, b));
    return e->staging != NULL ? dp_exchange_settle(e, b) : DP_OK;
}

dp_status dp_exchange_publish_now(struct dp_exchange *e, int b)
{
    if (e->one_copy.data != NULL) {
        return dp_comm_barrier(e->comm);
    }
    if (e->staging == NULL) {
        return publish_job(e, b);
    }
    DP_TRY(dp_staging_weights_out(e->staging, b, dp_exchange_mine(e, b)));
    DP_TRY(publish_job(e, b));
    return dp_staging_weights_in(e->staging, b);
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
    for (int b = 0; e->sharding->gather != NULL && b < e->plan->count; b++) {
        const struct dp_job *job = &e->publishing[b];
        if (!e->plan->buckets[b].exact) {
            DP_TRY(dp_engine_wait(e->engine, &e->publishing[b]));
            e->comm_ns += job->end_ns - job->begin_ns;
            DP_TRY(e->staging != NULL ? dp_staging_weights_in(e->staging, b) : DP_OK);
        }
    }
    for (int b = 0; e->gpus != NULL && b < e->plan->count - 1; b++) {
        DP_TRY(dp_exchange_settle(e, b)); /* what fails on a GPU is found out meanwhile */
    }
    return DP_OK;
}
