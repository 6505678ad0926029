/*
 * trace.h - spans: what each thread does, and since when.
 *
 * This is the only source of times. A span charges its time to a phase of the calling thread,
 * without the spans opened inside it (exclusive time), so the phases of a thread sum to the wall
 * time by construction. Opening and closing take no lock and allocate nothing. The run's ledger
 * reads the totals; single spans are kept only while a trace is recorded (trace_ring.h).
 */
#ifndef DP_BASE_TRACE_H
#define DP_BASE_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* name, text, lane in the trace */
#define DP_PHASES(X)            \
    X(OTHER, "other")           \
    X(STEP, "step")             \
    X(INPUT, "input")           \
    X(COPY, "copy")             \
    X(FORWARD, "forward")       \
    X(BACKWARD, "backward")     \
    X(WAIT, "wait")             \
    X(OPTIMIZER, "optimizer")   \
    X(CHECKPOINT, "checkpoint") \
    X(REDUCE, "reduce")         \
    X(LOAD, "load")             \
    X(EVALUATE, "evaluate")     \
    X(MEASURE, "measure")       \
    X(IDLE, "idle")

enum dp_phase {
#define X(name, text) DP_PHASE_##name,
    DP_PHASES(X)
#undef X
        DP_PHASE_COUNT
};

const char *dp_phase_text(enum dp_phase phase);

/* Monotonic time of this host. */
uint64_t dp_now_ns(void);

/* An interval on the calling thread's timeline. */
struct dp_span {
    enum dp_phase phase;
    int64_t arg; /* shown next to the name: a step, layer or bucket number */
    uint64_t begin_ns;
    uint64_t inner_ns; /* spent in spans opened inside */
    struct dp_span *outer;
};

/* Opens `span`, which the caller owns, on the calling thread. */
void dp_span_open(struct dp_span *span, enum dp_phase phase, int64_t arg);
void dp_span_close(struct dp_span *span);

#define DP_PASTE2(a, b) a##b
#define DP_PASTE(a, b) DP_PASTE2(a, b)

/* Times the rest of the enclosing block, however it is left (DP_TRY included). */
#define DP_SPAN(phase, arg)                                                              \
    __attribute__((cleanup(dp_span_close))) struct dp_span DP_PASTE(dp_span_, __LINE__); \
    dp_span_open(&DP_PASTE(dp_span_, __LINE__), (phase), (arg))

/* Exclusive nanoseconds of each phase on the calling thread, since it started. Open spans count up
 * to now. */
void dp_trace_totals(uint64_t totals_ns[DP_PHASE_COUNT]);

/* What a thread says of a block: see DP_NOTE(). */
enum dp_trace_note { DP_NOTE_AWAITS_RANKS, DP_NOTE_AWAITS_ONE, DP_NOTE_BESIDE, DP_TRACE_NOTES };

/*
 * Where a thread is, for others to read while it is there, even if it is stuck. It may lie in
 * memory that processes share; zeroed: the thread has opened no span yet.
 */
struct dp_trace_mark {
    atomic_uint_fast64_t changes; /* spans that it has opened and closed since it is published */
    atomic_int open;              /* spans that are open */
    atomic_int phase;             /* of the innermost one */
    atomic_int activity;          /* of the outermost one that is not DP_PHASE_OTHER */
    atomic_llong step;            /* number of the last DP_PHASE_STEP, from 1; 0: none so far */
    atomic_llong bucket;          /* of the last DP_PHASE_WAIT in that step; -1: none so far */
    atomic_uint ended;            /* bits 1 << activity that ended; other: after a step only */
    atomic_uint_fast64_t beats;   /* dp_trace_beat() of any thread of its process */
    atomic_int expects_ms;        /* DP_EXPECT(); 0: nothing is said */
    atomic_int notes[DP_TRACE_NOTES]; /* DP_NOTE() that hold, of each kind */
};

/* Whom a mark is for. */
enum dp_trace_reader {
    DP_TRACE_WATCHDOG, /* collectives/world/watchdog.h */
    DP_TRACE_LIVE,     /* base/system/live.h */
    DP_TRACE_READERS
};

/* Keeps a mark of the calling thread up to date for a reader, until it is called again; NULL: no
 * more. The mark is borrowed. */
void dp_trace_publish(enum dp_trace_reader reader, struct dp_trace_mark *mark);

/* Progress within a span, on any thread: a part is done of something that may rightly take long. It
 * is noted where this process last published a mark for the watchdog. Not for what goes on beside
 * steps for long, which would hide that these do not. */
void dp_trace_beat(void);

/* At the nth beat from now where DP_EXPECT() holds `then` is called, on the thread that beats;
 * 0: at none. Returns how many were left before it would have been. For faults on purpose. */
int dp_trace_at_beat(int nth, void (*then)(void));

/* The same at every beat, whether DP_EXPECT() holds or not; NULL: at none. */
void dp_trace_at_beats(void (*then)(void));

/* What was expected before. */
struct dp_expectation {
    struct dp_trace_mark *mark; /* NULL: nobody watches */
    int before_ms;
};

void dp_expect(struct dp_expectation *expectation, double seconds);
void dp_expect_no_more(struct dp_expectation *expectation);

/* For the rest of the enclosing block this process beats, or opens or closes a span, at least every
 * so many seconds where nothing is wrong. All ranks that it waits for in there must have begun:
 * nobody else would be waited for so briefly. On the main thread, or one that it waits for. */
#define DP_EXPECT(seconds)                                                                      \
    __attribute__((cleanup(dp_expect_no_more))) struct dp_expectation DP_PASTE(dp_expectation_, \
                                                                               __LINE__);       \
    dp_expect(&DP_PASTE(dp_expectation_, __LINE__), (seconds))

/* For the rest of the enclosing block the calling thread does nothing but wait for other ranks,
 * which the watchdog must not take for what keeps them waiting. As DP_PHASE_WAIT says in steps; but
 * its time is that of the span around it, and it is no progress. */
#define DP_AWAIT_RANKS() DP_NOTE(DP_NOTE_AWAITS_RANKS)

/* The same, where ranks wait for one that works alone, and exchange messages now and then: spans in
 * there are no progress either. */
#define DP_AWAIT_ONE() DP_NOTE(DP_NOTE_AWAITS_ONE)

/* For the rest of the enclosing block the calling thread works beside ranks that wait for it only
 * where they say so by DP_AWAIT_ONE(): otherwise its progress is not theirs. */
#define DP_WORK_BESIDE() DP_NOTE(DP_NOTE_BESIDE)

/* What these three make of their note. */
#define DP_NOTE(note)                                                          \
    __attribute__((cleanup(dp_note_ends), unused)) atomic_int *const DP_PASTE( \
        dp_note_, __LINE__) = dp_note_begins(note)

/* The count of notes that has grown; NULL: nobody watches. */
atomic_int *dp_note_begins(enum dp_trace_note note);
void dp_note_ends(atomic_int *const *count);

/* A tool that shows spans while they are open, such as a profiler. `phase`: a text that stays. */
struct dp_trace_tool {
    void (*open)(const char *phase);
    void (*close)(void);
};

/* From now on all threads tell it of their spans; NULL: none. Borrowed. A span that is open already
 * is only closed. */
void dp_trace_show(const struct dp_trace_tool *tool);

/* When the step that the calling thread is in, or was in last, began; now before the first. */
uint64_t dp_trace_step_ns(void);

/* How many spans the calling thread has open: 0 at the end of every thread. */
int dp_trace_open_spans(void);

#endif
