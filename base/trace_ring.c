#include "base/trace_ring.h"

#include "base/mem.h"

struct dp_trace_ring {
    size_t capacity;
    atomic_size_t used; /* may go on above the capacity */
    struct dp_trace_event *events;
};

_Atomic(struct dp_trace_ring *) dp_trace_now;

static _Thread_local struct {
    uint16_t lane, index;
} mine;

const char *dp_trace_lane_text(enum dp_trace_lane lane)
{
    static const char *const texts[] = {
#define X(name, text) text,
        DP_TRACE_LANES(X)
#undef X
    };

    return (unsigned)lane < DP_TRACE_LANE_KINDS ? texts[lane] : "";
}

dp_status dp_trace_ring_create(size_t capacity, struct dp_trace_ring **out)
{
    struct dp_trace_ring *ring = dp_zalloc(1, sizeof(*ring));

    if (ring != NULL) {
        ring->capacity = capacity;
        ring->events = dp_zalloc(capacity, sizeof(*ring->events));
    }
    if (ring == NULL || ring->events == NULL) {
        dp_free(ring);
        return DP_FAIL(DP_ERR_NOMEM, "a trace of %zu events", capacity);
    }
    *out = ring;
    return DP_OK;
}

void dp_trace_ring_destroy(struct dp_trace_ring *ring)
{
    if (ring != NULL) {
        dp_free(ring->events);
        dp_free(ring);
    }
}

void dp_trace_record(struct dp_trace_ring *ring)
{
    atomic_store_explicit(&dp_trace_now, ring, memory_order_release);
}

struct dp_trace_event *dp_trace_ring_events(struct dp_trace_ring *ring, size_t *count,
                                            uint64_t *lost)
{
    const size_t used = atomic_load(&ring->used);

    *count = used < ring->capacity ? used : ring->capacity;
    *lost = used - *count;
    return ring->events;
}

void dp_trace_set_lane(enum dp_trace_lane lane, int index)
{
    mine.lane = (uint16_t)lane;
    mine.index = (uint16_t)index;
}

/* The kind comes last: until then a reader leaves the event out. */
void dp_trace_ring_add(struct dp_trace_ring *ring, enum dp_trace_kind kind,
                       const struct dp_trace_event *event)
{
    const size_t place = atomic_fetch_add_explicit(&ring->used, 1, memory_order_relaxed);

    if (place < ring->capacity) {
        struct dp_trace_event *kept = &ring->events[place];

        kept->begin_ns = event->begin_ns;
        kept->end_ns = event->end_ns;
        kept->arg = event->arg;
        kept->number = event->number;
        kept->value = event->value;
        kept->lane = event->lane;
        kept->index = event->index;
        kept->what = event->what;
        atomic_store_explicit(&kept->kind, (unsigned char)kind, memory_order_release);
    }
}

static void add(enum dp_trace_kind kind, const struct dp_trace_event *event)
{
    struct dp_trace_ring *ring = atomic_load_explicit(&dp_trace_now, memory_order_acquire);

    if (ring != NULL && event->lane != DP_LANE_NONE) {
        dp_trace_ring_add(ring, kind, event);
    }
}

void dp_trace_add_span(int phase, int64_t arg, uint64_t begin_ns, uint64_t end_ns)
{
    add(DP_TRACE_SPAN, &(struct dp_trace_event){.begin_ns = begin_ns,
                                                .end_ns = end_ns,
                                                .arg = arg,
                                                .lane = mine.lane,
                                                .index = mine.index,
                                                .what = (uint8_t)phase});
}

void dp_trace_add_arrow(uint64_t number, uint64_t at_ns)
{
    add(DP_TRACE_ARROW, &(struct dp_trace_event){.begin_ns = at_ns,
                                                 .end_ns = at_ns,
                                                 .number = number,
                                                 .lane = mine.lane,
                                                 .index = mine.index});
}

void dp_trace_add_job(enum dp_trace_job job, int64_t bucket, uint64_t number, uint64_t begin_ns,
                      uint64_t end_ns)
{
    add(DP_TRACE_JOB, &(struct dp_trace_event){.begin_ns = begin_ns,
                                               .end_ns = end_ns,
                                               .arg = bucket,
                                               .number = number,
                                               .lane = DP_LANE_COMMUNICATION,
                                               .what = (uint8_t)job});
}

void dp_trace_add_count(enum dp_trace_counter counter, double value, uint64_t at_ns)
{
    add(DP_TRACE_COUNTER, &(struct dp_trace_event){.begin_ns = at_ns,
                                                   .end_ns = at_ns,
                                                   .value = value,
                                                   .lane = DP_LANE_COMPUTE,
                                                   .what = (uint8_t)counter});
}
