#include "runtime/run/fault_beat.h"

#include <time.h>

#include "base/trace.h"

static int beat_ms; /* how long this rank sleeps at each */

void dp_fault_sleep(int ms)
{
    struct timespec left = {ms / 1000, (long)(ms % 1000) * 1000000};

    while (nanosleep(&left, &left) != 0) {
    }
}

static void sleep_a_while(void)
{
    dp_fault_sleep(beat_ms);
}

/* The first fault of this kind at beats of that rank; NULL: none. */
static const struct dp_fault *find(const struct dp_fault *first, const struct dp_plugin *kind,
                                   int rank)
{
    while (first != NULL && (first->kind != kind || first->beat == 0 || first->rank != rank)) {
        first = first->next;
    }
    return first;
}

void dp_fault_beat_start(const struct dp_fault *first, int rank, void (*stop)(void))
{
    const struct dp_fault *stops = find(first, &dp_fault_stop, rank);
    const struct dp_fault *slow = find(first, &dp_fault_slow, rank);

    (void)dp_trace_at_beat(stops != NULL ? stops->beat : 0, stop);
    beat_ms = slow != NULL ? slow->ms : 0;
    dp_trace_at_beats(slow != NULL ? sleep_a_while : NULL);
}

void dp_fault_beat_end(void)
{
    (void)dp_trace_at_beat(0, NULL);
    dp_trace_at_beats(NULL);
}

bool dp_fault_beat_misses(const struct dp_fault *fault)
{
    return fault->kind == &dp_fault_stop && dp_trace_at_beat(0, NULL) > 0;
}
