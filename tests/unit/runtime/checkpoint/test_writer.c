/* test_writer.c - a thread that writes one thing at a time, while others go on. */
#define _GNU_SOURCE /* SCHED_IDLE */

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/checkpoint/writer.h"

/* What the writer's thread is told, and what it saw. */
struct desk {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool begun, may_end;
    int written, policy;
    dp_status result;
};

static dp_status write_when_told(void *context)
{
    struct desk *desk = context;

    (void)pthread_mutex_lock(&desk->mutex);
    desk->policy = sched_getscheduler(0);
    desk->begun = true;
    (void)pthread_cond_broadcast(&desk->changed);
    while (!desk->may_end) {
        (void)pthread_cond_wait(&desk->changed, &desk->mutex);
    }
    desk->written++;
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

static void the_caller_goes_on_while_it_writes(void **state)
{
    struct desk desk = desk_create(false);
    struct dp_writer *writer = NULL;
    (void)state;

    assert_int_equal(dp_writer_create(write_when_told, &desk, &writer), DP_OK);
    dp_writer_start(writer);
    (void)pthread_mutex_lock(&desk.mutex);
    while (!desk.begun) {
        (void)pthread_cond_wait(&desk.changed, &desk.mutex);
    }
    assert_int_equal(desk.written, 0); /* it writes, and this thread is here */
    assert_true(dp_writer_busy(writer));
    desk.may_end = true;
    (void)pthread_cond_broadcast(&desk.changed);
    (void)pthread_mutex_unlock(&desk.mutex);
    assert_int_equal(dp_writer_wait(writer), DP_OK);
    assert_int_equal(desk.written, 1);
    assert_false(dp_writer_busy(writer));
    assert_true(dp_writer_ns(writer) > 0);
    dp_writer_destroy(writer);
    assert_int_equal(dp_mem_live(), 0);
}

/* Also the second time, after somebody has waited for it. */
static void its_thread_alone_runs_only_where_no_other_does(void **state)
{
    const int before = sched_getscheduler(0);
    struct desk desk = desk_create(false);
    struct dp_writer *writer = NULL;
    (void)state;

    assert_int_equal(dp_writer_create(write_when_told, &desk, &writer), DP_OK);
    for (int i = 0; i < 2; i++) {
        dp_writer_start(writer);
        (void)pthread_mutex_lock(&desk.mutex);
        while (!desk.begun) {
            (void)pthread_cond_wait(&desk.changed, &desk.mutex);
        }
        assert_int_equal(desk.policy, SCHED_IDLE);
        desk.may_end = true;
        (void)pthread_cond_broadcast(&desk.changed);
        (void)pthread_mutex_unlock(&desk.mutex);
        assert_int_equal(dp_writer_wait(writer), DP_OK);
        desk.begun = desk.may_end = false;
    }
    assert_true(dp_writer_core_ns(writer) > 0);
    assert_int_equal(sched_getscheduler(0), before);
    dp_writer_destroy(writer);
}

static void each_write_has_its_own_result(void **state)
{
    struct desk desk = desk_create(true);
    struct dp_writer *writer = NULL;
    (void)state;

    assert_int_equal(dp_writer_create(write_when_told, &desk, &writer), DP_OK);
    assert_int_equal(dp_writer_wait(writer), DP_OK); /* nothing was written */
    for (int i = 0; i < 100; i++) {
        desk.result = i % 3 == 0 ? DP_ERR_WRITE : DP_OK;
        dp_writer_start(writer);
        assert_int_equal(dp_writer_wait(writer), desk.result);
        assert_int_equal(dp_writer_wait(writer), desk.result); /* still of the last one */
        assert_int_equal(desk.written, i + 1);
    }
    dp_writer_destroy(writer);
}

static void what_was_begun_is_finished_before_it_ends(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        struct desk desk = desk_create(true);
        struct dp_writer *writer = NULL;

        assert_int_equal(dp_writer_create(write_when_told, &desk, &writer), DP_OK);
        if (i % 2 == 0) {
            dp_writer_start(writer);
        }
        dp_writer_destroy(writer);
        assert_int_equal(desk.written, i % 2 == 0);
    }
    dp_writer_destroy(NULL);
}

static void survives_a_failed_allocation(void **state)
{
    struct dp_writer *writer = NULL;
    (void)state;

    dp_log_mute(1);
    dp_mem_fail_nth(1);
    assert_int_equal(dp_writer_create(write_when_told, NULL, &writer), DP_ERR_NOMEM);
    dp_mem_fail_nth(0);
    dp_log_mute(0);
    assert_null(writer);
    assert_int_equal(dp_mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_caller_goes_on_while_it_writes),
        cmocka_unit_test(its_thread_alone_runs_only_where_no_other_does),
        cmocka_unit_test(each_write_has_its_own_result),
        cmocka_unit_test(what_was_begun_is_finished_before_it_ends),
        cmocka_unit_test(survives_a_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
