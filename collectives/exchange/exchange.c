#include "collectives/exchange/exchange.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/trace.h"
#include "collectives/core/message_check.h"
#include "collectives/exchange/exchange_own.h"
#include "collectives/gpu/gpu_peers.h"
#include "kernels/stream_trace.h"

/* ---- creating ---- */

/* Whether deferred buckets are possible. It must be replicated on several nodes' hosts, so that
 * only this rank changes its weights. A compressor must not depend on where buckets are cut. */
static bool may_defer(const struct dp_group *group, const struct dp_exchange_config *config)
{
    const char *text = config->strategy;
    const struct dp_plugin *named = dp_plugin_find(&dp_shardings, text, strcspn(text, ":"));
    /* The name of a strategy means the plain sharding; on several nodes `auto` chooses that,
     * too. */
    const bool replicated =
        named == NULL || dp_sharding_is_plain((const struct dp_sharding *)named);

    return config->deferred && group->nodes > 1 && config->servers == 0 && !config->whole &&
           config->device->host_memory && replicated && strcmp(text, "none") != 0 &&
           dp_compressor_is_elementwise(config->compressor);
}

/* Opens the stream on which sums run on the host, and this rank's GPU if it has one. */
static dp_status open_streams(struct dp_exchange *e, const struct dp_exchange_config *config)
{
    const struct dp_device *host = config->device;

    if (!config->device->host_memory) {
        DP_TRY(dp_device_find("cpu", &host));
        DP_TRY(dp_gpu_peers_create(e->group, config->device));
    }
    DP_TRY(host->stream_create(host, config->threads, &e->stream));
    e->group->stream = e->stream;
    return DP_OK;
}

/* Opens the sharding, its strategy on the host, and the one on GPUs. */
static dp_status open_strategy(struct dp_exchange *e, const struct dp_exchange_config *config,
                               const struct dp_flat *flat)
{
    const size_t largest =
        e->plan->largest > e->scratch_count ? e->plan->largest : e->scratch_count;
    const size_t small = flat->total - flat->trained + e->scratch_count;
    const char *strategy;
    char problem[256];
    dp_status status;

    DP_TRY(dp_strategy_select(e->group, config, e->plan, &e->selection));
    status = dp_sharding_create(e->selection.text, &e->sharding, &e->sharding_state, &strategy,
                                problem, sizeof(problem));
    if (status != DP_OK) {
        return DP_FAIL(status, "comm.strategy: %s", problem);
    }
    DP_TRY(dp_exchange_open_gpus(e, config, largest, &strategy));
    DP_TRY(dp_comm_create(e->group, strategy, largest, small, &e->comm));
    if (config->ordered) {
        status = dp_comm_check_order(e->comm->strategy, e->comm->state, e->group, problem,
                                     sizeof(problem));
    }
    return status == DP_OK ? DP_OK : DP_FAIL(status, "comm.strategy: %s", problem);
}

/* Opens the compressor, which makes its codes on the gradient's device. */
static dp_status open_compression(struct dp_exchange *e, const struct dp_exchange_config *config,
                                  const struct dp_flat *flat)
{
    const struct dp_compression_config compression = {config->compressor, config->step_params,
                                                      config->seed};

    if (e->staging != NULL && config->compressor != NULL) {
        const struct dp_device *device = dp_staging_device(e->staging);
        DP_TRY(device->stream_create(device, 1, &e->codes));
        dp_stream_set_lane(e->codes, DP_LANE_GPU_COMMUNICATION, 1); /* 0: gpu_peers.c */
        e->comm->codes = e->codes;
    }
    return dp_compression_create(e->comm, e->plan, flat->grad, flat->trained, &compression,
                                 &e->compression);
}

/* Places each rank's parts of all buckets, one after the other. */
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

static void write_label(struct dp_exchange *e)
{
    const bool plain = dp_sharding_is_plain(e->sharding);

    (void)snprintf(e->label, sizeof(e->label), "%s%s%s", plain ? "" : e->sharding->plugin.name,
                   plain ? "" : ":over=", e->gpus != NULL ? e->gpus->text : e->comm->text);
    if (e->selection.why[0] == '\0' && e->gpus == NULL) {
        (void)snprintf(e->selection.why, sizeof(e->selection.why), "%s", e->comm->why);
    }
}

static dp_status exchange_open(struct dp_exchange *e, const struct dp_exchange_config *config,
                               struct dp_flat *flat)
{
    const struct dp_bucket_sizes sizes = {config->first_bucket_bytes / sizeof(float),
                                          config->bucket_bytes / sizeof(float),
                                          may_defer(e->group, config)};

    DP_TRY(config->checked ? dp_message_checks_begin(e->group) : DP_OK);
    DP_TRY(open_streams(e, config));
    DP_TRY(dp_bucket_plan_create(flat->tensors, flat->tensor_count, flat->trained, flat->total,
                                 &sizes, &e->plan));
    DP_TRY(dp_exchange_compare(e->group, e->plan, config, flat));
    DP_TRY(dp_exchange_take_gradients(e, config, flat));
    DP_TRY(open_strategy(e, config, flat));
    DP_TRY(dp_exchange_take_weights(e, flat));
    DP_TRY(open_compression(e, config, flat));
    DP_TRY(e->sharding->open(e->sharding_state, e));
    e->open = true;
    place_owned(e, flat);
    write_label(e);
    DP_TRY(dp_exchange_make_jobs(e));
    DP_TRY(dp_bucket_times_create(e->plan->count, &e->times));
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
    *out = e;
    return DP_OK;
}

void dp_exchange_destroy(struct dp_exchange *e)
{
    if (e == NULL) {
        return;
    }
    dp_engine_destroy(e->engine);
    dp_free(e->buckets);
    dp_bucket_times_destroy(e->times);
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
    dp_exchange_release_memory(e);
    dp_message_checks_end(e->group);
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
        dp_staging_follow(e->staging, stream, e->gpu_weights != NULL ? e->gpu_weights : weights,
                          e->weights, e->width);
    }
}

void dp_exchange_set_run(struct dp_exchange *e, enum dp_run run)
{
    dp_engine_set_run(e->engine, run);
    e->stream->threads = run == DP_RUN_AT_WAIT ? e->threads : 1;
}

enum dp_run dp_exchange_run(const struct dp_exchange *e)
{
    return dp_engine_run(e->engine);
}

/* ---- a step ---- */

void dp_exchange_defer(struct dp_exchange *e, bool on)
{
    e->defers = on && e->plan->deferred > 0;
}

bool dp_exchange_defers(const struct dp_exchange *e)
{
    return e->defers;
}

void dp_exchange_begin(struct dp_exchange *e, bool alone)
{
    e->alone = alone;
    for (int b = 0; b < e->plan->count; b++) {
        e->buckets[b].pending = e->plan->buckets[b].tensor_count;
    }
    e->submitted = 0;
    dp_bucket_times_begin(e->times, dp_trace_step_ns());
}

void dp_exchange_keep(struct dp_exchange *e, int b, float *copy)
{
    e->kept = copy;
    e->kept_bucket = b;
}

static dp_status submit(struct dp_exchange *e, int b)
{
    if (e->kept != NULL && e->kept_bucket == b) {
        const struct dp_range range = e->plan->buckets[b].range;
        memcpy(e->kept, e->grad + range.begin, range.count * sizeof(float));
        e->kept = NULL;
    }
    dp_compression_ready(e->compression, b);
    e->order = XXH3_64bits_withSeed(&b, sizeof(b), e->order);
    DP_TRY(dp_exchange_hand_over(e, b));
    dp_bucket_times_submitted(e->times, b);
    return dp_engine_submit(e->engine, &e->buckets[b].sum);
}

dp_status dp_exchange_ready(struct dp_exchange *e, int tensor)
{
    const int b = e->plan->bucket_of[tensor];

    if (--e->buckets[b].pending > 0) {
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

bool dp_exchange_is_deferred(const struct dp_exchange *e, int b)
{
    return e->defers && e->plan->buckets[b].deferred;
}

/* Waits for the job of a bucket. */
static dp_status wait_for(struct dp_exchange *e, struct dp_job *job)
{
    DP_TRY(dp_engine_wait(e->engine, job));
    e->comm_ns += job->end_ns - job->begin_ns;
    return DP_OK;
}

dp_status dp_exchange_wait(struct dp_exchange *e, int b)
{
    struct dp_job *job = &e->buckets[b].sum;
    struct dp_bucket_time time = {.wait_ns = dp_now_ns()};
    struct dp_coding_times coding;

    DP_TRY(wait_for(e, job));
    coding = dp_compression_coding(e->compression, b);
    dp_bucket_times_coded(e->times, b, coding.encode_ns, coding.decode_ns);
    time.ready_ns = job->ready_ns;
    time.wait_ended_ns = dp_now_ns();
    dp_bucket_times_summed(e->times, b, &time, job->begin_ns, job->end_ns);
    return dp_exchange_take_sum(e, b);
}

struct dp_range dp_exchange_mine(const struct dp_exchange *e, int b)
{
    return e->sharding->mine(e->sharding_state, &e->plan->buckets[b]);
}

dp_status dp_exchange_publish(struct dp_exchange *e, int b)
{
    if (!dp_exchange_publishes(e)) {
        return DP_OK;
    }
    e->order = XXH3_64bits_withSeed(&b, sizeof(b), e->order + 1);
    DP_TRY(dp_exchange_begin_publish(e, b));
    return dp_engine_submit(e->engine, &e->buckets[b].publish);
}

static dp_status barrier_job(void *arg, int index)
{
    (void)index;
    return dp_comm_barrier(((struct dp_exchange *)arg)->comm);
}

/* Until all ranks have written their part of the one copy. */
static dp_status wait_for_writers(struct dp_exchange *e)
{
    const uint64_t begin_ns = dp_now_ns();

    DP_TRY(dp_engine_call(e->engine, barrier_job, e));
    e->times->end_wait_ns += dp_now_ns() - begin_ns;
    return DP_OK;
}

dp_status dp_exchange_end(struct dp_exchange *e)
{
    if (e->one_copy.data != NULL) {
        return wait_for_writers(e);
    }
    for (int b = 0; dp_exchange_publishes(e) && b < e->plan->count; b++) {
        if (!e->plan->buckets[b].exact) {
            const uint64_t begin_ns = dp_now_ns();
            DP_TRY(wait_for(e, &e->buckets[b].publish));
            dp_bucket_times_exposed(e->times, b, dp_now_ns() - begin_ns);
            DP_TRY(dp_exchange_end_publish(e, b));
        }
    }
    for (int b = 0; e->gpus != NULL && b < e->plan->count - 1; b++) {
        DP_TRY(dp_exchange_wait_device(e, b));
    }
    return DP_OK;
}

/* ---- what there is to know ---- */

struct dp_group *dp_exchange_group(const struct dp_exchange *e)
{
    return e->group;
}

const struct dp_bucket_plan *dp_exchange_plan(const struct dp_exchange *e)
{
    return e->plan;
}

float *dp_exchange_host_gradient(const struct dp_exchange *e)
{
    return e->grad;
}

const struct dp_compression *dp_exchange_compression(const struct dp_exchange *e)
{
    return e->compression;
}

bool dp_exchange_sums(const struct dp_exchange *e)
{
    return e->comm->strategy->sum != NULL;
}

bool dp_exchange_sums_on_gpus(const struct dp_exchange *e)
{
    return e->gpus != NULL && e->group->size > 1;
}

bool dp_exchange_keeps_order(const struct dp_exchange *e)
{
    return e->sharding->sum != NULL ||
           dp_strategy_keeps_order(e->comm->strategy, e->comm->state, e->group);
}

bool dp_exchange_is_sharded(const struct dp_exchange *e)
{
    return e->sharding->gather != NULL && e->group->size > 1;
}

bool dp_exchange_has_one_copy(const struct dp_exchange *e)
{
    return e->one_copy.data != NULL;
}

bool dp_exchange_writes(const struct dp_exchange *e)
{
    return e->one_copy.data == NULL || e->one_copy.writer;
}

/* Whether it is the last one of its bucket that becomes ready. */
static bool ends_bucket(const struct dp_exchange *e, int tensor)
{
    const int *bucket_of = e->plan->bucket_of;

    return tensor == 0 || bucket_of[tensor - 1] != bucket_of[tensor];
}

bool dp_exchange_hands_over(const struct dp_exchange *e, int tensor)
{
    return e->group->size > 1 && ends_bucket(e, tensor);
}

size_t dp_exchange_deferred_part(const struct dp_exchange *e, int tensor)
{
    const struct dp_bucket *next = &e->plan->buckets[e->plan->bucket_of[tensor] + 1];

    return e->defers && next->deferred && ends_bucket(e, tensor) ? next->range.count : 0;
}

const char *dp_exchange_label(const struct dp_exchange *e)
{
    return e->label;
}

const char *dp_exchange_sharding(const struct dp_exchange *e)
{
    return e->sharding->plugin.name;
}

const char *dp_exchange_why(const struct dp_exchange *e)
{
    return e->selection.why;
}

bool dp_exchange_measured(const struct dp_exchange *e)
{
    return e->selection.measured;
}

uint64_t dp_exchange_order(const struct dp_exchange *e)
{
    return e->order;
}

uint64_t dp_exchange_comm_ns(const struct dp_exchange *e)
{
    return e->comm_ns;
}

const struct dp_bucket_times *dp_exchange_times(const struct dp_exchange *e)
{
    return e->times;
}

void dp_exchange_restart_times(struct dp_exchange *e)
{
    dp_bucket_times_restart(e->times);
}

uint64_t dp_exchange_wire(const struct dp_exchange *e)
{
    return dp_engine_wire(e->engine);
}

bool dp_exchange_compressed_wire(const struct dp_exchange *e, uint64_t *with, uint64_t *without)
{
    if (e->compression != NULL) {
        dp_compression_wire(e->compression, e->sharding->keep, with, without);
    }
    return e->compression != NULL;
}
