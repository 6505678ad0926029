/*
 * test_thread.c - threads run their functions; if the system has no thread left, that is reported.
 */
#define _GNU_SOURCE /* pthread_getname_np */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/system/thread.h"

static void *write_one(void *argument)
{
    *(int *)argument = 1;
    return NULL;
}

static pthread_mutex_t started = PTHREAD_MUTEX_INITIALIZER;

static void *read_name(void *argument)
{
    (void)pthread_mutex_lock(&started);
    (void)pthread_getname_np(pthread_self(), argument, 16);
    (void)pthread_mutex_unlock(&started);
    return NULL;
}

static void a_thread_has_a_name(void **state)
{
    char name[16] = "";
    pthread_t thread;
    (void)state;

    (void)pthread_mutex_lock(&started); /* a thread is named while it may run */
    assert_int_equal(dp_thread_start(&thread, read_name, name, "dp-test", "reads"), DP_OK);
    (void)pthread_mutex_unlock(&started);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(name, "dp-test");
}

static void a_thread_runs_its_function(void **state)
{
    pthread_t thread;
    int written = 0;
    (void)state;

    assert_int_equal(dp_thread_start(&thread, write_one, &written, "dp-test", "writes"), DP_OK);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(written, 1);
}

static void slack_is_set_and_what_it_was_returned(void **state)
{
    const uint64_t before = dp_thread_slack(2000000);
    (void)state;

    assert_true(before > 0);
    assert_int_equal(dp_thread_slack(before), 2000000);
    assert_int_equal(dp_thread_slack(before), before);
}

static void trying_threads_leaves_none(void **state)
{
    (void)state;
    for (int count = 0; count < 9; count += 4) {
        assert_int_equal(dp_thread_try(count, "computes"), DP_OK);
    }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they end such a process */
/* In a process without any address space left. */
static int starts_without_room(void)
{
    const struct rlimit none = {0, 0};
    struct dp_log_capture capture;
    pthread_t thread;
    int written = 0;

    if (setrlimit(RLIMIT_AS, &none) != 0) {
        return 1;
    }
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    if (dp_thread_start(&thread, write_one, &written, "dp-test", "writes") != DP_ERR_NOMEM) {
        return 2;
    }
    if (strstr(dp_log_captured(&capture), "cannot start the thread that writes: ") == NULL) {
        return 3;
    }
    return dp_thread_try(1, "computes") == DP_ERR_NOMEM ? 0 : 4;
}

static void a_thread_that_cannot_start_is_reported(void **state)
{
    int ended = -1;
    const pid_t child = fork();
    (void)state;

    if (child == 0) {
        _exit(starts_without_room());
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        /* Runs first, since the C library keeps the stacks of ended threads. */
        cmocka_unit_test(a_thread_that_cannot_start_is_reported),
#endif
        cmocka_unit_test(a_thread_runs_its_function),
        cmocka_unit_test(a_thread_has_a_name),
        cmocka_unit_test(slack_is_set_and_what_it_was_returned),
        cmocka_unit_test(trying_threads_leaves_none),
    };
    return cmocka_run_group_tests_name("thread", tests, NULL, NULL);
}
