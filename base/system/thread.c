#define _GNU_SOURCE /* pthread_setname_np */

#include "base/system/thread.h"

#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/mem.h"

dp_status dp_thread_start(pthread_t *thread, void *(*body)(void *), void *argument,
                          const char *name, const char *task)
{
    const int problem = pthread_create(thread, NULL, body, argument);

    if (problem != 0) {
        return DP_FAIL(DP_ERR_NOMEM,
                       "cannot start the thread that %s: %s (is ulimit -u or -v too small?)", task,
                       strerror(problem));
    }
    (void)pthread_setname_np(*thread, name);
    return DP_OK;
}

static void *pass_gate(void *gate)
{
    (void)pthread_mutex_lock(gate);
    (void)pthread_mutex_unlock(gate);
    return NULL;
}

dp_status dp_thread_try(int count, const char *task)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t *threads = count > 0 ? dp_zalloc((size_t)count, sizeof(*threads)) : NULL;
    dp_status status = DP_OK;
    int started = 0;

    if (count > 0 && threads == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "threads that %s", task);
    }
    (void)pthread_mutex_lock(&gate); /* until then none of them ends */
    while (started < count && status == DP_OK) {
        status = dp_thread_start(&threads[started], pass_gate, &gate, "dp-try", task);
        started += status == DP_OK;
    }
    (void)pthread_mutex_unlock(&gate);
    while (started > 0) {
        (void)pthread_join(threads[--started], NULL);
    }
    dp_free(threads);
    return status;
}

uint64_t dp_thread_slack(uint64_t ns)
{
    const int before = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);

    return before > 0 && prctl(PR_SET_TIMERSLACK, (unsigned long)ns, 0, 0, 0) == 0
               ? (uint64_t)before
               : 0;
}

void dp_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t clock;

    /* These fail only without memory, which Linux never needs for them. */
    (void)pthread_condattr_init(&clock);
    (void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    (void)pthread_cond_init(cond, &clock);
    (void)pthread_condattr_destroy(&clock);
}

void dp_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t until_ns)
{
    const struct timespec at = {.tv_sec = (time_t)(until_ns / 1000000000u),
                                .tv_nsec = (long)(until_ns % 1000000000u)};

    (void)pthread_cond_timedwait(cond, mutex, &at);
}
