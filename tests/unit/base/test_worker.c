/* test_worker.c - a thread that runs one task at a time, while the caller continues. */
#define _GNU_SOURCE /* gettid */

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/system/worker.h"

/* What the worker gets, and what it saw. */
struct desk {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool idle, begun, may_end;
    int done, nice;
    pid_t thread;
    dp_status result;
};

static dp_status work_when_told(void *context)
{
    struct desk *desk = context;

    (void)pthread_mutex_lock(&desk->mutex);
    desk->nice = getpriority(PRIO_PROCESS, 0);
    desk->thread = gettid();
    desk->begun = true;
    (void)pthread_cond_broadcast(&desk->changed);
    while (!desk->may_end) {
        (void)pthread_cond_wait(&desk->changed, &desk->mutex);
    }
    desk->done++;
    (void)pthread_mutex_unlock(&desk->mutex);
    return desk->result;
}

static struct desk desk_create(bool may_end)
{
    struct desk desk = {.may_end = may_end};

    (void)pthread_mutex_init(&desk.mutex, NULL);
    (void)pthread_cond_init(&desk.changed, NULL);
    return desk;
}

static dp_status create(struct desk *desk, struct dp_worker **out)
{
    const struct dp_worker_config config = {.name = "dp-test",
                                            .task = "works",
                                            .idle = desk != NULL && desk->idle,
                                            .run = work_when_told,
                                            .context = desk};

    return dp_worker_create(&config, out);
}

static void the_caller_continues_while_a_worker_runs(void **state)
{
    struct desk desk = desk_create(false);
    struct dp_worker *worker = NULL;
    (void)state;

    assert_int_equal(create(&desk, &worker), DP_OK);
    dp_worker_start(worker);
    (void)pthread_mutex_lock(&desk.mutex);
    while (!desk.begun) {
        (void)pthread_cond_wait(&desk.changed, &desk.mutex);
    }
    assert_int_equal(desk.done, 0); /* it works, and this thread is here */
    assert_true(dp_worker_busy(worker));
    desk.may_end = true;
    (void)pthread_cond_broadcast(&desk.changed);
    (void)pthread_mutex_unlock(&desk.mutex);
    assert_int_equal(dp_worker_wait(worker), DP_OK);
    assert_int_equal(desk.done, 1);
    assert_false(dp_worker_busy(worker));
    assert_true(dp_worker_ns(worker) > 0);
    dp_worker_destroy(worker);
    assert_int_equal(dp_mem_live(), 0);
}

static int nicer(int than, bool idle)
{
    const int nice = than + (idle ? DP_WORKER_NICE : 0);

    return nice > 19 ? 19 : nice;
}

/* Also the second time, after a wait. */
static void an_idle_worker_is_nicer_than_others(void **state)
{
    const int before = getpriority(PRIO_PROCESS, 0);
    (void)state;

    for (int i = 0; i < 4; i++) {
        struct desk desk = desk_create(false);
        struct dp_worker *worker = NULL;

        desk.idle = i % 2 == 0;
        assert_int_equal(create(&desk, &worker), DP_OK);
        for (int turn = 0; turn < 2; turn++) {
            dp_worker_start(worker);
            (void)pthread_mutex_lock(&desk.mutex);
            while (!desk.begun) {
                (void)pthread_cond_wait(&desk.changed, &desk.mutex);
            }
            assert_int_equal(desk.nice, nicer(before, desk.idle));
            desk.may_end = true;
            (void)pthread_cond_broadcast(&desk.changed);
            (void)pthread_mutex_unlock(&desk.mutex);
            assert_int_equal(dp_worker_wait(worker), DP_OK);
            desk.begun = desk.may_end = false;
        }
        assert_true(dp_worker_core_ns(worker) > 0);
        assert_int_equal(getpriority(PRIO_PROCESS, 0), before);
        dp_worker_destroy(worker);
    }
}

static bool may_lower_nice(void)
{
    const int nice = getpriority(PRIO_PROCESS, 0);
    const bool may = setpriority(PRIO_PROCESS, 0, nice - 1) == 0;

    (void)setpriority(PRIO_PROCESS, 0, nice);
    return may;
}

/* On a busy machine the end of a killed process would wait for it. */
static void a_sleeping_worker_is_not_nicer(void **state)
{
    const int before = getpriority(PRIO_PROCESS, 0);
    const struct timespec nap = {0, 1000000};
    struct desk desk = desk_create(true);
    struct dp_worker *worker = NULL;
    (void)state;

    if (!may_lower_nice()) { /* it stays nicer */
        skip();
    }
    desk.idle = true;
    assert_int_equal(create(&desk, &worker), DP_OK);
    dp_worker_start(worker);
    while (dp_worker_busy(worker)) {
        (void)nanosleep(&nap, NULL);
    }
    assert_int_equal(desk.nice, nicer(before, true));
    assert_int_equal(getpriority(PRIO_PROCESS, (id_t)desk.thread), before);
    dp_worker_destroy(worker);
}

static void each_run_has_its_own_result(void **state)
{
    struct desk desk = desk_create(true);
    struct dp_worker *worker = NULL;
    (void)state;

    assert_int_equal(create(&desk, &worker), DP_OK);
    assert_int_equal(dp_worker_wait(worker), DP_OK); /* it was never started */
    for (int i = 0; i < 100; i++) {
        desk.result = i % 3 == 0 ? DP_ERR_WRITE : DP_OK;
        dp_worker_start(worker);
        assert_int_equal(dp_worker_wait(worker), desk.result);
        assert_int_equal(dp_worker_wait(worker), desk.result); /* still of the last one */
        assert_int_equal(desk.done, i + 1);
    }
    dp_worker_destroy(worker);
}

static void a_begun_task_is_finished_before_destroying(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        struct desk desk = desk_create(true);
        struct dp_worker *worker = NULL;

        assert_int_equal(create(&desk, &worker), DP_OK);
        if (i % 2 == 0) {
            dp_worker_start(worker);
        }
        dp_worker_destroy(worker);
        assert_int_equal(desk.done, i % 2 == 0);
    }
    dp_worker_destroy(NULL);
}

static void survives_a_failed_allocation(void **state)
{
    struct dp_worker *worker = NULL;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    dp_mem_fail_nth(1);
    assert_int_equal(create(NULL, &worker), DP_ERR_NOMEM);
    dp_mem_fail_nth(0);
    dp_log_set_level(DP_LOG_INFO);
    assert_null(worker);
    assert_int_equal(dp_mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_caller_continues_while_a_worker_runs),
        cmocka_unit_test(an_idle_worker_is_nicer_than_others),
        cmocka_unit_test(a_sleeping_worker_is_not_nicer),
        cmocka_unit_test(each_run_has_its_own_result),
        cmocka_unit_test(a_begun_task_is_finished_before_destroying),
        cmocka_unit_test(survives_a_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
