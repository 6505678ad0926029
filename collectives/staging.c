#include "collectives/staging.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "collectives/patience.h"

struct dp_staging {
    const struct dp_device *device;
    const struct dp_bucket_plan *plan; /* borrowed */
    float *host;                       /* borrowed; [total] */
    float *gradient;                   /* owned; device memory, [total] */
    size_t total, tail;
    struct dp_stream *copies; /* owned; to the host */
    struct dp_stream *stream; /* borrowed; where the gradient is made and used */
    char *weights, *shared;   /* borrowed; [trained] of the device, and of the host or NULL */
    size_t width;             /* of a weight, in bytes */
    struct dp_event **there;  /* owned; [plan->count] */
};

static dp_status staging_open(struct dp_staging *s)
{
    const size_t bytes = s->total * sizeof(float);

    s->device->pin(s->host, bytes);
    s->gradient = s->device->alloc(DP_MEM_GRADIENTS, bytes);
    s->there = dp_zalloc((size_t)s->plan->count, sizeof(struct dp_event *)); /* NOLINT: pointers */
    if (s->gradient == NULL || s->there == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "gradients need %zu MB of the device", bytes >> 20);
    }
    for (int b = 0; b < s->plan->count; b++) {
        DP_TRY(s->device->event_create(&s->there[b]));
    }
    return s->device->stream_create(s->device, 1, &s->copies);
}

dp_status dp_staging_create(const struct dp_device *device, const struct dp_bucket_plan *plan,
                            float *host, size_t total, size_t tail, struct dp_staging **out)
{
    struct dp_staging *s = dp_zalloc(1, sizeof(*s));
    dp_status status;

    if (s == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "staging");
    }
    s->device = device;
    s->plan = plan;
    s->host = host;
    s->total = total;
    s->tail = tail;
    status = staging_open(s);
    if (status != DP_OK) {
        dp_staging_destroy(s);
        return status;
    }
    *out = s;
    return DP_OK;
}

void dp_staging_destroy(struct dp_staging *s)
{
    if (s == NULL) {
        return;
    }
    s->device->stream_destroy(s->copies);
    for (int b = 0; s->there != NULL && b < s->plan->count; b++) {
        s->device->event_destroy(s->there[b]);
    }
    dp_free(s->there);
    s->device->release(s->gradient);
    s->device->unpin(s->host);
    dp_free(s);
}

float *dp_staging_gradient(const struct dp_staging *s)
{
    return s->gradient;
}

const struct dp_device *dp_staging_device(const struct dp_staging *s)
{
    return s->device;
}

void dp_staging_follow(struct dp_staging *s, struct dp_stream *stream, void *weights, void *shared,
                       size_t width)
{
    s->stream = stream;
    s->weights = weights;
    s->shared = shared;
    s->width = width;
}

/* What of a bucket goes to and fro. */
static struct dp_range moved(const struct dp_staging *s, int b)
{
    const struct dp_bucket *bucket = &s->plan->buckets[b];

    return (struct dp_range){bucket->range.begin, bucket->exact ? s->tail : bucket->range.count};
}

/* Sends elements of `width` bytes that are queued on the stream, and says when they are there. */
static dp_status send(struct dp_staging *s, int b, void *host, const void *device,
                      struct dp_range range, size_t width)
{
    const size_t begin = range.begin * width;

    assert(s->stream != NULL);
    DP_TRY(s->device->order(s->copies, s->stream));
    DP_TRY(s->device->download(s->copies, (char *)host + begin, (const char *)device + begin,
                               range.count * width));
    return s->device->event_record(s->there[b], s->copies);
}

dp_status dp_staging_out(struct dp_staging *s, int b)
{
    return send(s, b, s->host, s->gradient, moved(s, b), sizeof(float));
}

dp_status dp_staging_made(struct dp_staging *s, int b)
{
    return s->device->event_record(s->there[b], s->stream);
}

dp_status dp_staging_behind(struct dp_staging *s, struct dp_stream *codes)
{
    return s->device->order(s->stream, codes);
}

dp_status dp_staging_weights_out(struct dp_staging *s, int b, struct dp_range mine)
{
    return send(s, b, s->shared, s->weights, mine, s->width);
}

dp_status dp_staging_weights_in(struct dp_staging *s, int b)
{
    const struct dp_range range = s->plan->buckets[b].range;
    const size_t begin = range.begin * s->width;

    return s->device->upload(s->stream, s->weights + begin, s->shared + begin,
                             range.count * s->width);
}

dp_status dp_staging_arrive(const struct dp_staging *s, int b, const atomic_int *cancel)
{
    struct dp_patience patience = {cancel, DP_SPINS, 0};

    for (bool done = false;;) {
        DP_TRY(s->device->event_query(s->there[b], &done));
        if (done) {
            return DP_OK;
        }
        if (!dp_patience_turn(&patience)) {
            return DP_ERR_CANCELLED;
        }
    }
}

dp_status dp_staging_in(struct dp_staging *s, int b)
{
    const struct dp_range range = moved(s, b);

    return s->device->upload(s->stream, s->gradient + range.begin, s->host + range.begin,
                             range.count * sizeof(float));
}

dp_status dp_staging_read(const struct dp_staging *s, float *host, const float *device,
                          size_t count)
{
    if (s == NULL) {
        memcpy(host, device, count * sizeof(float));
        return DP_OK;
    }
    return dp_device_read(s->stream, host, device, count * sizeof(float));
}

dp_status dp_staging_write(const struct dp_staging *s, float *device, const float *host,
                           size_t count)
{
    if (s == NULL) {
        memcpy(device, host, count * sizeof(float));
        return DP_OK;
    }
    return dp_device_write(s->stream, device, host, count * sizeof(float));
}
