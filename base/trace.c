#include "base/trace.h"

#include <math.h>
#include <time.h>

#include "base/trace_ring.h"

static const double most_ms = 1e9;

/* Totals of the calling thread, and its innermost open span. */
static _Thread_local uint64_t phase_ns[DP_PHASE_COUNT];
static _Thread_local struct dp_span *innermost;
static _Thread_local struct dp_trace_mark *published[DP_TRACE_READERS];
static _Thread_local uint64_t step_ns; /* when its last step began */

static _Atomic(const struct dp_trace_tool *) shown_by;
static _Atomic(struct dp_trace_mark *) watched; /* of this process, whichever thread published it */
static atomic_int beats_left;                   /* until at_beat; 0: for ever */
static void (*_Atomic at_beat)(void);           /* set while none are counted */
static void (*_Atomic at_beats)(void);

const char *dp_phase_text(enum dp_phase phase)
{
    static const char *const texts[] = {
#define X(name, text) text,
        DP_PHASES(X)
#undef X
    };
    return (unsigned)phase < DP_PHASE_COUNT ? texts[phase] : "unknown";
}

uint64_t dp_now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Only the publishing thread writes; a reader may see a mark that is half old. */
static void set_mark(atomic_int *member, int value)
{
    atomic_store_explicit(member, value, memory_order_relaxed);
}

/* A reader looks now and then, and phases are short: what it missed is noted here. What comes
 * before the first step is a start, and no phase between steps. */
static void note_end(struct dp_trace_mark *mark, int activity)
{
    const unsigned ended = atomic_load_explicit(&mark->ended, memory_order_relaxed);
    const bool started = (ended & 1u << DP_PHASE_STEP) != 0;

    if (activity != DP_PHASE_OTHER || started) {
        atomic_store_explicit(&mark->ended, ended | 1u << activity, memory_order_relaxed);
    }
}

static void update_mark(struct dp_trace_mark *mark, int open, int activity)
{
    const uint64_t changes = atomic_load_explicit(&mark->changes, memory_order_relaxed);
    const int before = atomic_load_explicit(&mark->activity, memory_order_relaxed);

    if (activity != before) {
        note_end(mark, before);
    }
    set_mark(&mark->open, open);
    set_mark(&mark->activity, activity);
    set_mark(&mark->phase, innermost != NULL ? (int)innermost->phase : DP_PHASE_OTHER);
    atomic_store_explicit(&mark->changes, changes + 1, memory_order_relaxed);
}

static void update_marks(void)
{
    int open = 0, activity = DP_PHASE_OTHER;

    for (const struct dp_span *span = innermost; span != NULL; span = span->outer) {
        activity = span->phase == DP_PHASE_OTHER ? activity : (int)span->phase;
        open++;
    }
    for (int i = 0; i < DP_TRACE_READERS; i++) {
        if (published[i] != NULL) {
            update_mark(published[i], open, activity);
        }
    }
}

static bool publishes(void)
{
    return published[DP_TRACE_WATCHDOG] != NULL || published[DP_TRACE_LIVE] != NULL;
}

void dp_trace_publish(enum dp_trace_reader reader, struct dp_trace_mark *mark)
{
    published[reader] = mark;
    if (reader == DP_TRACE_WATCHDOG) {
        atomic_store(&watched, mark);
    }
}

int dp_trace_at_beat(int nth, void (*then)(void))
{
    const int left = atomic_exchange(&beats_left, 0);

    atomic_store(&at_beat, then);
    atomic_store(&beats_left, nth);
    return left > 0 ? left : 0;
}

void dp_trace_at_beats(void (*then)(void))
{
    atomic_store(&at_beats, then);
}

void dp_trace_beat(void)
{
    struct dp_trace_mark *mark = atomic_load_explicit(&watched, memory_order_relaxed);
    void (*const then)(void) = atomic_load_explicit(&at_beats, memory_order_relaxed);

    if (mark == NULL) {
        return;
    }
    atomic_fetch_add_explicit(&mark->beats, 1, memory_order_relaxed);
    if (then != NULL) {
        then();
    }
    if (atomic_load_explicit(&mark->expects_ms, memory_order_relaxed) > 0 &&
        atomic_load_explicit(&beats_left, memory_order_relaxed) > 0 &&
        atomic_fetch_sub(&beats_left, 1) == 1) {
        (*atomic_load(&at_beat))();
    }
}

void dp_expect(struct dp_expectation *e, double seconds)
{
    const double ms = fmin(fmax(1e3 * seconds, 1.0), most_ms);

    e->mark = atomic_load(&watched);
    e->before_ms = e->mark != NULL ? atomic_exchange(&e->mark->expects_ms, (int)ms) : 0;
}

void dp_expect_no_more(struct dp_expectation *e)
{
    if (e->mark != NULL) {
        atomic_store(&e->mark->expects_ms, e->before_ms);
    }
}

/* Only the publishing thread writes. */
static void add(atomic_int *count, int more)
{
    set_mark(count, atomic_load_explicit(count, memory_order_relaxed) + more);
}

atomic_int *dp_note_begins(enum dp_trace_note note)
{
    struct dp_trace_mark *mark = published[DP_TRACE_WATCHDOG];

    if (mark == NULL) {
        return NULL;
    }
    add(&mark->notes[note], 1);
    return &mark->notes[note];
}

void dp_note_ends(atomic_int *const *count)
{
    if (*count != NULL) {
        add(*count, -1);
    }
}

static void mark_opened(struct dp_trace_mark *mark, const struct dp_span *span)
{
    if (span->phase == DP_PHASE_STEP) {
        atomic_store_explicit(&mark->step, span->arg + 1, memory_order_relaxed);
        atomic_store_explicit(&mark->bucket, -1, memory_order_relaxed);
    } else if (span->phase == DP_PHASE_WAIT) {
        atomic_store_explicit(&mark->bucket, span->arg, memory_order_relaxed);
    }
}

static void mark_open(const struct dp_span *span)
{
    for (int i = 0; i < DP_TRACE_READERS; i++) {
        if (published[i] != NULL) {
            mark_opened(published[i], span);
        }
    }
    update_marks();
}

void dp_trace_show(const struct dp_trace_tool *tool)
{
    atomic_store_explicit(&shown_by, tool, memory_order_release);
}

static const struct dp_trace_tool *tool_now(void)
{
    return atomic_load_explicit(&shown_by, memory_order_acquire);
}

void dp_span_open(struct dp_span *span, enum dp_phase phase, int64_t arg)
{
    const struct dp_trace_tool *tool = tool_now();

    span->phase = phase;
    span->arg = arg;
    span->inner_ns = 0;
    span->outer = innermost;
    span->begin_ns = dp_now_ns();
    innermost = span;
    step_ns = phase == DP_PHASE_STEP ? span->begin_ns : step_ns;
    if (publishes()) {
        mark_open(span);
    }
    if (tool != NULL) {
        tool->open(dp_phase_text(phase));
    }
}

void dp_span_close(struct dp_span *span)
{
    const uint64_t end_ns = dp_now_ns(), whole_ns = end_ns - span->begin_ns;
    const struct dp_trace_tool *tool = tool_now();

    if (dp_trace_records()) {
        dp_trace_add_span((int)span->phase, span->arg, span->begin_ns, end_ns);
    }
    phase_ns[span->phase] += whole_ns - span->inner_ns;
    if (span->outer != NULL) {
        span->outer->inner_ns += whole_ns;
    }
    innermost = span->outer;
    if (publishes()) {
        update_marks();
    }
    if (tool != NULL) {
        tool->close();
    }
}

void dp_trace_totals(uint64_t totals_ns[DP_PHASE_COUNT])
{
    const uint64_t now = dp_now_ns();
    uint64_t inside_ns = 0;

    for (int i = 0; i < DP_PHASE_COUNT; i++) {
        totals_ns[i] = phase_ns[i];
    }
    for (const struct dp_span *span = innermost; span != NULL; span = span->outer) {
        const uint64_t whole_ns = now - span->begin_ns;
        totals_ns[span->phase] += whole_ns - span->inner_ns - inside_ns;
        inside_ns = whole_ns;
    }
}

uint64_t dp_trace_step_ns(void)
{
    return step_ns != 0 ? step_ns : dp_now_ns();
}

int dp_trace_open_spans(void)
{
    int count = 0;

    for (const struct dp_span *span = innermost; span != NULL; span = span->outer) {
        count++;
    }
    return count;
}
