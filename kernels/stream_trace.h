/*
 * stream_trace.h - what the streams of a GPU do, as spans of a trace (base/trace_ring.h).
 *
 * The host only queues work, and cannot see when it is done. So a span is two events, recorded on
 * the stream before what the block queues and after it, which keep their times. Their clock is
 * compared with the host's at the begin of a trace and at its end: by an event on an idle stream,
 * which lies between two readings of the host's clock. The closest of some readings counts, and
 * between begin and end the clocks are taken to run evenly.
 *
 * While no trace is recorded, a span costs a branch; on devices that compute in the call it has no
 * other cost at any time. What is recorded to be replayed has no spans of its own: the replay has
 * one.
 */
#ifndef DP_KERNELS_STREAM_TRACE_H
#define DP_KERNELS_STREAM_TRACE_H

#include "base/trace.h"
#include "base/trace_ring.h"
#include "kernels/device.h"

/* Where spans of a stream are shown from now on. A stream has none before this call. */
void dp_stream_set_lane(struct dp_stream *stream, enum dp_trace_lane lane, int index);

struct dp_stream_trace;

/* With room for so many spans, on streams of this device, whose `timed_event_create` is set. Owned
 * by the caller; destroy it when no thread opens spans any more. Errors: DP_ERR_NOMEM, those of the
 * device. */
DP_CHECKED dp_status dp_stream_trace_create(const struct dp_device *device, size_t capacity,
                                            struct dp_stream_trace **out);
void dp_stream_trace_destroy(struct dp_stream_trace *trace); /* NULL is allowed */

/* Spans of all threads go there while dp_trace_records(). Waits for `stream`, a stream of the
 * device that this thread uses. Errors: those of the device. */
DP_CHECKED dp_status dp_stream_trace_begin(struct dp_stream_trace *trace, struct dp_stream *stream);

/* Opens no more spans; waits for those that are closed, and adds them to the ring, with times of
 * the host's clock. *lost: how many did not fit. Errors: those of the device. */
DP_CHECKED dp_status dp_stream_trace_end(struct dp_stream_trace *trace, struct dp_stream *stream,
                                         struct dp_trace_ring *ring, uint64_t *lost);

/* A part of what is queued on a stream. */
struct dp_stream_span {
    struct dp_stream *stream; /* borrowed */
    struct dp_stream_slot *slot;
};

void dp_stream_span_begin(struct dp_stream_span *span, enum dp_trace_work work, int64_t arg);
void dp_stream_span_end(struct dp_stream_span *span);

static inline void dp_stream_span_open(struct dp_stream_span *span, struct dp_stream *stream,
                                       enum dp_trace_work work, int64_t arg)
{
    *span = (struct dp_stream_span){.stream = stream};
    if (dp_trace_records()) {
        dp_stream_span_begin(span, work, arg);
    }
}

static inline void dp_stream_span_close(struct dp_stream_span *span)
{
    if (span->slot != NULL) {
        dp_stream_span_end(span);
    }
}

/* A span of what the rest of the enclosing block queues on a stream, however it is left. */
#define DP_STREAM_SPAN(stream, work, arg)                                                          \
    __attribute__((cleanup(dp_stream_span_close))) struct dp_stream_span DP_PASTE(dp_stream_span_, \
                                                                                  __LINE__);       \
    dp_stream_span_open(&DP_PASTE(dp_stream_span_, __LINE__), (stream), (work), (arg))

#endif
