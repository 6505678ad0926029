/*
 * exchange_jobs.c - the jobs of buckets: the route that each takes to its sum, and the work before,
 * in and after its job.
 */
#include "base/trace.h"
#include "collectives/exchange/exchange_own.h"
#include "collectives/gpu/gpu_peers.h"
#include "kernels/stream_trace.h"

/* All buckets but the tail take the same route; exchange_gpus.c says why the tail goes through the
 * host. */
static enum dp_route find_route(const struct dp_exchange *e, int b)
{
    const bool sharded = e->sharding->gather != NULL || e->sharding->sum != NULL;

    if (e->plan->buckets[b].exact) {
        return e->staging != NULL ? DP_ROUTE_STAGED : DP_ROUTE_HOST;
    }
    if (e->comm->strategy->sum == NULL && e->sharding->sum == NULL) {
        return DP_ROUTE_LOCAL;
    }
    if (e->staging == NULL) {
        return DP_ROUTE_HOST;
    }
    if (e->group->size == 1) {
        return DP_ROUTE_LOCAL;
    }
    if (e->gpus != NULL) {
        return DP_ROUTE_GPU;
    }
    if (e->compression != NULL) {
        return DP_ROUTE_STAGED_CODES;
    }
    /* Pieces may be summed as they come if all ranks need the whole sum. */
    return sharded ? DP_ROUTE_STAGED : DP_ROUTE_STAGED_PIECES;
}

/* What of the gradient crosses the host, all of it or the tail, and the scratch memory after it. */
static struct dp_range crossing(const struct dp_exchange *e)
{
    struct dp_range range = {e->plan->buckets[e->plan->count - 1].range.begin, 0};
    const size_t end = (size_t)(e->scratch - e->grad) + e->scratch_count;

    for (int b = 0; b < e->plan->count; b++) {
        const enum dp_route route = e->buckets[b].route;
        if (route == DP_ROUTE_STAGED || route == DP_ROUTE_STAGED_PIECES) {
            const size_t begin = e->plan->buckets[b].range.begin;
            range.begin = begin < range.begin ? begin : range.begin;
        }
    }
    range.count = end - range.begin;
    return range;
}

dp_status dp_exchange_make_jobs(struct dp_exchange *e)
{
    e->buckets = dp_zalloc((size_t)e->plan->count, sizeof(*e->buckets));
    if (e->buckets == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "jobs of %d buckets", e->plan->count);
    }
    for (int b = 0; b < e->plan->count; b++) {
        e->buckets[b] = (struct dp_exchange_bucket){
            .route = find_route(e, b),
            .sum = {.arg = e, .index = b, .what = DP_TRACE_BUCKET}, /* its function:
                                                                      * dp_exchange_hand_over() */
            .publish = {.run = dp_exchange_publish_job,
                        .arg = e,
                        .index = b,
                        .what = DP_TRACE_PUBLISH},
        };
    }
    if (e->staging != NULL) {
        dp_staging_pin(e->staging, crossing(e));
    }
    return DP_OK;
}

/* The route in this step: local steps share only the tail. */
static enum dp_route route_of(const struct dp_exchange *e, int b)
{
    return e->alone && !e->plan->buckets[b].exact ? DP_ROUTE_LOCAL : e->buckets[b].route;
}

static struct dp_slice gradient_of(const struct dp_exchange *e, int b, float *array)
{
    const struct dp_range range = e->plan->buckets[b].range;

    return (struct dp_slice){array + range.begin, range.count, sizeof(float)};
}

static dp_status sum_nothing(void *exchange, int b)
{
    (void)exchange;
    (void)b;
    return DP_OK;
}

/* Sums a bucket in host memory: the tail exactly, others through the compressor if there is one. */
static dp_status sum_on_host(void *exchange, int b)
{
    struct dp_exchange *e = exchange;
    const struct dp_slice gradient = gradient_of(e, b, e->grad);

    if (e->plan->buckets[b].exact) {
        return dp_comm_sum_exact(e->comm, gradient);
    }
    if (e->sharding->sum != NULL) {
        return e->sharding->sum(e->sharding_state, gradient);
    }
    return e->compression != NULL ? dp_compression_sum(e->compression, b, e->sharding->keep)
                                  : dp_comm_sum(e->comm, gradient, e->sharding->keep);
}

/* Waits for the first piece of a bucket. A device computes after it was asked to: a bucket is
 * ready, and its communication begins, when it is there. */
static dp_status wait_for_bucket(struct dp_exchange *e, int b)
{
    struct dp_job *job = &e->buckets[b].sum;

    DP_TRY(dp_staging_wait(e->staging, b, 0, e->group->cancel));
    job->ready_ns = job->begin_ns = dp_now_ns();
    return DP_OK;
}

/* Copies back the part of the sum that this rank needs; of the tail, what the device has made. */
static dp_status sum_staged(void *exchange, int b)
{
    struct dp_exchange *e = exchange;
    const struct dp_bucket *bucket = &e->plan->buckets[b];
    const struct dp_range made = dp_staging_piece(e->staging, b, 0);
    struct dp_range mine = e->sharding->mine(e->sharding_state, bucket);

    DP_TRY(wait_for_bucket(e, b));
    DP_TRY(dp_staging_wait(e->staging, b, dp_staging_pieces(e->staging, b) - 1, e->group->cancel));
    DP_TRY(sum_on_host(exchange, b));
    mine.count = bucket->exact ? made.count : mine.count;
    return e->group->size > 1 ? dp_staging_upload(e->staging, b, mine) : DP_OK;
}

/* The sum of each piece is copied back while the next piece is summed. */
static dp_status sum_pieces(void *exchange, int b)
{
    struct dp_exchange *e = exchange;

    DP_TRY(wait_for_bucket(e, b));
    for (int i = 0; i < dp_staging_pieces(e->staging, b); i++) {
        const struct dp_range piece = dp_staging_piece(e->staging, b, i);
        const struct dp_slice data = {e->grad + piece.begin, piece.count, sizeof(float)};
        DP_TRY(dp_staging_wait(e->staging, b, i, e->group->cancel));
        DP_TRY(dp_comm_sum(e->comm, data, DP_KEEP_ALL));
        DP_TRY(dp_staging_upload(e->staging, b, piece));
    }
    return DP_OK;
}

static dp_status sum_codes(void *exchange, int b)
{
    struct dp_exchange *e = exchange;

    DP_TRY(wait_for_bucket(e, b));
    DP_STREAM_SPAN(e->codes, DP_WORK_SUM, b);
    DP_TRY(dp_compression_sum(e->compression, b, e->sharding->keep));
    return dp_staging_end(e->staging, b, e->codes);
}

static dp_status sum_on_gpus(void *exchange, int b)
{
    const struct dp_exchange *e = exchange;
    struct dp_stream *stream = e->group->gpus->stream;
    const struct dp_slice gradient = gradient_of(e, b, dp_staging_gradient(e->staging));

    DP_TRY(dp_staging_begin(e->staging, b, stream));
    DP_STREAM_SPAN(stream, DP_WORK_SUM, b);
    DP_TRY(dp_comm_sum(e->gpus, gradient, e->sharding->keep));
    return dp_staging_end(e->staging, b, stream);
}

/* What each route does before a bucket's job, when the bucket's computation is queued, and the
 * job's function. */
static const struct {
    dp_status (*hand_over)(struct dp_staging *staging, int b);
    dp_status (*sum)(void *exchange, int b);
} steps[] = {
    [DP_ROUTE_LOCAL] = {NULL, sum_nothing},
    [DP_ROUTE_HOST] = {NULL, sum_on_host},
    [DP_ROUTE_STAGED] = {dp_staging_download, sum_staged},
    [DP_ROUTE_STAGED_PIECES] = {dp_staging_download, sum_pieces},
    [DP_ROUTE_STAGED_CODES] = {dp_staging_ready, sum_codes},
    [DP_ROUTE_GPU] = {dp_staging_ready, sum_on_gpus},
};

dp_status dp_exchange_hand_over(struct dp_exchange *e, int b)
{
    const enum dp_route route = route_of(e, b);

    e->buckets[b].sum.run = steps[route].sum;
    return steps[route].hand_over != NULL ? steps[route].hand_over(e->staging, b) : DP_OK;
}

dp_status dp_exchange_take_sum(struct dp_exchange *e, int b)
{
    const bool staged = steps[route_of(e, b)].hand_over != NULL;

    return staged && e->group->size > 1 ? dp_staging_take(e->staging, b) : DP_OK;
}

/* ---- weights that ranks publish: in the host's memory, through it, or on GPUs ---- */

dp_status dp_exchange_begin_publish(struct dp_exchange *e, int b)
{
    if (e->staging == NULL) {
        return DP_OK;
    }
    return e->gpu_weights != NULL
               ? dp_staging_ready(e->staging, b)
               : dp_staging_download_weights(
                     e->staging, b, e->sharding->mine(e->sharding_state, &e->plan->buckets[b]));
}

static dp_status publish_on_gpus(struct dp_exchange *e, int b)
{
    struct dp_stream *stream = e->group->gpus->stream;

    DP_TRY(dp_staging_begin(e->staging, b, stream));
    DP_STREAM_SPAN(stream, DP_WORK_GATHER, b);
    DP_TRY(e->sharding->gather(e->sharding_state, e->gpus, b, e->gpu_weights, e->width));
    return dp_staging_end(e->staging, b, stream);
}

dp_status dp_exchange_publish_job(void *exchange, int b)
{
    struct dp_exchange *e = exchange;

    if (e->gpu_weights != NULL) {
        return publish_on_gpus(e, b);
    }
    if (e->staging != NULL) {
        DP_TRY(dp_staging_wait(e->staging, b, 0, e->group->cancel));
    }
    return e->sharding->gather(e->sharding_state, e->comm, b, e->weights, e->width);
}

dp_status dp_exchange_end_publish(struct dp_exchange *e, int b)
{
    if (e->staging == NULL) {
        return DP_OK;
    }
    return e->gpu_weights != NULL ? dp_staging_take(e->staging, b)
                                  : dp_staging_upload_weights(e->staging, b);
}
