/*
 * trace_ring.h - single events of all threads of this process, kept while a trace is recorded:
 * spans (trace.h), jobs, arrows between them, counters.
 *
 * While nothing is recorded an event costs a branch. Else it costs an atomic addition and a few
 * stores into memory that was allocated before; events that do not fit are counted only. One ring
 * may record at a time.
 */
#ifndef DP_BASE_TRACE_RING_H
#define DP_BASE_TRACE_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* What a thread or a stream of a GPU does, and what its line in the trace is called. One without a
 * lane records nothing. */
#define DP_TRACE_LANES(X)             \
    X(NONE, "")                       \
    X(COMPUTE, "compute")             \
    X(COMMUNICATION, "communication") \
    X(INPUT, "input")                 \
    X(CHECKPOINT, "checkpoint")       \
    X(GPU_COMPUTE, "GPU compute")     \
    X(GPU_COPY, "GPU copy")           \
    X(GPU_COMMUNICATION, "GPU communication")

enum dp_trace_lane {
#define X(name, text) DP_LANE_##name,
    DP_TRACE_LANES(X)
#undef X
        DP_TRACE_LANE_KINDS
};

const char *dp_trace_lane_text(enum dp_trace_lane lane);

enum dp_trace_kind {
    DP_TRACE_NOTHING, /* not recorded, or not yet */
    DP_TRACE_SPAN,    /* of a phase */
    DP_TRACE_JOB,     /* of communication: a dp_trace_job */
    DP_TRACE_ARROW,   /* begins at begin_ns on this lane; ends at the job of the same number */
    DP_TRACE_COUNTER, /* has `value` from begin_ns on: a dp_trace_counter */
    DP_TRACE_WORK     /* of a stream of a GPU: a dp_trace_work */
};

enum dp_trace_job { DP_TRACE_CALL, DP_TRACE_BUCKET, DP_TRACE_PUBLISH };

/* Work of a stream, its name in the trace, and what its number is. A part is one of a step that was
 * recorded before, up to where the next bucket is ready. */
#define DP_TRACE_WORKS(X)                               \
    X(FORWARD, "forward", "layer")                      \
    X(BACKWARD, "backward", "layer")                    \
    X(REPLAY, "part", "part")                           \
    X(UPDATE, "update", "bucket")                       \
    X(BATCH, "batch to GPU", "rows")                    \
    X(TO_HOST, "to host", "bucket")                     \
    X(FROM_HOST, "from host", "bucket")                 \
    X(WEIGHTS_TO_HOST, "weights to host", "bucket")     \
    X(WEIGHTS_FROM_HOST, "weights from host", "bucket") \
    X(SUM, "sum", "bucket")                             \
    X(GATHER, "gather", "bucket")

enum dp_trace_work {
#define X(name, text, arg) DP_WORK_##name,
    DP_TRACE_WORKS(X)
#undef X
        DP_TRACE_WORK_KINDS
};

enum dp_trace_counter { DP_COUNT_BYTES, DP_COUNT_SAMPLES };

/* Plain bytes, so that ranks of one build may send them to each other. */
struct dp_trace_event {
    uint64_t begin_ns, end_ns; /* by dp_now_ns() of trace.h */
    int64_t arg;               /* of a span: see struct dp_span; of a job its bucket */
    uint64_t number;           /* of a job and its arrow */
    double value;
    uint16_t lane, index; /* enum dp_trace_lane; of several threads of that lane, from 0 */
    uint8_t what;         /* phase, job, counter or work */
    atomic_uchar kind;    /* written last */
};

struct dp_trace_ring;

/* With room for so many events. Owned by the caller; destroy it when no thread records any more.
 * Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_trace_ring_create(size_t capacity, struct dp_trace_ring **out);
void dp_trace_ring_destroy(struct dp_trace_ring *ring);

/* All threads that have a lane record in this ring; NULL: in none. */
void dp_trace_record(struct dp_trace_ring *ring);

/* What is recorded: events [count], of which some may be of kind DP_TRACE_NOTHING; and how many did
 * not fit. */
struct dp_trace_event *dp_trace_ring_events(struct dp_trace_ring *ring, size_t *count,
                                            uint64_t *lost);

/* Adds a copy of an event that has a lane, whether or not the ring records; its `kind` is not
 * read. */
void dp_trace_ring_add(struct dp_trace_ring *ring, enum dp_trace_kind kind,
                       const struct dp_trace_event *event);

/* The lane of the calling thread. */
void dp_trace_set_lane(enum dp_trace_lane lane, int index);

/* Where events go now, or NULL. */
extern _Atomic(struct dp_trace_ring *) dp_trace_now;

static inline bool dp_trace_records(void)
{
    return atomic_load_explicit(&dp_trace_now, memory_order_relaxed) != NULL;
}

/* For callers that have asked dp_trace_records(). A span, and the begin of an arrow, are on the
 * calling thread's lane. */
void dp_trace_add_span(int phase, int64_t arg, uint64_t begin_ns, uint64_t end_ns);
void dp_trace_add_arrow(uint64_t number, uint64_t at_ns);
void dp_trace_add_job(enum dp_trace_job job, int64_t bucket, uint64_t number, uint64_t begin_ns,
                      uint64_t end_ns);
void dp_trace_add_count(enum dp_trace_counter counter, double value, uint64_t at_ns);

#endif
