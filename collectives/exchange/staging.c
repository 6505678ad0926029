#include "collectives/exchange/staging.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "collectives/core/backoff.h"
#include "collectives/gpu/gpu_peers.h"
#include "kernels/stream_trace.h"

struct dp_staging {
    struct dp_group *group; /* borrowed */
    const struct dp_device *device;
    const struct dp_bucket_plan *plan; /* borrowed */
    float *host;                       /* borrowed; [total] */
    float *pinned;                     /* where pinned memory begins in it; NULL: none is */
    float *gradient;                   /* owned; device memory, [total] */
    size_t total, tail;
    struct dp_stream *copies; /* owned; to the host */
    struct dp_stream *back;   /* owned; from the host; used by the thread that runs jobs */
    struct dp_stream *stream; /* borrowed; where the gradient is made and used */
    char *weights, *shared;   /* borrowed; [trained]: on the device; on the host or NULL */
    size_t width;             /* of a weight, in bytes */
    int *first;               /* owned; [plan->count + 1]: each bucket's first piece */
    struct dp_event **there;  /* owned; [pieces]; a bucket's first is also used by ready() */
    struct dp_event **done;   /* owned; [plan->count] */
};

/* The range of a bucket that is copied. */
static struct dp_range moved(const struct dp_staging *s, int b)
{
    const struct dp_bucket *bucket = &s->plan->buckets[b];

    return (struct dp_range){bucket->range.begin, bucket->exact ? s->tail : bucket->range.count};
}

int dp_staging_pieces(const struct dp_staging *s, int b)
{
    return s->first[b + 1] - s->first[b];
}

struct dp_range dp_staging_piece(const struct dp_staging *s, int b, int i)
{
    const struct dp_range range = moved(s, b);
    const size_t at = (size_t)i * DP_STAGING_PIECE, rest = range.count - at;

    return (struct dp_range){range.begin + at, rest < DP_STAGING_PIECE ? rest : DP_STAGING_PIECE};
}

static dp_status make_events(struct dp_staging *s)
{
    const int count = s->plan->count;

    s->first = dp_zalloc((size_t)count + 1, sizeof(*s->first));
    s->done = dp_zalloc((size_t)count, sizeof(struct dp_event *)); /* NOLINT: pointers */
    if (s->first == NULL || s->done == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "staging of %d buckets", count);
    }
    for (int b = 0; b < count; b++) {
        const size_t pieces = (moved(s, b).count + DP_STAGING_PIECE - 1) / DP_STAGING_PIECE;
        s->first[b + 1] = s->first[b] + (pieces > 0 ? (int)pieces : 1);
        DP_TRY(s->device->event_create(&s->done[b]));
    }
    s->there = dp_zalloc((size_t)s->first[count], sizeof(struct dp_event *)); /* NOLINT: pointers */
    if (s->there == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "staging of %d pieces", s->first[count]);
    }
    for (int i = 0; i < s->first[count]; i++) {
        DP_TRY(s->device->event_create(&s->there[i]));
    }
    return DP_OK;
}

static dp_status staging_open(struct dp_staging *s)
{
    const size_t bytes = s->total * sizeof(float);

    s->gradient = dp_gpu_peers_memory(s->group, s->device, DP_MEM_GRADIENTS, bytes);
    if (s->gradient == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "gradients need %zu MB of the device", bytes >> 20);
    }
    DP_TRY(make_events(s));
    DP_TRY(s->device->stream_create(s->device, 1, &s->copies));
    dp_stream_set_lane(s->copies, DP_LANE_GPU_COPY, 1); /* 0: batches (models/pass/pass_input.c) */
    DP_TRY(s->device->stream_create(s->device, 1, &s->back));
    dp_stream_set_lane(s->back, DP_LANE_GPU_COPY, 2);
    return DP_OK;
}

dp_status dp_staging_create(struct dp_group *group, const struct dp_staging_config *config,
                            struct dp_staging **out)
{
    struct dp_staging *s = dp_zalloc(1, sizeof(*s));
    dp_status status;

    if (s == NULL) {
        dp_group_leave(group, DP_ERR_NOMEM);
        return DP_FAIL(DP_ERR_NOMEM, "staging");
    }
    s->group = group;
    s->device = config->device;
    s->plan = config->plan;
    s->host = config->host;
    s->total = config->total;
    s->tail = config->tail;
    status = staging_open(s);
    if (status != DP_OK) {
        dp_group_leave(group, status);
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
    s->device->stream_destroy(s->back);
    s->device->stream_destroy(s->copies);
    for (int i = 0; s->there != NULL && i < s->first[s->plan->count]; i++) {
        s->device->event_destroy(s->there[i]);
    }
    for (int b = 0; s->done != NULL && b < s->plan->count; b++) {
        s->device->event_destroy(s->done[b]);
    }
    dp_free(s->there);
    dp_free(s->done);
    dp_free(s->first);
    dp_gpu_peers_release(s->group, s->device, s->gradient);
    if (s->pinned != NULL) {
        s->device->unpin(s->pinned);
    }
    dp_free(s);
}

void dp_staging_pin(struct dp_staging *s, struct dp_range range)
{
    assert(s->pinned == NULL);
    s->pinned = s->host + range.begin;
    s->device->pin(s->pinned, range.count * sizeof(float));
}

float *dp_staging_gradient(const struct dp_staging *s)
{
    return s->gradient;
}

const struct dp_device *dp_staging_device(const struct dp_staging *s)
{
    return s->device;
}

struct dp_stream *dp_staging_stream(const struct dp_staging *s)
{
    return s->stream;
}

void *dp_staging_weights(const struct dp_staging *s)
{
    return s->weights;
}

void dp_staging_follow(struct dp_staging *s, struct dp_stream *stream, void *weights, void *shared,
                       size_t width)
{
    s->stream = stream;
    s->weights = weights;
    s->shared = shared;
    s->width = width;
}

/* Copies elements of `width` bytes to the host. */
static dp_status send(struct dp_staging *s, void *host, const void *device, struct dp_range range,
                      size_t width)
{
    const size_t begin = range.begin * width;

    return s->device->download(s->copies, (char *)host + begin, (const char *)device + begin,
                               range.count * width);
}

dp_status dp_staging_download(struct dp_staging *s, int b)
{
    assert(s->stream != NULL);
    DP_TRY(s->device->order(s->copies, s->stream));
    DP_STREAM_SPAN(s->copies, DP_WORK_TO_HOST, b);
    for (int i = 0; i < dp_staging_pieces(s, b); i++) {
        DP_TRY(send(s, s->host, s->gradient, dp_staging_piece(s, b, i), sizeof(float)));
        DP_TRY(s->device->event_record(s->there[s->first[b] + i], s->copies));
    }
    return DP_OK;
}

dp_status dp_staging_download_weights(struct dp_staging *s, int b, struct dp_range mine)
{
    DP_TRY(s->device->order(s->copies, s->stream));
    DP_STREAM_SPAN(s->copies, DP_WORK_WEIGHTS_TO_HOST, b);
    DP_TRY(send(s, s->shared, s->weights, mine, s->width));
    return s->device->event_record(s->there[s->first[b]], s->copies);
}

dp_status dp_staging_upload_weights(struct dp_staging *s, int b)
{
    DP_STREAM_SPAN(s->stream, DP_WORK_WEIGHTS_FROM_HOST, b);
    const struct dp_range range = s->plan->buckets[b].range;
    const size_t begin = range.begin * s->width;

    return s->device->upload(s->stream, s->weights + begin, s->shared + begin,
                             range.count * s->width);
}

dp_status dp_staging_wait(const struct dp_staging *s, int b, int i, const atomic_int *cancel)
{
    struct dp_backoff backoff = {.cancel = cancel, .spin_ns = DP_SPIN_NS};

    for (bool done = false;;) {
        DP_TRY(s->device->event_query(s->there[s->first[b] + i], &done));
        if (done) {
            return DP_OK;
        }
        if (!dp_backoff_wait(&backoff)) {
            return DP_ERR_CANCELLED;
        }
    }
}

dp_status dp_staging_upload(struct dp_staging *s, int b, struct dp_range range)
{
    DP_STREAM_SPAN(s->back, DP_WORK_FROM_HOST, b);
    DP_TRY(s->device->upload(s->back, s->gradient + range.begin, s->host + range.begin,
                             range.count * sizeof(float)));
    return s->device->event_record(s->done[b], s->back);
}

dp_status dp_staging_ready(struct dp_staging *s, int b)
{
    assert(s->stream != NULL);
    return s->device->event_record(s->there[s->first[b]], s->stream);
}

dp_status dp_staging_begin(struct dp_staging *s, int b, struct dp_stream *other)
{
    return s->device->event_wait(other, s->there[s->first[b]]);
}

dp_status dp_staging_end(struct dp_staging *s, int b, struct dp_stream *other)
{
    return s->device->event_record(s->done[b], other);
}

dp_status dp_staging_take(struct dp_staging *s, int b)
{
    return s->device->event_wait(s->stream, s->done[b]);
}

dp_status dp_staging_done(const struct dp_staging *s, int b, bool *done)
{
    return s->device->event_query(s->done[b], done);
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
