/*
 * watched_host.h - a host of three ranks under a watchdog, whose marks and processes a test sets.
 */
#ifndef DP_TESTS_SUPPORT_WATCHED_HOST_H
#define DP_TESTS_SUPPORT_WATCHED_HOST_H

#include <string.h>

#include "collectives/world/watchdog.h"
#include "tests/support/arrays.h"

enum { RANKS = 3, LOOK_MS = 100 };

#define MS 1000000ull

/* Three ranks of host h1, number 4 to 6; their processes are 40 to 42. */
static struct {
    struct dp_trace_mark marks[RANKS];
    struct dp_watchdog_question questions[RANKS];
    struct dp_process_doing doing[RANKS];
    struct dp_watchdog *watchdog;
    uint64_t now_ns;
    int looks; /* at a process */
} host;

static inline void look(int64_t process, struct dp_process_doing *out)
{
    *out = host.doing[process - 40];
    host.looks++;
}

static inline void begin(int self, bool other_hosts)
{
    struct dp_watchdog_rank ranks[RANKS];
    const struct dp_watchdog_config config = {.ranks = ranks,
                                              .count = RANKS,
                                              .self = self,
                                              .host = "h1",
                                              .others = other_hosts,
                                              .look = look};

    memset(&host, 0, sizeof(host));
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = (struct dp_watchdog_rank){4 + i, 40 + i, &host.marks[i], &host.questions[i]};
        host.doing[i].state = 'S';
    }
    host.now_ns = 5000 * MS;
    assert_int_equal(dp_watchdog_create(&config, &host.watchdog), DP_OK);
}

static inline void end(void)
{
    dp_watchdog_destroy(host.watchdog);
}

/* That activity has ended, as trace.c notes it. */
static inline void end_of(struct dp_trace_mark *mark, int activity)
{
    if (activity != DP_PHASE_OTHER || (atomic_load(&mark->ended) & 1u << DP_PHASE_STEP) != 0) {
        atomic_fetch_or(&mark->ended, 1u << activity);
    }
}

/* A rank is now there, with spans of this activity and phase open. */
static inline void put(int i, int activity, int phase, long long step, long long bucket)
{
    struct dp_trace_mark *mark = &host.marks[i];
    const int before = atomic_load(&mark->activity);
    const bool next = before == DP_PHASE_STEP && step != atomic_load(&mark->step);

    if (before != activity || next) {
        end_of(mark, before);
    }
    atomic_store(&mark->open, 2);
    atomic_store(&mark->activity, activity);
    atomic_store(&mark->phase, phase);
    atomic_store(&mark->step, step);
    atomic_store(&mark->bucket, bucket);
    atomic_fetch_add(&mark->changes, 1);
}

static inline void all_step(long long step)
{
    for (int i = 0; i < RANKS; i++) {
        put(i, DP_PHASE_STEP, DP_PHASE_FORWARD, step, -1);
    }
}

/* Looks for so long as a detector would; the most serious finding, and when it came first. */
static inline enum dp_watchdog_finding look_for(int ms, int *after_ms)
{
    enum dp_watchdog_finding worst = DP_WATCHDOG_FINE;

    for (int at = LOOK_MS; at <= ms; at += LOOK_MS) {
        host.now_ns += LOOK_MS * MS;
        const enum dp_watchdog_finding now = dp_watchdog_look(host.watchdog, host.now_ns);
        if (now > worst) {
            worst = now;
            *after_ms = at;
        }
    }
    return worst;
}

/* Some steps of so many milliseconds. */
static inline void train_steps(int ms)
{
    int when;

    for (int step = 1; step <= 4; step++) {
        all_step(step);
        assert_int_equal(look_for(ms, &when), DP_WATCHDOG_FINE);
    }
    all_step(5);
    (void)look_for(LOOK_MS, &when);
}

#endif
