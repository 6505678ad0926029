#define _GNU_SOURCE /* gettid */

#include "base/system/worker.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/system/thread.h"
#include "base/trace.h"

struct dp_worker {
    struct dp_worker_config config;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* one for both threads: only one of them waits at a time */
    pid_t id;               /* of the thread; 0: it does not run yet */
    int nice;               /* of the thread as it was started */
    bool busy, ending;
    dp_status status; /* of the last run */
    uint64_t ns, core_ns;
};

/* Makes an idle worker nicer by so much: 0 while it is waited for or sleeps. A thread without
 * CAP_SYS_NICE cannot go back to 0. */
static void set_nice(const struct dp_worker *w, int by)
{
    if (w->config.idle && w->id > 0) {
        (void)setpriority(PRIO_PROCESS, (id_t)w->id, w->nice + by);
    }
}

/* CPU time of the calling thread. */
static uint64_t core_now_ns(void)
{
    struct timespec now = {0};

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void *worker_run(void *arg)
{
    struct dp_worker *w = arg;

    (void)pthread_mutex_lock(&w->mutex);
    w->id = gettid();
    w->nice = getpriority(PRIO_PROCESS, 0);
    set_nice(w, w->busy ? DP_WORKER_NICE : 0);
    while (!w->ending || w->busy) {
        if (!w->busy) {
            (void)pthread_cond_wait(&w->changed, &w->mutex);
            continue;
        }
        (void)pthread_mutex_unlock(&w->mutex);
        const uint64_t begin_ns = dp_now_ns(), core_ns = core_now_ns();
        const dp_status status = w->config.run(w->config.context);
        (void)pthread_mutex_lock(&w->mutex);
        w->ns = dp_now_ns() - begin_ns;
        w->core_ns = core_now_ns() - core_ns;
        w->status = status;
        w->busy = false;
        set_nice(w, 0);
        (void)pthread_cond_signal(&w->changed);
    }
    (void)pthread_mutex_unlock(&w->mutex);
    return NULL;
}

dp_status dp_worker_create(const struct dp_worker_config *config, struct dp_worker **out)
{
    struct dp_worker *w = dp_zalloc(1, sizeof(*w));
    dp_status status;

    if (w == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "worker");
    }
    w->config = *config;
    /* With default attributes these fail only without memory, which Linux never needs for them. */
    (void)pthread_mutex_init(&w->mutex, NULL);
    (void)pthread_cond_init(&w->changed, NULL);
    status = dp_thread_start(&w->thread, worker_run, w, config->name, config->task);
    if (status != DP_OK) {
        (void)pthread_cond_destroy(&w->changed);
        (void)pthread_mutex_destroy(&w->mutex);
        dp_free(w);
        return status;
    }
    *out = w;
    return DP_OK;
}

void dp_worker_start(struct dp_worker *w)
{
    (void)pthread_mutex_lock(&w->mutex);
    assert(!w->busy);
    w->busy = true;
    set_nice(w, DP_WORKER_NICE);
    (void)pthread_cond_signal(&w->changed);
    (void)pthread_mutex_unlock(&w->mutex);
}

bool dp_worker_busy(struct dp_worker *w)
{
    bool busy;

    (void)pthread_mutex_lock(&w->mutex);
    busy = w->busy;
    (void)pthread_mutex_unlock(&w->mutex);
    return busy;
}

dp_status dp_worker_wait(struct dp_worker *w)
{
    dp_status status;

    (void)pthread_mutex_lock(&w->mutex);
    if (w->busy) {
        set_nice(w, 0);
    }
    while (w->busy) {
        (void)pthread_cond_wait(&w->changed, &w->mutex);
    }
    status = w->status;
    (void)pthread_mutex_unlock(&w->mutex);
    return status;
}

uint64_t dp_worker_ns(const struct dp_worker *w)
{
    return w->ns;
}

uint64_t dp_worker_core_ns(const struct dp_worker *w)
{
    return w->core_ns;
}

void dp_worker_destroy(struct dp_worker *w)
{
    if (w == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&w->mutex);
    w->ending = true;
    set_nice(w, 0);
    (void)pthread_cond_signal(&w->changed);
    (void)pthread_mutex_unlock(&w->mutex);
    (void)pthread_join(w->thread, NULL);
    (void)pthread_cond_destroy(&w->changed);
    (void)pthread_mutex_destroy(&w->mutex);
    dp_free(w);
}
