/*
 * stepped_detector.h - for one file of a test: a failure detector whose time is the test's own. Its
 * checks are a tenth of a second apart, but nobody waits, and what happens at which check is noted.
 */
#ifndef DP_TESTS_SUPPORT_STEPPED_DETECTOR_H
#define DP_TESTS_SUPPORT_STEPPED_DETECTOR_H

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/system/stacks.h"
#include "collectives/world/failure_detector.h"
#include "tests/support/stderr_text.h"

/* The first check is at a time from which a tenth of a second ends at a whole one. */
#define STEPS_BEGIN_NS 7900000000ull

enum { STEP_NS = 100000000, STEPS_SECOND_NS = 1000000000, STEPS_EXIT_HUNG = 76 };

static struct {
    _Atomic uint64_t now_ns;
    pthread_t main;
    int check, most;          /* the check that is made; how many are made */
    void (*after)(int check); /* NULL: nothing happens between checks */
    sem_t begun, ended;
    struct dp_failure_detector_config config;
    struct dp_failure_detector *detector;
    struct dp_loss loss; /* what is lost from that check on, until the other */
    int lost_from, lost_to;
    atomic_int cancel;
    int wrong_sleeps;                         /* those that do not end a tenth of a second later */
    int lost, cancelled, hung, ends, aborted; /* the checks that did so first; -1: none */
    int code, aborts;
    int calls, called; /* of a hook; at which check */
    char cause[256];
    int naps;       /* of the main thread */
    int interrupts; /* naps of it that a signal interrupts */
    uint64_t napped_ns;
} steps;

/* The linker takes these three, and not libc's. */
int clock_gettime(clockid_t clock_id, struct timespec *tp)
{
    const uint64_t now_ns = atomic_load(&steps.now_ns);

    if (clock_id != CLOCK_MONOTONIC) {
        return (int)syscall(SYS_clock_gettime, clock_id, tp);
    }
    tp->tv_sec = (time_t)(now_ns / STEPS_SECOND_NS);
    tp->tv_nsec = (long)(now_ns % STEPS_SECOND_NS);
    return 0;
}

/* The main thread's, which a signal may interrupt before they have begun. */
int nanosleep(const struct timespec *requested_time, struct timespec *remaining)
{
    const uint64_t ns =
        (uint64_t)requested_time->tv_sec * STEPS_SECOND_NS + (uint64_t)requested_time->tv_nsec;

    if (!pthread_equal(pthread_self(), steps.main)) {
        return (int)syscall(SYS_nanosleep, requested_time, remaining);
    }
    steps.naps++;
    if (steps.interrupts > 0) {
        steps.interrupts--;
        *remaining = *requested_time;
        errno = EINTR;
        return -1;
    }
    steps.napped_ns += ns;
    atomic_fetch_add(&steps.now_ns, ns);
    return 0;
}

static inline void note_first(int *check, bool now)
{
    *check = *check < 0 && now ? steps.check : *check;
}

static inline void wait_for_post(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0) {
    }
}

/* What the detector's thread sleeps in, after each check. */
int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict abstime)
{
    const uint64_t until_ns = atomic_load(&steps.now_ns) + STEP_NS;

    (void)pthread_mutex_unlock(mutex);
    steps.wrong_sleeps += abstime->tv_sec != (time_t)(until_ns / STEPS_SECOND_NS) ||
                          abstime->tv_nsec != (long)(until_ns % STEPS_SECOND_NS);
    if (steps.check == 0) {
        wait_for_post(&steps.begun); /* so that it has its hooks and is known */
    }
    note_first(&steps.lost, dp_failure_detector_lost(steps.detector));
    note_first(&steps.cancelled, atomic_load(&steps.cancel) != 0);
    note_first(&steps.hung, dp_failure_detector_hung(steps.detector));
    note_first(&steps.ends, dp_failure_detector_ends(steps.detector));
    if (steps.after != NULL && steps.check < steps.most) {
        steps.after(steps.check);
    }
    if (steps.check == steps.most) {
        (void)pthread_mutex_lock(mutex); /* first, so that it waits when it is told to stop */
        (void)sem_post(&steps.ended);
        return pthread_cond_wait(cond, mutex);
    }
    atomic_store(&steps.now_ns, until_ns);
    steps.check++;
    (void)pthread_mutex_lock(mutex);
    return ETIMEDOUT;
}

static inline struct dp_loss steps_lost(void *context)
{
    assert_ptr_equal(context, &steps);
    return steps.check >= steps.lost_from && steps.check < steps.lost_to
               ? steps.loss
               : (struct dp_loss){.rank = -1};
}

static inline void steps_abort(int code)
{
    note_first(&steps.aborted, true);
    steps.code = code;
    steps.aborts++;
}

static inline void steps_hook(void *context, const char *cause)
{
    assert_ptr_equal(context, &steps);
    steps.calls++;
    steps.called = steps.check;
    (void)snprintf(steps.cause, sizeof(steps.cause), "%s", cause);
}

/* Of a test's own, where it changes the configuration before its first check. */
static inline void steps_init(void)
{
    memset(&steps, 0, sizeof(steps));
    atomic_store(&steps.now_ns, STEPS_BEGIN_NS);
    steps.main = pthread_self();
    steps.config = (struct dp_failure_detector_config){
        .cancel = &steps.cancel, .lost = steps_lost, .context = &steps, .abort = steps_abort};
    steps.lost_from = steps.lost_to = 1 << 30;
    steps.lost = steps.cancelled = steps.hung = steps.ends = steps.aborted = steps.called = -1;
    assert_int_equal(sem_init(&steps.begun, 0, 0), 0);
    assert_int_equal(sem_init(&steps.ended, 0, 0), 0);
    dp_stacks_init();
}

/* Makes a detector, which checks so many times, the first one included. */
static inline void steps_make(int checks)
{
    steps.most = checks - 1;
    stderr_begin();
    assert_int_equal(dp_failure_detector_create(&steps.config, &steps.detector), DP_OK);
    dp_failure_detector_on_hang(steps.detector, steps_hook, &steps);
    dp_failure_detector_on_loss(steps.detector, steps_hook, &steps);
    (void)sem_post(&steps.begun);
    wait_for_post(&steps.ended);
}

static inline void steps_end(void)
{
    dp_failure_detector_destroy(steps.detector);
    stderr_end();
    assert_int_equal(steps.wrong_sleeps, 0);
}

static inline int times_said(const char *words)
{
    int times = 0;

    for (const char *at = stderr_text; (at = strstr(at, words)) != NULL; at++) {
        times++;
    }
    return times;
}

#endif
