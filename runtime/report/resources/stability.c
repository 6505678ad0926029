#include "runtime/report/resources/stability.h"

#include <math.h>
#include <stdio.h>

enum { LEAST_WINDOWS = 4, LEAST_S = 10, ERRORS = 3, DISK_PAGES_PER_SECOND = 50 };

static const double drift_most = 0.1, clock_change = 0.04;

static void join(struct dp_stability_window *into, const struct dp_stability_window *other)
{
    into->ns += other->ns;
    into->samples += other->samples;
    into->causes.ghz_sum += other->causes.ghz_sum;
    into->causes.looks += other->causes.looks;
    into->causes.over_ns += other->causes.over_ns;
    into->causes.queued_ns += other->causes.queued_ns;
    into->causes.stolen_ns += other->causes.stolen_ns;
    into->causes.major_faults += other->causes.major_faults;
}

static void join_neighbours(struct dp_stability *s)
{
    for (size_t i = 0; i < DP_STABILITY_WINDOWS / 2; i++) {
        s->windows[i] = s->windows[2 * i];
        join(&s->windows[i], &s->windows[2 * i + 1]);
    }
    s->count = DP_STABILITY_WINDOWS / 2;
    s->least_ns *= 2;
}

void dp_stability_add(struct dp_stability *s, uint64_t ns, uint64_t samples)
{
    s->least_ns = s->least_ns == 0 ? DP_STABILITY_FIRST_NS : s->least_ns;
    s->open.ns += ns;
    s->open.samples += samples;
    if (s->open.ns < s->least_ns) {
        return;
    }
    s->windows[s->count++] = s->open;
    s->open = (struct dp_stability_window){0};
    if (s->count == DP_STABILITY_WINDOWS) {
        join_neighbours(s);
    }
}

void dp_stability_note(struct dp_stability *s, const struct dp_stability_causes *causes)
{
    const struct dp_stability_window seen = {.causes = *causes};

    join(&s->open, &seen);
}

static double rate_of(const struct dp_stability_window *window)
{
    return window->ns > 0 ? (double)window->samples / ((double)window->ns / 1e9) : (double)NAN;
}

double dp_stability_rate(const struct dp_stability *s, int window)
{
    return rate_of(&s->windows[window]);
}

/* The first or the last quarter of the windows, joined. */
static struct dp_stability_window quarter(const struct dp_stability *s, bool last)
{
    const int count = s->count / 4, begin = last ? s->count - count : 0;
    struct dp_stability_window sum = {0};

    for (int i = begin; i < begin + count; i++) {
        join(&sum, &s->windows[i]);
    }
    return sum;
}

/* Standard deviation of the windows' rates within the quarter, over their mean. */
static double spread(const struct dp_stability *s, int begin, int count, double mean)
{
    double squares = 0.0;

    for (int i = begin; i < begin + count; i++) {
        const double off = dp_stability_rate(s, i) - mean;
        squares += off * off;
    }
    return count > 1 ? sqrt(squares / (count - 1)) / mean : 0.0;
}

struct dp_stability_found dp_stability_find(const struct dp_stability *s)
{
    struct dp_stability_found found = {s->count, (double)NAN, (double)NAN, (double)NAN, false};
    struct dp_stability_window all = {0};
    const int count = s->count / 4;
    double first, last, error;

    for (int i = 0; i < s->count; i++) {
        join(&all, &s->windows[i]);
    }
    if (s->count > 0) {
        found.window_s = (double)all.ns / 1e9 / s->count;
    }
    if (s->count < LEAST_WINDOWS) {
        return found;
    }
    const struct dp_stability_window early = quarter(s, false), late = quarter(s, true);
    first = rate_of(&early);
    last = rate_of(&late);
    found.cv = spread(s, 0, s->count, rate_of(&all));
    found.drift = last / first - 1.0;
    error =
        hypot(spread(s, 0, count, first), spread(s, s->count - count, count, last)) / sqrt(count);
    found.drifts = fabs(found.drift) > fmax(drift_most, ERRORS * error) &&
                   (double)all.ns / 1e9 >= LEAST_S && count > 1;
    return found;
}

/* ---- why ---- */

/* Per nanosecond in which it was looked at. */
static double per_ns(const struct dp_stability_window *window, uint64_t value)
{
    const uint64_t over_ns = window->causes.over_ns;

    return over_ns > 0 ? (double)value / (double)over_ns : 0.0;
}

static double ghz(const struct dp_stability_window *window)
{
    const struct dp_stability_causes *c = &window->causes;

    return c->looks > 0 ? c->ghz_sum / (double)c->looks : (double)NAN;
}

void dp_stability_cause(const struct dp_stability *s, char *text, size_t size)
{
    const struct dp_stability_window early = quarter(s, false), late = quarter(s, true);
    const double drift = rate_of(&late) / rate_of(&early) - 1.0;
    /* The share of its time that the run lost or won from one to the other. */
    const double lost = 1.0 / (1.0 + drift) - 1.0;
    const double queued =
        per_ns(&late, late.causes.queued_ns) - per_ns(&early, early.causes.queued_ns);
    const double stolen =
        per_ns(&late, late.causes.stolen_ns) - per_ns(&early, early.causes.stolen_ns);
    const double pages = 1e9 * per_ns(&late, late.causes.major_faults),
                 pages_before = 1e9 * per_ns(&early, early.causes.major_faults);
    const double clock = ghz(&late) / ghz(&early) - 1.0;

    if (fabs(pages - pages_before) > DISK_PAGES_PER_SECOND) {
        (void)snprintf(text, size,
                       "memory pressure: %.0f pages a second came from a disk, %.0f "
                       "before",
                       pages, pages_before);
    } else if ((queued + stolen) * lost > 0.0 && fabs(queued + stolen) > fabs(lost) / 3.0) {
        (void)snprintf(text, size,
                       "other load: this rank waited for a core %.0f %% of the time, "
                       "%.0f %% before",
                       100.0 * per_ns(&late, late.causes.queued_ns + late.causes.stolen_ns),
                       100.0 * per_ns(&early, early.causes.queued_ns + early.causes.stolen_ns));
    } else if (clock * drift > 0.0 && fabs(clock) > clock_change) {
        (void)snprintf(text, size, "the clock went from %.2f to %.2f GHz", ghz(&early), ghz(&late));
    } else {
        (void)snprintf(text, size,
                       "none that this rank can see: neither its clock, nor other load of "
                       "its core, nor memory pressure");
    }
}
