#include "base/trace.h"

#include <time.h>

/* Totals of the calling thread, and its innermost open span. */
static _Thread_local uint64_t phase_ns[DP_PHASE_COUNT];
static _Thread_local struct dp_span *innermost;

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

void dp_span_open(struct dp_span *span, enum dp_phase phase, int64_t arg)
{
    span->phase = phase;
    span->arg = arg;
    span->inner_ns = 0;
    span->outer = innermost;
    span->begin_ns = dp_now_ns();
    innermost = span;
}

void dp_span_close(struct dp_span *span)
{
    const uint64_t whole_ns = dp_now_ns() - span->begin_ns;

    phase_ns[span->phase] += whole_ns - span->inner_ns;
    if (span->outer != NULL) {
        span->outer->inner_ns += whole_ns;
    }
    innermost = span->outer;
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

int dp_trace_open_spans(void)
{
    int count = 0;

    for (const struct dp_span *span = innermost; span != NULL; span = span->outer) {
        count++;
    }
    return count;
}
