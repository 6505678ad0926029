#define _GNU_SOURCE /* SCHED_IDLE */

#include "runtime/checkpoint/writer.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/trace.h"

struct dp_writer {
    dp_status (*write)(void *context);
    void *context;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* for both sides: each waits for what only the other does */
    bool busy, ending;
    dp_status status; /* of the last write */
    uint64_t ns, core_ns;
};

/* Runs only where nothing else wants the core, or as any other thread. A thread that may not leave
 * the first (that takes CAP_SYS_NICE) stays there. */
static void set_policy(pthread_t thread, int policy)
{
    const struct sched_param none = {0};

    (void)pthread_setschedparam(thread, policy, &none);
}

/* What the calling thread has had of a core. */
static uint64_t core_now_ns(void)
{
    struct timespec now = {0};

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void *writer_run(void *arg)
{
    struct dp_writer *w = arg;

    (void)pthread_setname_np(pthread_self(), "dp-writer");
    (void)pthread_mutex_lock(&w->mutex);
    while (!w->ending || w->busy) {
        if (!w->busy) {
            (void)pthread_cond_wait(&w->changed, &w->mutex);
            continue;
        }
        (void)pthread_mutex_unlock(&w->mutex);
        const uint64_t begin_ns = dp_now_ns(), core_ns = core_now_ns();
        const dp_status status = w->write(w->context);
        (void)pthread_mutex_lock(&w->mutex);
        w->ns = dp_now_ns() - begin_ns;
        w->core_ns = core_now_ns() - core_ns;
        w->status = status;
        w->busy = false;
        (void)pthread_cond_signal(&w->changed);
    }
    (void)pthread_mutex_unlock(&w->mutex);
    return NULL;
}

dp_status dp_writer_create(dp_status (*write)(void *context), void *context, struct dp_writer **out)
{
    struct dp_writer *w = dp_zalloc(1, sizeof(*w));
    dp_status status;

    if (w == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "writer");
    }
    w->write = write;
    w->context = context;
    /* With default attributes these only fail for want of memory, which Linux never needs. */
    (void)pthread_mutex_init(&w->mutex, NULL);
    (void)pthread_cond_init(&w->changed, NULL);
    status = dp_thread_start(&w->thread, writer_run, w, "dp-writer", "writes checkpoints");
    if (status != DP_OK) {
        (void)pthread_cond_destroy(&w->changed);
        (void)pthread_mutex_destroy(&w->mutex);
        dp_free(w);
        return status;
    }
    *out = w;
    return DP_OK;
}

void dp_writer_start(struct dp_writer *w)
{
    (void)pthread_mutex_lock(&w->mutex);
    assert(!w->busy);
    w->busy = true;
    set_policy(w->thread, SCHED_IDLE);
    (void)pthread_cond_signal(&w->changed);
    (void)pthread_mutex_unlock(&w->mutex);
}

bool dp_writer_busy(struct dp_writer *w)
{
    bool busy;

    (void)pthread_mutex_lock(&w->mutex);
    busy = w->busy;
    (void)pthread_mutex_unlock(&w->mutex);
    return busy;
}

dp_status dp_writer_wait(struct dp_writer *w)
{
    dp_status status;

    (void)pthread_mutex_lock(&w->mutex);
    if (w->busy) {
        set_policy(w->thread, SCHED_OTHER);
    }
    while (w->busy) {
        (void)pthread_cond_wait(&w->changed, &w->mutex);
    }
    status = w->status;
    (void)pthread_mutex_unlock(&w->mutex);
    return status;
}

uint64_t dp_writer_ns(const struct dp_writer *w)
{
    return w->ns;
}

uint64_t dp_writer_core_ns(const struct dp_writer *w)
{
    return w->core_ns;
}

void dp_writer_destroy(struct dp_writer *w)
{
    if (w == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&w->mutex);
    w->ending = true;
    set_policy(w->thread, SCHED_OTHER);
    (void)pthread_cond_signal(&w->changed);
    (void)pthread_mutex_unlock(&w->mutex);
    (void)pthread_join(w->thread, NULL);
    (void)pthread_cond_destroy(&w->changed);
    (void)pthread_mutex_destroy(&w->mutex);
    dp_free(w);
}
