#include "collectives/world/watchdog.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/files/disk.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/system/stacks.h"

enum {
    TIMES_SLOWEST = 5,
    LEAST_STEP_S = 10,
    FIRST_STEP_S = 60,
    AFTER_OUTAGE_S = 5,
    LEAST_OTHER_S = 30,
    FIRST_OTHER_S = 60,
    LEAST_UNSEEN_S = 300, /* what is waited for may be at work, or storage be slow */
    LOOK_S = 1,           /* without progress, and before the warning, /proc is read */
    PAGES_PER_SECOND = 50 /* read from a disk: more of them is swapping */
};

/* Looks are a tenth of a second apart; a longer gap was no time for the ranks either. */
static const uint64_t gap_ns = 500000000;

/* Times are of the watchdog's own clock, which stands still in gaps. */
struct rank_state {
    struct dp_watchdog_rank is;
    uint64_t changes, moved_ns; /* of its mark, and when it last changed */
    int activity;               /* enum dp_phase, and since when */
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
    atomic_int outage_s;
    uint64_t last_ns, clock_ns;          /* of the last look: dp_now_ns(), and this clock */
    uint64_t moved_ns;                   /* the last progress of any rank */
    uint64_t looked_ns;                  /* when /proc was first read since; 0: not yet */
    uint64_t slowest_ns[DP_PHASE_COUNT]; /* as seen: 0 for what ends between two looks */
    unsigned ended;                      /* bits of activities that any rank has ended */
    bool warned;
};

static double in_seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

dp_status dp_watchdog_create(const struct dp_watchdog_config *config, struct dp_watchdog **out)
{
    struct dp_watchdog *w = dp_zalloc(1, sizeof(*w));
    struct rank_state *ranks = dp_zalloc((size_t)config->count, sizeof(*ranks));
    struct dp_hang_row *rows = dp_zalloc((size_t)config->count, sizeof(*rows));

    if (w == NULL || ranks == NULL || rows == NULL) {
        dp_free(w);
        dp_free(ranks);
        dp_free(rows);
        return DP_FAIL(DP_ERR_NOMEM, "watchdog of %d ranks", config->count);
    }
    for (int i = 0; i < config->count; i++) {
        ranks[i].is = config->ranks[i];
        w->own = config->ranks[i].rank == config->self ? config->ranks[i].question : w->own;
    }
    w->ranks = ranks;
    w->rows = rows;
    w->count = config->count;
    w->self = config->self;
    (void)snprintf(w->host, sizeof(w->host), "%s", config->host);
    w->others = config->others;
    w->look = config->look;
    *out = w;
    return DP_OK;
}

void dp_watchdog_destroy(struct dp_watchdog *w)
{
    if (w != NULL) {
        dp_free(w->ranks);
        dp_free(w->rows);
        dp_free(w);
    }
}

void dp_watchdog_set_timeout(struct dp_watchdog *w, double seconds)
{
    atomic_store(&w->timeout_s, seconds);
}

void dp_watchdog_allow_outage(struct dp_watchdog *w, int seconds)
{
    atomic_store(&w->outage_s, seconds);
}

/* ---- where ranks are ---- */

static int open_spans(const struct rank_state *r)
{
    return atomic_load_explicit(&r->is.mark->open, memory_order_relaxed);
}

static int phase(const struct rank_state *r)
{
    return atomic_load_explicit(&r->is.mark->phase, memory_order_relaxed);
}

static long long bucket(const struct rank_state *r)
{
    return atomic_load_explicit(&r->is.mark->bucket, memory_order_relaxed);
}

static bool stopped(const struct rank_state *r)
{
    return r->now.state == 'T';
}

static bool runs(const struct rank_state *r)
{
    return strchr("TtZX", r->now.state) == NULL || r->now.state == '\0';
}

static bool waits(const struct rank_state *r)
{
    return phase(r) == DP_PHASE_WAIT && runs(r);
}

/* Whether it waits for work that need not come: nobody waits for it, and it for nobody. */
static bool idles(const struct rank_state *r)
{
    return phase(r) == DP_PHASE_IDLE && runs(r);
}

static bool has_ended(const struct dp_watchdog *w, int activity)
{
    return (w->ended & 1u << activity) != 0;
}

static bool has_stepped(const struct dp_watchdog *w)
{
    return has_ended(w, DP_PHASE_STEP);
}

/* Notes what a rank has done since the last look. */
static void follow(struct dp_watchdog *w, struct rank_state *r)
{
    const struct dp_trace_mark *mark = r->is.mark;
    const uint64_t changes = atomic_load_explicit(&mark->changes, memory_order_relaxed);
    const int activity = atomic_load_explicit(&mark->activity, memory_order_relaxed);
    const long long step = atomic_load_explicit(&mark->step, memory_order_relaxed);

    if (changes == r->changes) {
        return;
    }
    r->changes = changes;
    r->moved_ns = w->clock_ns;
    w->moved_ns = w->clock_ns;
    w->ended |= atomic_load_explicit(&mark->ended, memory_order_relaxed);
    if (activity != r->activity || step != r->step) {
        const uint64_t took_ns = w->clock_ns - r->begin_ns;
        uint64_t *slowest = &w->slowest_ns[r->activity];
        if (r->activity != DP_PHASE_OTHER || has_stepped(w)) { /* the start is no measure */
            *slowest = took_ns > *slowest ? took_ns : *slowest;
        }
        r->activity = activity;
        r->step = step;
        r->begin_ns = w->clock_ns;
    }
}

/* ---- how long is too long ---- */

static double step_limit_s(const struct dp_watchdog *w)
{
    const double set_s = atomic_load(&w->timeout_s);
    const double slowest_s = in_seconds(w->slowest_ns[DP_PHASE_STEP]);

    if (set_s > 0.0) {
        return set_s;
    }
    return fmax(w->others ? atomic_load(&w->outage_s) + AFTER_OUTAGE_S : LEAST_STEP_S,
                has_stepped(w) ? fmax(LEAST_STEP_S, TIMES_SLOWEST * slowest_s) : FIRST_STEP_S);
}

/* Whether a rank outside of a step may wait for something that is at work, which cannot be seen:
 * storage, or, where it waits for another host, a rank that measures, writes or evaluates alone. */
static bool waits_unseen(const struct dp_watchdog *w, const struct rank_state *r)
{
    const bool alone = r->activity == DP_PHASE_CHECKPOINT || r->activity == DP_PHASE_MEASURE;

    return !has_stepped(w) ||
           (r->is.question != NULL && atomic_load(&r->is.question->on_disk) > 0) ||
           (w->others && waits(r) && (alone || atomic_load(&w->timeout_s) == 0.0));
}

static double other_limit_s(const struct dp_watchdog *w, const struct rank_state *r)
{
    const double set_s = atomic_load(&w->timeout_s);
    const double slowest_s = in_seconds(w->slowest_ns[r->activity]);
    double least_s = set_s > 0.0 ? set_s : fmax(LEAST_OTHER_S, step_limit_s(w));

    if (!has_ended(w, r->activity)) {
        least_s = fmax(least_s, FIRST_OTHER_S);
    }
    if (waits_unseen(w, r)) {
        least_s = fmax(least_s, LEAST_UNSEEN_S);
    }
    return fmax(least_s, TIMES_SLOWEST * slowest_s);
}

static double limit_of(const struct dp_watchdog *w, const struct rank_state *r)
{
    if (open_spans(r) == 0) {
        return (double)INFINITY;
    }
    return r->activity == DP_PHASE_STEP ? step_limit_s(w) : other_limit_s(w, r);
}

/* A rank that is stopped or idle has no say, nor has one that waits while another rank of this host
 * is stopped or does anything else: whatever it waits for, all wait for that one. Where all wait,
 * as in a sum that takes long on a busy machine, or for another host, all have. */
static double limit_s(const struct dp_watchdog *w)
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
        } else if (!stopped(r) && !idles(r)) {
            limit = fmax(limit, limit_of(w, r));
        }
    }
    if (idle == w->count) {
        return (double)INFINITY;
    }
    if (limit == 0.0 && stands == 0) {
        limit = waiting;
    }
    return limit > 0.0 ? limit : step_limit_s(w);
}

double dp_watchdog_quiet_s(const struct dp_watchdog *w)
{
    return in_seconds(w->clock_ns - w->moved_ns);
}

/* Whether what processes do may soon matter, and so the limit. Not earlier: every rank reads all of
 * them, and where many start on few cores, that would take all cores. */
static bool must_look(const struct dp_watchdog *w)
{
    const double least_s = fmin(step_limit_s(w), LEAST_OTHER_S);
    const double quiet_s = dp_watchdog_quiet_s(w);

    return quiet_s >= LOOK_S && quiet_s >= least_s / 2 - LOOK_S;
}

/* Reads what the processes do, twice or more, so that it can be said what they did meanwhile. */
static void look_at_processes(struct dp_watchdog *w)
{
    const bool first = w->looked_ns == 0;

    if (!must_look(w)) {
        w->looked_ns = 0;
        for (int i = 0; i < w->count; i++) {
            w->ranks[i].now.state = '\0';
        }
        return;
    }
    for (int i = 0; i < w->count; i++) {
        struct rank_state *r = &w->ranks[i];
        w->look(r->is.process, &r->now);
        r->first = first ? r->now : r->first;
    }
    w->looked_ns = first ? w->clock_ns : w->looked_ns;
}

enum dp_watchdog_finding dp_watchdog_look(struct dp_watchdog *w, uint64_t now_ns)
{
    const uint64_t past_ns = w->last_ns == 0 ? 0 : now_ns - w->last_ns;
    double limit;

    w->last_ns = now_ns;
    w->clock_ns += past_ns < gap_ns ? past_ns : gap_ns;
    for (int i = 0; i < w->count; i++) {
        follow(w, &w->ranks[i]);
    }
    look_at_processes(w);
    if (w->moved_ns == w->clock_ns) { /* what follows would say so, too, but slowly */
        w->warned = false;
        return DP_WATCHDOG_FINE;
    }
    limit = limit_s(w);
    if (dp_watchdog_quiet_s(w) >= limit) {
        return DP_WATCHDOG_HUNG;
    }
    if (dp_watchdog_quiet_s(w) < limit / 2) {
        w->warned = false;
        return DP_WATCHDOG_FINE;
    }
    if (w->warned) {
        return DP_WATCHDOG_FINE;
    }
    w->warned = true;
    return DP_WATCHDOG_QUIET;
}

bool dp_watchdog_reports(const struct dp_watchdog *w)
{
    for (int i = 0; i < w->count; i++) {
        if (runs(&w->ranks[i])) {
            return w->ranks[i].is.rank == w->self;
        }
    }
    return false;
}

/* ---- who reports ---- */

bool dp_watchdog_claim(const struct dp_watchdog *w)
{
    struct dp_watchdog_question *q = w->ranks[0].is.question;
    int nobody = 0;

    return q == NULL || atomic_compare_exchange_strong(&q->reporter, &nobody, w->self + 1) ||
           nobody == w->self + 1;
}

void dp_watchdog_disclaim(const struct dp_watchdog *w)
{
    struct dp_watchdog_question *q = w->ranks[0].is.question;
    int self = w->self + 1;

    if (q != NULL) {
        (void)atomic_compare_exchange_strong(&q->reporter, &self, 0);
    }
}

void dp_watchdog_note_end(const struct dp_watchdog *w)
{
    if (w->own != NULL) {
        atomic_store(&w->own->ended, 1);
    }
}

bool dp_watchdog_ends(const struct dp_watchdog *w)
{
    for (int i = 0; i < w->count; i++) {
        if (w->ranks[i].is.question != NULL && atomic_load(&w->ranks[i].is.question->ended) != 0) {
            return true;
        }
    }
    return false;
}

/* ---- what is told of them ---- */

/* What a process has done since the ranks of this host made no progress any more. */
static const char *doing(const struct dp_watchdog *w, const struct rank_state *r)
{
    const double past_s = fmax(in_seconds(w->clock_ns - w->looked_ns), 1e-3);

    switch (r->now.state) {
    case 'T':
        return "stopped by a signal";
    case 't':
        return "held by a debugger";
    case 'Z':
    case 'X':
        return "has ended";
    default:
        break;
    }
    if ((double)(r->now.page_reads - r->first.page_reads) > PAGES_PER_SECOND * past_s) {
        return "swapping";
    }
    if (waits(r)) {
        return "waits for other ranks";
    }
    if (idles(r)) {
        return "has nothing to do";
    }
    if (r->now.state == 'D') {
        return "waits for a device";
    }
    if (r->now.state == 'R' || in_seconds(r->now.cpu_ns - r->first.cpu_ns) > past_s / 2) {
        return "computing";
    }
    return strncmp(r->now.waits, "futex", 5) == 0 ? "waits for a lock" : "sleeping";
}

static const char *phase_text(const struct rank_state *r)
{
    return open_spans(r) == 0 ? "outside" : dp_phase_text((enum dp_phase)phase(r));
}

static void describe(const struct dp_watchdog *w, const struct rank_state *r,
                     struct dp_hang_row *out)
{
    const struct dp_watchdog_question *q = r->is.question;

    *out = (struct dp_hang_row){.rank = r->is.rank,
                                .known = true,
                                .waits = waits(r),
                                .idles = idles(r),
                                .activity = r->activity,
                                .step = r->step,
                                .bucket = bucket(r),
                                .since_s = in_seconds(w->clock_ns - r->moved_ns)};
    memcpy(out->host, w->host, sizeof(out->host));
    memcpy(out->kernel, r->now.waits, sizeof(out->kernel));
    (void)snprintf(out->phase, sizeof(out->phase), "%s", phase_text(r));
    (void)snprintf(out->doing, sizeof(out->doing), "%s", doing(w, r));
    if (q != NULL && atomic_load(&q->asked) > 0 &&
        atomic_load_explicit(&q->given, memory_order_acquire) == atomic_load(&q->asked)) {
        memcpy(out->stacks, q->stacks, sizeof(out->stacks));
        out->stacks[sizeof(out->stacks) - 1] = '\0';
    }
}

const struct dp_hang_row *dp_watchdog_rows(struct dp_watchdog *w, int *count)
{
    for (int i = 0; i < w->count; i++) {
        describe(w, &w->ranks[i], &w->rows[i]);
    }
    *count = w->count;
    return w->rows;
}

bool dp_watchdog_has_others(const struct dp_watchdog *w)
{
    return w->others;
}

void dp_watchdog_warn(struct dp_watchdog *w)
{
    char cause[1024];
    int count;

    dp_hang_table_cause(dp_watchdog_rows(w, &count), w->count, w->others, cause, sizeof(cause));
    DP_WARN("no progress for %.1f s: %s; the job ends after %.1f s (train.hang_timeout_s)",
            dp_watchdog_quiet_s(w), cause, limit_s(w));
}

/* ---- stacks ---- */

void dp_watchdog_ask(const struct dp_watchdog *w)
{
    for (int i = 0; i < w->count; i++) {
        if (w->ranks[i].is.question != NULL) {
            atomic_fetch_add(&w->ranks[i].is.question->asked, 1);
        }
    }
}

bool dp_watchdog_answered(const struct dp_watchdog *w)
{
    for (int i = 0; i < w->count; i++) {
        const struct dp_watchdog_question *q = w->ranks[i].is.question;
        if (q != NULL && runs(&w->ranks[i]) && atomic_load(&q->given) != atomic_load(&q->asked)) {
            return false;
        }
    }
    return true;
}

void dp_watchdog_answer(const struct dp_watchdog *w)
{
    struct dp_watchdog_question *q = w->own;
    const int asked = q != NULL ? atomic_load(&q->asked) : 0;

    if (q == NULL) {
        return;
    }
    atomic_store(&q->on_disk, dp_disk_under_way());
    if (atomic_load(&q->given) != asked) {
        dp_stacks_print(q->stacks, sizeof(q->stacks));
        atomic_store_explicit(&q->given, asked, memory_order_release);
    }
}
