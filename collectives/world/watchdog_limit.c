/* watchdog_limit.c - how long ranks may make no progress: the table of watchdog.h. */
#include "collectives/world/watchdog_own.h"

#include <math.h>

enum {
    TIMES_SLOWEST = 5,
    LEAST_STEP_S = 10,
    FIRST_STEP_S = 60,
    AFTER_OUTAGE_S = 5,
    LEAST_OTHER_S = 30,
    FIRST_OTHER_S = 60
};

/* How long whatever is waited for may take where nothing but a message is: other hosts may be cut
 * off for a while. */
static double least_message_s(const struct dp_watchdog *w)
{
    return w->others ? atomic_load(&w->outage_s) + AFTER_OUTAGE_S : 0.0;
}

double dp_watchdog_step_limit_s(const struct dp_watchdog *w)
{
    const double set_s = atomic_load(&w->timeout_s);
    const double slowest_s = in_seconds(w->slowest_ns[DP_PHASE_STEP]);

    if (set_s > 0.0) {
        return set_s;
    }
    return fmax(least_message_s(w),
                has_stepped(w) ? fmax(LEAST_STEP_S, TIMES_SLOWEST * slowest_s) : FIRST_STEP_S);
}

/* What all ranks have begun that are waited for, and that is done in parts of about so long. */
static double announced_limit_s(const struct dp_watchdog *w, double expected_s)
{
    const double set_s = atomic_load(&w->timeout_s);
    const double least_s =
        set_s > 0.0 ? fmax(set_s, LEAST_STEP_S) : fmax(LEAST_OTHER_S, least_message_s(w));

    return fmax(least_s, TIMES_SLOWEST * expected_s);
}

/* Whether a rank outside of a step may wait for something that is at work, which cannot be seen:
 * storage, or, where it waits for another host, a rank that measures, writes or evaluates alone. */
static bool waits_unseen(const struct dp_watchdog *w, const struct rank_state *r)
{
    const bool alone =
        r->activity == DP_PHASE_CHECKPOINT || r->activity == DP_PHASE_MEASURE || waits_in_rounds(r);

    return !has_stepped(w) ||
           (r->is.question != NULL && atomic_load(&r->is.question->on_disk) > 0) ||
           (w->others && waits(r) && (alone || atomic_load(&w->timeout_s) == 0.0));
}

static double other_limit_s(const struct dp_watchdog *w, const struct rank_state *r)
{
    const double set_s = atomic_load(&w->timeout_s);
    const double slowest_s = in_seconds(w->slowest_ns[r->activity]);
    const double unseen_s = atomic_load(&w->unseen_s);
    double least_s = set_s > 0.0 ? set_s : fmax(LEAST_OTHER_S, dp_watchdog_step_limit_s(w));

    if (!has_ended(w, r->activity)) {
        least_s = fmax(least_s, fmin(FIRST_OTHER_S, unseen_s));
    }
    if (waits_unseen(w, r)) { /* what is waited for may be at work, or storage be slow */
        least_s = fmax(least_s, unseen_s);
    }
    return fmax(least_s, TIMES_SLOWEST * slowest_s);
}

static bool is_announced(const struct rank_state *r)
{
    return atomic_load_explicit(&r->is.mark->expects_ms, memory_order_relaxed) > 0;
}

bool dp_watchdog_is_aside(const struct dp_watchdog *w, const struct rank_state *r)
{
    bool works = false;

    if (idles(r) || !works_beside(r)) {
        return idles(r);
    }
    for (int i = 0; i < w->count; i++) {
        const struct rank_state *other = &w->ranks[i];
        if (waits_in_rounds(other)) {
            return false;
        }
        works = works || !(idles(other) || works_beside(other));
    }
    return works;
}

/* In a start it is not always said that a rank waits. */
bool dp_watchdog_waits_unseen(const struct dp_watchdog *w)
{
    bool any = false;

    for (int i = 0; i < w->count; i++) {
        const struct rank_state *r = &w->ranks[i];
        if (dp_watchdog_is_aside(w, r)) {
            continue;
        }
        if (!runs(r) || is_announced(r) || r->activity == DP_PHASE_STEP ||
            !(has_stepped(w) ? waits(r) && waits_unseen(w, r) : open_spans(r) > 0)) {
            return false;
        }
        any = true;
    }
    return any && w->others;
}

static double limit_of(const struct dp_watchdog *w, const struct rank_state *r)
{
    const int expects_ms = atomic_load_explicit(&r->is.mark->expects_ms, memory_order_relaxed);

    if (open_spans(r) == 0) {
        return (double)INFINITY;
    }
    if (expects_ms > 0) {
        return announced_limit_s(w, expects_ms / 1e3);
    }
    return r->activity == DP_PHASE_STEP ? dp_watchdog_step_limit_s(w) : other_limit_s(w, r);
}

/* A rank that is stopped or aside has no say, nor has one that waits while another rank of this
 * host is stopped or does anything else: whatever it waits for, all wait for that one. Where all
 * wait, as in a sum that takes long on a busy machine, or for another host, all have. */
double dp_watchdog_limit_s(const struct dp_watchdog *w)
{
    double limit = 0.0, waiting = 0.0;
    int idle = 0, stands = 0;

    for (int i = 0; i < w->count; i++) {
        const struct rank_state *r = &w->ranks[i];
        if (r->now.state == 't') {
            return (double)INFINITY;
        }
        idle += idles(r);
        stands += stopped(r);
        if (waits(r)) {
            waiting = fmax(waiting, limit_of(w, r));
        } else if (!stopped(r) && !dp_watchdog_is_aside(w, r)) {
            limit = fmax(limit, limit_of(w, r));
        }
    }
    if (idle == w->count) {
        return (double)INFINITY;
    }
    if (limit == 0.0 && stands == 0) {
        limit = waiting;
    }
    return limit > 0.0 ? limit : dp_watchdog_step_limit_s(w);
}

double dp_watchdog_least_s(const struct dp_watchdog *w)
{
    return fmin(dp_watchdog_step_limit_s(w), LEAST_OTHER_S);
}
