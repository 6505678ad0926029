/*
 * watchdog_own.h - what a watchdog knows, for the files that make it (watchdog.h).
 */
#ifndef DP_COLLECTIVES_WORLD_WATCHDOG_OWN_H
#define DP_COLLECTIVES_WORLD_WATCHDOG_OWN_H

#include <string.h>

#include "collectives/world/watchdog.h"

/* Times are of the watchdog's own clock, which stands still in gaps. */
struct rank_state {
    struct dp_watchdog_rank is;
    uint64_t changes, beats; /* of its mark */
    bool rounds;             /* of its mark: it waits in rounds of messages */
    int heard;               /* of its question */
    uint64_t moved_ns;       /* when one of both last changed */
    int activity;            /* enum dp_phase, and since when */
    long long step;
    uint64_t begin_ns;
    struct dp_process_doing first; /* what it did when its host made no progress any more */
    struct dp_process_doing now;
};

struct dp_watchdog {
    struct rank_state *ranks; /* owned */
    struct dp_hang_row *rows; /* owned; of the last look */
    int count, self;
    struct dp_watchdog_question *own; /* of this rank; NULL: none */
    char host[64];
    bool others;
    void (*look)(int64_t process, struct dp_process_doing *out);
    _Atomic double timeout_s;
    _Atomic double unseen_s;
    atomic_int outage_s;
    uint64_t last_ns, clock_ns;          /* of the last look: dp_now_ns(), and this clock */
    uint64_t moved_ns;                   /* the last progress of any rank */
    uint64_t heard_ns;                   /* when a rank last heard of some on another host */
    uint64_t looked_ns;                  /* when /proc was first read since; 0: not yet */
    uint64_t slowest_ns[DP_PHASE_COUNT]; /* as seen: 0 for what ends between two looks */
    unsigned ended;                      /* bits of activities that any rank has ended */
    bool warned;
};

static inline double in_seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

static inline int open_spans(const struct rank_state *r)
{
    return atomic_load_explicit(&r->is.mark->open, memory_order_relaxed);
}

static inline int phase(const struct rank_state *r)
{
    return atomic_load_explicit(&r->is.mark->phase, memory_order_relaxed);
}

static inline bool stopped(const struct rank_state *r)
{
    return r->now.state == 'T';
}

static inline bool runs(const struct rank_state *r)
{
    return strchr("TtZX", r->now.state) == NULL || r->now.state == '\0';
}

static inline bool notes(const struct rank_state *r, enum dp_trace_note note)
{
    return atomic_load_explicit(&r->is.mark->notes[note], memory_order_relaxed) > 0;
}

/* Whether it works for ranks that wait in rounds, and for no others. */
static inline bool works_beside(const struct rank_state *r)
{
    return notes(r, DP_NOTE_BESIDE) && runs(r);
}

static inline bool waits_in_rounds(const struct rank_state *r)
{
    return notes(r, DP_NOTE_AWAITS_ONE);
}

static inline bool waits(const struct rank_state *r)
{
    return (phase(r) == DP_PHASE_WAIT || waits_in_rounds(r) || notes(r, DP_NOTE_AWAITS_RANKS)) &&
           runs(r);
}

/* Whether it waits for work that need not come: nobody waits for it, and it for nobody. */
static inline bool idles(const struct rank_state *r)
{
    return phase(r) == DP_PHASE_IDLE && runs(r);
}

static inline bool has_ended(const struct dp_watchdog *w, int activity)
{
    return (w->ended & 1u << activity) != 0;
}

static inline bool has_stepped(const struct dp_watchdog *w)
{
    return has_ended(w, DP_PHASE_STEP);
}

/* Whether nobody waits for that rank, as far as is seen here: it idles, or works beside others. */
bool dp_watchdog_is_aside(const struct dp_watchdog *watchdog, const struct rank_state *rank);

/* Whether all ranks of this host wait for what other hosts may be doing, or start. */
bool dp_watchdog_waits_unseen(const struct dp_watchdog *watchdog);

/* After how many seconds without progress the job hangs; infinity: it does not. */
double dp_watchdog_limit_s(const struct dp_watchdog *watchdog);

/* The same of a step. */
double dp_watchdog_step_limit_s(const struct dp_watchdog *watchdog);

/* The shortest limit that there may be now. */
double dp_watchdog_least_s(const struct dp_watchdog *watchdog);

#endif
