#include "kernels/stream_trace.h"

#include <stdatomic.h>

enum { READINGS = 8 }; /* of both clocks, of which the closest counts */

/* Of shorter traces the clocks' speeds are taken to be equal: readings are not exact enough. */
static const double long_ms = 50.0;

struct dp_stream_slot {
    struct dp_event *begin, *end; /* owned; with times */
    int64_t arg;
    uint16_t lane, index;
    uint8_t work;
    atomic_bool closed;
};

/* An event, and when it happened by the host's clock. */
struct anchor {
    struct dp_event *event; /* owned; with a time */
    uint64_t ns;
};

struct dp_stream_trace {
    const struct dp_device *device;
    struct dp_stream_slot *slots; /* owned */
    size_t capacity;
    atomic_size_t used; /* may go on above the capacity */
    struct anchor first, last;
    struct dp_event *spare; /* owned; with a time */
};

static _Atomic(struct dp_stream_trace *) current;

void dp_stream_set_lane(struct dp_stream *stream, enum dp_trace_lane lane, int index)
{
    stream->trace_lane = (uint16_t)lane;
    stream->trace_index = (uint16_t)index;
}

static dp_status make_events(struct dp_stream_trace *t)
{
    const struct dp_device *device = t->device;

    DP_TRY(device->timed_event_create(&t->first.event));
    DP_TRY(device->timed_event_create(&t->last.event));
    DP_TRY(device->timed_event_create(&t->spare));
    for (size_t i = 0; i < t->capacity; i++) {
        DP_TRY(device->timed_event_create(&t->slots[i].begin));
        DP_TRY(device->timed_event_create(&t->slots[i].end));
    }
    return DP_OK;
}

dp_status dp_stream_trace_create(const struct dp_device *device, size_t capacity,
                                 struct dp_stream_trace **out)
{
    struct dp_stream_trace *t = dp_zalloc(1, sizeof(*t));
    dp_status status = DP_ERR_NOMEM;

    if (t != NULL) {
        t->device = device;
        t->slots = dp_zalloc(capacity, sizeof(*t->slots));
        t->capacity = t->slots != NULL ? capacity : 0;
        status = t->slots != NULL ? make_events(t) : DP_ERR_NOMEM;
    }
    if (status != DP_OK) {
        dp_stream_trace_destroy(t);
        return DP_FAIL(status, "a trace of %zu parts of streams", capacity);
    }
    *out = t;
    return DP_OK;
}

void dp_stream_trace_destroy(struct dp_stream_trace *t)
{
    struct dp_stream_trace *mine = t;

    if (t == NULL) {
        return;
    }
    (void)atomic_compare_exchange_strong(&current, &mine, NULL);
    for (size_t i = 0; i < t->capacity; i++) {
        t->device->event_destroy(t->slots[i].begin);
        t->device->event_destroy(t->slots[i].end);
    }
    t->device->event_destroy(t->first.event);
    t->device->event_destroy(t->last.event);
    t->device->event_destroy(t->spare);
    dp_free(t->slots);
    dp_free(t);
}

/* ---- spans ---- */

void dp_stream_span_begin(struct dp_stream_span *span, enum dp_trace_work work, int64_t arg)
{
    struct dp_stream_trace *t = atomic_load_explicit(&current, memory_order_acquire);
    const struct dp_stream *stream = span->stream;
    struct dp_stream_slot *slot;
    size_t place;

    if (t == NULL || stream->trace_lane == DP_LANE_NONE || stream->records) {
        return;
    }
    place = atomic_fetch_add_explicit(&t->used, 1, memory_order_relaxed);
    if (place >= t->capacity) {
        return;
    }
    slot = &t->slots[place];
    slot->arg = arg;
    slot->work = (uint8_t)work;
    slot->lane = stream->trace_lane;
    slot->index = stream->trace_index;
    if (t->device->event_record(slot->begin, span->stream) == DP_OK) {
        span->slot = slot;
    }
}

void dp_stream_span_end(struct dp_stream_span *span)
{
    struct dp_stream_slot *slot = span->slot;

    if (span->stream->device->event_record(slot->end, span->stream) == DP_OK) {
        atomic_store_explicit(&slot->closed, true, memory_order_release);
    }
}

/* ---- clocks ---- */

/* An event now, on a stream that does nothing else meanwhile. */
static dp_status read_clocks(struct dp_stream_trace *t, struct dp_stream *stream,
                             struct anchor *anchor)
{
    uint64_t closest = UINT64_MAX;

    DP_TRY(t->device->synchronize(stream));
    for (int i = 0; i < READINGS; i++) {
        const uint64_t before = dp_now_ns();
        DP_TRY(t->device->event_record(t->spare, stream));
        DP_TRY(t->device->synchronize(stream));
        const uint64_t apart = dp_now_ns() - before;
        if (apart < closest) {
            struct dp_event *event = anchor->event;
            *anchor = (struct anchor){.event = t->spare, .ns = before + apart / 2};
            t->spare = event;
            closest = apart;
        }
    }
    return DP_OK;
}

/* Nanoseconds of the host's clock that a millisecond of the device's takes. */
static dp_status clock_speed(const struct dp_stream_trace *t, double *ns_per_ms)
{
    double ms;

    DP_TRY(t->device->event_ms(t->first.event, t->last.event, &ms));
    *ns_per_ms = ms >= long_ms ? (double)(t->last.ns - t->first.ns) / ms : 1e6;
    return DP_OK;
}

static dp_status host_ns(const struct dp_stream_trace *t, const struct dp_event *event,
                         double ns_per_ms, uint64_t *ns)
{
    double ms;

    DP_TRY(t->device->event_ms(t->first.event, event, &ms));
    *ns = t->first.ns + (uint64_t)(int64_t)(ms * ns_per_ms);
    return DP_OK;
}

/* ---- a trace ---- */

dp_status dp_stream_trace_begin(struct dp_stream_trace *t, struct dp_stream *stream)
{
    DP_TRY(read_clocks(t, stream, &t->first));
    atomic_store_explicit(&current, t, memory_order_release);
    return DP_OK;
}

static bool is_closed(struct dp_stream_slot *slot)
{
    return atomic_load_explicit(&slot->closed, memory_order_acquire);
}

/* The stream does nothing more until all closed spans are over. */
static dp_status wait_for_spans(struct dp_stream_trace *t, struct dp_stream *stream, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (is_closed(&t->slots[i])) {
            DP_TRY(t->device->event_wait(stream, t->slots[i].end));
        }
    }
    return DP_OK;
}

static dp_status add_span(const struct dp_stream_trace *t, const struct dp_stream_slot *slot,
                          double ns_per_ms, struct dp_trace_ring *ring)
{
    struct dp_trace_event event = {
        .arg = slot->arg, .lane = slot->lane, .index = slot->index, .what = slot->work};

    DP_TRY(host_ns(t, slot->begin, ns_per_ms, &event.begin_ns));
    DP_TRY(host_ns(t, slot->end, ns_per_ms, &event.end_ns));
    dp_trace_ring_add(ring, DP_TRACE_WORK, &event);
    return DP_OK;
}

dp_status dp_stream_trace_end(struct dp_stream_trace *t, struct dp_stream *stream,
                              struct dp_trace_ring *ring, uint64_t *lost)
{
    const size_t used = atomic_load(&t->used), count = used < t->capacity ? used : t->capacity;
    double ns_per_ms;

    atomic_store_explicit(&current, NULL, memory_order_release);
    *lost = used - count;
    DP_TRY(wait_for_spans(t, stream, count));
    DP_TRY(read_clocks(t, stream, &t->last));
    DP_TRY(clock_speed(t, &ns_per_ms));
    for (size_t i = 0; i < count; i++) {
        if (is_closed(&t->slots[i])) {
            DP_TRY(add_span(t, &t->slots[i], ns_per_ms, ring));
        }
    }
    return DP_OK;
}
