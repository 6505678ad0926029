#include "collectives/exchange/exchange_probe.h"

#include <math.h>
#include <string.h>

#include "collectives/exchange/exchange_own.h"

bool dp_exchange_probe_on_device(const struct dp_exchange *e)
{
    return e->staging != NULL;
}

bool dp_exchange_probe_publishes(const struct dp_exchange *e)
{
    return e->sharding->gather != NULL;
}

/* The tail: its sum is on the host, and no rank updates it. */
static bool is_tail(const struct dp_exchange *e, int b)
{
    return e->plan->buckets[b].exact;
}

static bool is_published(const struct dp_exchange *e, int b)
{
    return e->sharding->gather != NULL && !is_tail(e, b);
}

/* Address of an element of the weights, which may be narrower than gradients. */
static char *weights_at(const struct dp_exchange *e, size_t at)
{
    return (char *)(e->staging != NULL ? dp_staging_weights(e->staging) : e->weights) +
           at * e->width;
}

dp_status dp_exchange_probe_write(struct dp_exchange *e, int b, const float *values)
{
    const struct dp_range range = e->plan->buckets[b].range;

    if (is_tail(e, b)) { /* the host makes a part of it */
        memcpy(e->grad + range.begin, values, range.count * sizeof(float));
    }
    return dp_staging_write(e->staging, dp_staging_gradient(e->staging) + range.begin, values,
                            range.count);
}

dp_status dp_exchange_probe_read(struct dp_exchange *e, int b, float *values, const float **out)
{
    const struct dp_range range = e->plan->buckets[b].range;
    const bool weights = is_published(e, b) && e->width == sizeof(float);
    const float *there = weights ? (const float *)(const void *)weights_at(e, range.begin)
                         : e->staging != NULL && !is_tail(e, b)
                             ? dp_staging_gradient(e->staging) + range.begin
                             : e->grad + range.begin;

    if (e->staging == NULL || is_tail(e, b)) {
        *out = there;
        return DP_OK;
    }
    *out = values;
    return dp_staging_read(e->staging, values, there, range.count);
}

struct dp_range dp_exchange_probe_summed(const struct dp_exchange *e, int b)
{
    const struct dp_range range = e->plan->buckets[b].range;

    if (is_published(e, b) && e->width != sizeof(float)) {
        struct dp_range mine = e->sharding->mine(e->sharding_state, &e->plan->buckets[b]);
        mine.begin -= range.begin;
        return mine;
    }
    return (struct dp_range){0, range.count};
}

/* Stands for an update: a copy of as many bytes, if weights are narrower than gradients. */
static dp_status update(struct dp_exchange *e, struct dp_range mine)
{
    char *weights = weights_at(e, mine.begin);
    struct dp_stream *stream;

    if (e->staging == NULL) {
        memcpy(weights, e->grad + mine.begin, mine.count * e->width);
        return DP_OK;
    }
    stream = dp_staging_stream(e->staging);
    return stream->ops->copy(stream, weights, dp_staging_gradient(e->staging) + mine.begin,
                             mine.count * e->width);
}

/* As dp_exchange_publish and dp_exchange_end do. */
static dp_status publish(struct dp_exchange *e, int b)
{
    if (!dp_exchange_publishes(e)) {
        return e->one_copy.data != NULL ? dp_comm_barrier(e->comm) : DP_OK;
    }
    DP_TRY(dp_exchange_begin_publish(e, b));
    DP_TRY(dp_exchange_publish_job(e, b));
    return dp_exchange_end_publish(e, b);
}

dp_status dp_exchange_probe_share(struct dp_exchange *e, int b)
{
    const struct dp_range mine = e->sharding->mine(e->sharding_state, &e->plan->buckets[b]);
    struct dp_stream *stream = e->staging != NULL ? dp_staging_stream(e->staging) : NULL;

    DP_TRY(dp_exchange_hand_over(e, b));
    DP_TRY(e->buckets[b].sum.run(e, b));
    DP_TRY(stream != NULL ? dp_exchange_wait_device(e, b) : DP_OK);
    if (!is_published(e, b)) {
        return DP_OK;
    }
    DP_TRY(update(e, mine));
    DP_TRY(publish(e, b));
    return stream != NULL ? stream->device->synchronize(stream) : DP_OK;
}

dp_status dp_exchange_probe_barrier(struct dp_exchange *e)
{
    return dp_comm_barrier(e->comm);
}

double dp_exchange_probe_predict(const struct dp_exchange *e, int b, const struct dp_cost *cost)
{
    const struct dp_comm *comm = e->comm;
    const bool on_device = e->staging != NULL && !is_tail(e, b);

    return is_published(e, b) || on_device || comm->strategy->cost == NULL
               ? (double)NAN
               : comm->strategy->cost(comm->state, cost, e->group,
                                      e->plan->buckets[b].range.count * sizeof(float));
}
