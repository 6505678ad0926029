#include "runtime/data/remote/remote.h"

#include <pthread.h>
#include <time.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/trace.h"
#include "runtime/data/remote/http.h"

enum {
    KEPT = 4, /* connections that nobody uses at the moment */
    FIRST_PAUSE_MS = 100,
    LONGEST_PAUSE_MS = 5000
};

struct dp_remote {
    struct dp_place place;
    double patience_s;
    pthread_mutex_t mutex;
    struct dp_http *kept[KEPT]; /* owned */
    int kept_count;
};

dp_status dp_remote_open(const char *dir, double patience_s, struct dp_remote **out)
{
    struct dp_remote *r = dp_zalloc(1, sizeof(*r));
    dp_status status;

    if (r == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: its address", dir);
    }
    r->patience_s = patience_s;
    (void)pthread_mutex_init(&r->mutex, NULL);
    status = dp_place_read(dir, &r->place);
    if (status != DP_OK) {
        dp_remote_close(r);
        return status;
    }
    if (r->place.plain) {
        DP_WARN("%s: is not encrypted: whoever is between can read and change data; https:// is "
                "safe",
                r->place.shown);
    }
    *out = r;
    return DP_OK;
}

void dp_remote_close(struct dp_remote *r)
{
    if (r == NULL) {
        return;
    }
    for (int i = 0; i < r->kept_count; i++) {
        dp_http_destroy(r->kept[i]);
    }
    (void)pthread_mutex_destroy(&r->mutex);
    dp_free(r);
}

const char *dp_remote_shown(const struct dp_remote *r)
{
    return r->place.shown;
}

/* ---- connections ---- */

static dp_status take_connection(struct dp_remote *r, struct dp_http **out)
{
    *out = NULL;
    (void)pthread_mutex_lock(&r->mutex);
    if (r->kept_count > 0) {
        *out = r->kept[--r->kept_count];
    }
    (void)pthread_mutex_unlock(&r->mutex);
    return *out != NULL ? DP_OK : dp_http_create(&r->place, r->patience_s, out);
}

static void keep_connection(struct dp_remote *r, struct dp_http *http)
{
    (void)pthread_mutex_lock(&r->mutex);
    if (r->kept_count < KEPT) {
        r->kept[r->kept_count++] = http;
        http = NULL;
    }
    (void)pthread_mutex_unlock(&r->mutex);
    dp_http_destroy(http);
}

/* ---- fetching ---- */

static dp_status refuse_length(const struct dp_remote *r, const struct dp_remote_want *want,
                               uint64_t total)
{
    return DP_FAIL(DP_ERR_DATA,
                   "%s/%s: has %llu bytes, index.json says %llu: copy it there again, or pack "
                   "again",
                   r->place.shown, want->name, (unsigned long long)total,
                   (unsigned long long)want->total);
}

/* What an answer that will not get better means. */
static dp_status refuse(const struct dp_remote *r, const struct dp_remote_want *want,
                        const struct dp_http_answer *answer)
{
    const char *place = r->place.shown;

    switch (answer->outcome) {
    case DP_HTTP_MISSING:
        return DP_FAIL(DP_ERR_NOINPUT,
                       "%s/%s: is missing there (%s): copy it there, or set data.dir to where it "
                       "is",
                       place, want->name, answer->problem);
    case DP_HTTP_SHORT:
        return DP_FAIL(DP_ERR_DATA, "%s/%s: is shorter than index.json says: copy it there again",
                       place, want->name);
    case DP_HTTP_STOPPED:
        return answer->status;
    default:
        return DP_FAIL(DP_ERR_NOINPUT,
                       "%s/%s: is refused (%s): check the address%s, and what you may read there",
                       place, want->name, answer->problem,
                       r->place.key != NULL ? ", the keys and the region in AWS_..." : "");
    }
}

static void nap(int ms)
{
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

    (void)nanosleep(&pause, NULL);
}

/* How far a want has come. */
struct progress {
    uint64_t got, last_ns; /* when the last byte came */
    int pause_ms;
    bool told;
};

/* After a try that broke off: waits, unless it was the last one. */
static dp_status wait_for_next(const struct dp_remote *r, const struct dp_remote_want *want,
                               const struct dp_http_answer *answer, struct progress *p)
{
    const double waited = (double)(dp_now_ns() - p->last_ns) / 1e9;
    const double left_ms = 1e3 * (r->patience_s - waited);

    if (left_ms <= 0.0) {
        return DP_FAIL(DP_ERR_NOINPUT,
                       "%s/%s: nothing came for %.0f s (%s): check the address and the server; "
                       "data.remote_wait_s waits longer",
                       r->place.shown, want->name, r->patience_s, answer->problem);
    }
    if (!p->told) {
        DP_WARN("%s/%s: %s: trying again, for %.0f s", r->place.shown, want->name, answer->problem,
                r->patience_s);
        p->told = true;
    }
    nap(left_ms < p->pause_ms ? (int)left_ms + 1 : p->pause_ms);
    p->pause_ms = 2 * p->pause_ms < LONGEST_PAUSE_MS ? 2 * p->pause_ms : LONGEST_PAUSE_MS;
    return DP_OK;
}

static dp_status fetch(struct dp_remote *r, struct dp_http *http, const struct dp_remote_want *want)
{
    struct progress p = {.last_ns = dp_now_ns(), .pause_ms = FIRST_PAUSE_MS};

    for (;;) {
        const struct dp_http_request request = {.name = want->name,
                                                .begin = want->begin + p.got,
                                                .end = want->end,
                                                .take = want->take,
                                                .context = want->context};
        struct dp_http_answer answer;
        dp_http_get(http, &request, &answer);
        p.got += answer.got;
        if (answer.outcome != DP_HTTP_STOPPED && want->total > 0 && answer.total > 0 &&
            answer.total != want->total) {
            return refuse_length(r, want, answer.total);
        }
        if (answer.outcome == DP_HTTP_DONE) {
            return DP_OK;
        }
        if (answer.outcome != DP_HTTP_AGAIN) {
            return refuse(r, want, &answer);
        }
        if (answer.got > 0) {
            p.last_ns = dp_now_ns();
            p.pause_ms = FIRST_PAUSE_MS;
        }
        DP_TRY(wait_for_next(r, want, &answer, &p));
    }
}

dp_status dp_remote_get(struct dp_remote *r, const struct dp_remote_want *want)
{
    struct dp_http *http;
    dp_status status;

    DP_TRY(take_connection(r, &http));
    status = fetch(r, http, want);
    keep_connection(r, http);
    return status;
}
