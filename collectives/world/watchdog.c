#include "collectives/world/watchdog_own.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/files/disk.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/system/job_processes.h"
#include "base/system/stacks.h"

enum {
    LOOK_S = 1,           /* without progress, and before the warning, /proc is read */
    PAGES_PER_SECOND = 50 /* read from a disk: more of them is swapping */
};

/* Looks are a tenth of a second apart; a longer gap was no time for the ranks either. */
static const uint64_t gap_ns = 500000000;

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
    atomic_store(&w->unseen_s, DP_HANG_UNSEEN_S);
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

void dp_watchdog_set_unseen(struct dp_watchdog *w, double seconds)
{
    atomic_store(&w->unseen_s, seconds);
}

void dp_watchdog_allow_outage(struct dp_watchdog *w, int seconds)
{
    atomic_store(&w->outage_s, seconds);
}

/* ---- where ranks are ---- */

static long long bucket(const struct rank_state *r)
{
    return atomic_load_explicit(&r->is.mark->bucket, memory_order_relaxed);
}

/* Notes what a rank has done since the last look. */
static void follow(struct dp_watchdog *w, struct rank_state *r)
{
    const struct dp_trace_mark *mark = r->is.mark;
    const uint64_t changes = atomic_load_explicit(&mark->changes, memory_order_relaxed);
    const uint64_t beats = atomic_load_explicit(&mark->beats, memory_order_relaxed);
    const int activity = atomic_load_explicit(&mark->activity, memory_order_relaxed);
    const long long step = atomic_load_explicit(&mark->step, memory_order_relaxed);
    const int heard = r->is.question != NULL ? atomic_load(&r->is.question->heard) : 0;
    const bool rounds = waits_in_rounds(r), only_rounds = rounds && r->rounds && step == r->step;

    if (heard != r->heard) {
        r->heard = heard;
        w->heard_ns = w->clock_ns;
    }
    r->rounds = rounds;
    if ((changes == r->changes || only_rounds) && beats == r->beats) {
        r->changes = changes;
        return;
    }
    r->changes = changes;
    r->beats = beats;
    r->moved_ns = w->clock_ns;
    w->moved_ns = dp_watchdog_is_aside(w, r) ? w->moved_ns : w->clock_ns;
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

double dp_watchdog_quiet_s(const struct dp_watchdog *w)
{
    const bool hears = w->heard_ns > w->moved_ns && dp_watchdog_waits_unseen(w);

    return in_seconds(w->clock_ns - (hears ? w->heard_ns : w->moved_ns));
}

/* Whether what processes do may soon matter, and so the limit. Not earlier: every rank reads all of
 * them, and where many start on few cores, that would take all cores. */
static bool must_look(const struct dp_watchdog *w)
{
    const double least_s = dp_watchdog_least_s(w);
    const double quiet_s = in_seconds(w->clock_ns - w->moved_ns);

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
    limit = dp_watchdog_limit_s(w);
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
    const char *stands = dp_process_stands(r->now.state);

    if (stands != NULL) {
        return stands;
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
                                .beside = works_beside(r),
                                .rounds = waits_in_rounds(r),
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
            dp_watchdog_quiet_s(w), cause, dp_watchdog_limit_s(w));
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
