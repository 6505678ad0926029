#include "collectives/world/last_watch.h"

#include <math.h>
#include <pthread.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/system/thread.h"

enum { LIMIT_S = 60, LEAST_S = 10, LOOK_EVERY_NS = 100000000 };

/* How long the rank that reports has for it before the others end. */
static const uint64_t report_ns = 10000000000;

struct dp_last_watch {
    struct dp_watchdog *watchdog; /* owned */
    struct dp_trace_mark *marks;  /* owned; [count]: all wait for each other, for ever */
    void (*end)(int code);
    uint64_t others_ns; /* 0: there are no other hosts */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t stopped;
    bool stop;
    uint64_t hung_ns; /* when that was found; 0: it was not */
};

/* What all ranks show that wait, after steps. */
static void set_mark(struct dp_trace_mark *mark)
{
    atomic_store(&mark->changes, 1);
    atomic_store(&mark->open, 1);
    atomic_store(&mark->phase, DP_PHASE_WAIT);
    atomic_store(&mark->activity, DP_PHASE_OTHER);
    atomic_store(&mark->bucket, -1);
    atomic_store(&mark->ended, 1u << DP_PHASE_STEP | 1u << DP_PHASE_OTHER);
}

/* Whether a rank of this host keeps the others from ending, and prints that. */
static bool report(struct dp_last_watch *watch, bool unseen)
{
    const bool others = watch->others_ns > 0;
    bool seen = !others || unseen;
    int count;
    const struct dp_hang_row *rows = dp_watchdog_rows(watch->watchdog, &count);

    for (int i = 0; i < count; i++) {
        seen = seen || !rows[i].waits;
    }
    if (seen) {
        dp_hang_table_report(rows, count, others, dp_watchdog_quiet_s(watch->watchdog), true);
    }
    return seen;
}

void dp_last_watch_look(struct dp_last_watch *watch, uint64_t now_ns)
{
    const enum dp_watchdog_finding finding = dp_watchdog_look(watch->watchdog, now_ns);
    uint64_t past_ns;

    if (finding != DP_WATCHDOG_HUNG) {
        watch->hung_ns = 0;
        return;
    }
    watch->hung_ns = watch->hung_ns == 0 ? now_ns : watch->hung_ns;
    past_ns = now_ns - watch->hung_ns;
    if (dp_watchdog_reports(watch->watchdog)) {
        if (report(watch, past_ns >= watch->others_ns)) {
            watch->end(dp_status_exit(DP_ERR_HUNG));
        }
    } else if (past_ns >= watch->others_ns + report_ns) {
        watch->end(dp_status_exit(DP_ERR_HUNG));
    }
}

static void *look_out(void *arg)
{
    struct dp_last_watch *watch = arg;

    (void)pthread_mutex_lock(&watch->mutex);
    while (!watch->stop) {
        dp_last_watch_look(watch, dp_now_ns());
        dp_cond_wait_until(&watch->stopped, &watch->mutex, dp_now_ns() + LOOK_EVERY_NS);
    }
    (void)pthread_mutex_unlock(&watch->mutex);
    return NULL;
}

static dp_status make_watchdog(const struct dp_last_watch_config *c, struct dp_last_watch *watch)
{
    struct dp_watchdog_rank *ranks = dp_zalloc((size_t)c->count, sizeof(*ranks));
    const struct dp_watchdog_config config = {
        .ranks = ranks, .count = c->count, .self = c->self, .host = c->host, .look = c->look};
    dp_status status;

    watch->marks = dp_zalloc((size_t)c->count, sizeof(*watch->marks));
    if (ranks == NULL || watch->marks == NULL) {
        dp_free(ranks);
        return DP_ERR_NOMEM;
    }
    for (int i = 0; i < c->count; i++) {
        set_mark(&watch->marks[i]);
        ranks[i] = (struct dp_watchdog_rank){
            .rank = c->ranks[i].rank, .process = c->ranks[i].process, .mark = &watch->marks[i]};
    }
    status = dp_watchdog_create(&config, &watch->watchdog);
    dp_free(ranks);
    DP_TRY(status);
    dp_watchdog_set_timeout(watch->watchdog,
                            c->timeout_s > 0.0 ? fmax(c->timeout_s, LEAST_S) : LIMIT_S);
    return DP_OK;
}

void dp_last_watch_destroy(struct dp_last_watch *watch)
{
    dp_watchdog_destroy(watch->watchdog);
    dp_free(watch->marks);
    dp_free(watch);
}

struct dp_last_watch *dp_last_watch_create(const struct dp_last_watch_config *config)
{
    struct dp_last_watch *watch = dp_zalloc(1, sizeof(*watch));

    if (watch == NULL) {
        return NULL;
    }
    watch->end = config->end;
    watch->others_ns = (uint64_t)(config->others_s * 1e9);
    if (make_watchdog(config, watch) != DP_OK) {
        dp_last_watch_destroy(watch);
        return NULL;
    }
    return watch;
}

struct dp_last_watch *dp_last_watch_begin(const struct dp_last_watch_config *config)
{
    struct dp_last_watch *watch;
    struct dp_log_capture problem;

    dp_log_capture_begin(&problem, DP_LOG_ERROR); /* the run has succeeded or failed without it */
    watch = dp_last_watch_create(config);
    if (watch != NULL) {
        (void)pthread_mutex_init(&watch->mutex, NULL);
        dp_cond_init(&watch->stopped);
        if (dp_thread_start(&watch->thread, look_out, watch, "dp-last", "watches the end") !=
            DP_OK) {
            dp_last_watch_destroy(watch);
            watch = NULL;
        }
    }
    dp_log_capture_end(&problem, DP_LOG_DROP);
    return watch;
}

void dp_last_watch_end(struct dp_last_watch *watch)
{
    if (watch == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&watch->mutex);
    watch->stop = true;
    (void)pthread_cond_signal(&watch->stopped);
    (void)pthread_mutex_unlock(&watch->mutex);
    (void)pthread_join(watch->thread, NULL);
    dp_last_watch_destroy(watch);
}
