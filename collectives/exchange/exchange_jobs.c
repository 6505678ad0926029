/*
 * exchange_jobs.c - the jobs of buckets: the route that each takes to its sum, and what is done
 * before, in and after its job.
 */
#include "collectives/exchange/exchange_own.h"
#include "collectives/gpu/gpu_peers.h"

/* All but the tail take the same one: exchange_gpus.c says why that goes by way of the host. */
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
    /* Pieces may be summed as they come where everybody wants all of each. */
    return sharded ? DP_ROUTE_STAGED : DP_ROUTE_STAGED_PIECES;
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
            .sum = {.run = dp_exchange_sum_job, .arg = e, .index = b},
            .publish = {.run = dp_exchange_publish_job, .arg = e, .index = b},
        };
    }
    return DP_OK;
}

/* In this step. Local steps share no gradients, but the tail. */
static enum dp_route route_of(const struct dp_exchange *e, int b)
{
    return e->alone && !e->plan->buckets[b].exact ? DP_ROUTE_LOCAL : e->buckets[b].route;
}

static struct dp_slice gradient_of(const struct dp_exchange *e, int b, float *array)
{
    const struct dp_range range = e->plan->buckets[b].range;

    return (struct dp_slice){array + range.begin, range.count, sizeof(float)};
}

/* Of what the host has; the tail exactly, others through the compressor if there is one. */
static dp_status sum_on_host(struct dp_exchange *e, int b)
{
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

/* Back comes what this rank needs of the sum; of the tail, what the device has made. */
static dp_status sum_staged(struct dp_exchange *e, int b)
{
    const struct dp_bucket *bucket = &e->plan->buckets[b];
    const struct dp_range made = dp_staging_piece(e->staging, b, 0);
    struct dp_range mine = e->sharding->mine(e->sharding_state, bucket);

    DP_TRY(dp_staging_wait(e->staging, b, dp_staging_pieces(e->staging, b) - 1, e->group->cancel));
    DP_TRY(sum_on_host(e, b));
    mine.count = bucket->exact ? made.count : mine.count;
    return e->group->size > 1 ? dp_staging_upload(e->staging, b, mine) : DP_OK;
}

/* The sum of each piece goes back while the next one is summed. */
static dp_status sum_pieces(struct dp_exchange *e, int b)
{
    for (int i = 0; i < dp_staging_pieces(e->staging, b); i++) {
        const struct dp_range piece = dp_staging_piece(e->staging, b, i);
        const struct dp_slice data = {e->grad + piece.begin, piece.count, sizeof(float)};
        DP_TRY(dp_staging_wait(e->staging, b, i, e->group->cancel));
        DP_TRY(dp_comm_sum(e->comm, data, DP_KEEP_ALL));
        DP_TRY(dp_staging_upload(e->staging, b, piece));
    }
    return DP_OK;
}

static dp_status sum_codes(struct dp_exchange *e, int b)
{
    DP_TRY(dp_staging_wait(e->staging, b, 0, e->group->cancel));
    DP_TRY(dp_compression_sum(e->compression, b, e->sharding->keep));
    return dp_staging_end(e->staging, b, e->codes);
}

static dp_status sum_on_gpus(struct dp_exchange *e, int b)
{
    struct dp_stream *stream = e->group->gpus->stream;
    const struct dp_slice gradient = gradient_of(e, b, dp_staging_gradient(e->staging));

    DP_TRY(dp_staging_begin(e->staging, b, stream));
    DP_TRY(dp_comm_sum(e->gpus, gradient, e->sharding->keep));
    return dp_staging_end(e->staging, b, stream);
}

/* What each route does before a bucket's job, when what makes the bucket is queued, and in it. */
static const struct {
    dp_status (*hand_over)(struct dp_staging *staging, int b);
    dp_status (*sum)(struct dp_exchange *exchange, int b);
} steps[] = {
    [DP_ROUTE_LOCAL] = {NULL, NULL},
    [DP_ROUTE_HOST] = {NULL, sum_on_host},
    [DP_ROUTE_STAGED] = {dp_staging_download, sum_staged},
    [DP_ROUTE_STAGED_PIECES] = {dp_staging_download, sum_pieces},
    [DP_ROUTE_STAGED_CODES] = {dp_staging_ready, sum_codes},
    [DP_ROUTE_GPU] = {dp_staging_ready, sum_on_gpus},
};

dp_status dp_exchange_hand_over(struct dp_exchange *e, int b)
{
    const enum dp_route route = route_of(e, b);

    return steps[route].hand_over != NULL ? steps[route].hand_over(e->staging, b) : DP_OK;
}

dp_status dp_exchange_sum_job(void *exchange, int b)
{
    const enum dp_route route = route_of(exchange, b);

    return steps[route].sum != NULL ? steps[route].sum(exchange, b) : DP_OK;
}

dp_status dp_exchange_take_sum(struct dp_exchange *e, int b)
{
    const bool staged = steps[route_of(e, b)].hand_over != NULL;

    return staged && e->group->size > 1 ? dp_staging_take(e->staging, b) : DP_OK;
}

dp_status dp_exchange_publish_job(void *exchange, int b)
{
    struct dp_exchange *e = exchange;

    if (e->staging != NULL) {
        DP_TRY(dp_staging_wait(e->staging, b, 0, e->group->cancel));
    }
    return e->sharding->gather(e->sharding_state, b, e->weights, e->width);
}
