/* test_lock.c - a lock has one holder, who is named, and ends with it. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/files/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/system/process.h"
#include "base/system/process_tag.h"
#include "tests/support/scratch.h"
#include "tests/support/stderr_text.h"

static dp_status take(struct dp_lock **lock)
{
    return dp_lock_take(scratch_path("lock"), "this", "take another", lock);
}

/* A child that holds the lock until it is killed. */
static pid_t hold_elsewhere(void)
{
    int ready[2];
    char byte;
    pid_t child;

    assert_int_equal(pipe(ready), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct dp_lock *lock = NULL;
        const bool taken = take(&lock) == DP_OK;

        if (!taken || write(ready[1], "x", 1) != 1) {
            _exit(1);
        }
        (void)pause();
        _exit(0);
    }
    (void)close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    return child;
}

static void the_holder_of_a_lock_is_named(void **state)
{
    const pid_t child = hold_elsewhere();
    struct dp_lock *lock = NULL;
    char host[DP_HOST_BYTES], expected[256];
    (void)state;

    dp_process_host(host);
    (void)snprintf(expected, sizeof(expected),
                   "this is in use by process %ld on host %s: take another", (long)child, host);
    stderr_begin();
    assert_int_equal(take(&lock), DP_ERR_USAGE);
    stderr_end();
    assert_non_null(strstr(stderr_text, expected));
    assert_int_equal(dp_mem_live(), 0);

    scratch_write(scratch_path("lock"), "7 \x1b[2J\n", 8); /* whatever the file says */
    stderr_begin();
    assert_int_equal(take(&lock), DP_ERR_USAGE);
    stderr_end();
    assert_non_null(strstr(stderr_text, "this is in use by another process: take another"));

    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(take(&lock), DP_OK); /* though the file is still there */
    dp_lock_release(lock);
    assert_int_equal(scratch_count("."), 0);
}

/* A process that has ended while its child, for `ms` longer, has the file open: what a killed one
 * looks like whose memory takes long to release. Returns the process. */
static pid_t hold_beyond_the_end(long ms)
{
    int ready[2];
    char byte;
    pid_t child;

    assert_int_equal(pipe(ready), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct dp_lock *lock = NULL;
        if (take(&lock) == DP_OK && fork() == 0) {
            const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
            (void)close(ready[1]);
            (void)nanosleep(&time, NULL);
        }
        _exit(0);
    }
    (void)close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 0); /* both have closed it */
    (void)close(ready[0]);
    return child;
}

static void a_holder_that_ends_is_waited_for(void **state)
{
    const pid_t child = hold_beyond_the_end(200);
    struct dp_lock *lock = NULL;
    (void)state;

    assert_true(dp_process_ending(child)); /* a zombie as yet, or nearly */
    assert_int_equal(take(&lock), DP_OK);
    dp_lock_release(lock);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_false(dp_process_ending(getpid()));
}

static void a_lock_can_be_taken_again(void **state)
{
    struct dp_lock *lock = NULL;
    (void)state;

    for (int i = 0; i < 3; i++) {
        assert_int_equal(take(&lock), DP_OK);
        dp_lock_release(lock);
        assert_int_equal(scratch_count("."), 0);
    }
    dp_lock_release(NULL);
    assert_int_equal(dp_mem_live(), 0);
}

static void only_regular_files_are_locked(void **state)
{
    struct dp_lock *lock = NULL;
    char text[16];
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    scratch_write(scratch_path("theirs"), "thesis", 6);
    assert_int_equal(symlink("theirs", scratch_path("lock")), 0);
    assert_int_equal(take(&lock), DP_ERR_WRITE);
    assert_int_equal(scratch_read(scratch_path("theirs"), text, sizeof(text)), 6);
    assert_int_equal(unlink(scratch_path("lock")), 0);
    assert_int_equal(mkfifo(scratch_path("lock"), 0666), 0);
    assert_int_equal(take(&lock), DP_ERR_WRITE);
    dp_mem_fail_nth(1);
    assert_int_equal(take(&lock), DP_ERR_NOMEM);
    dp_mem_fail_nth(0);
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(dp_mem_live(), 0);
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, scratch_create, scratch_destroy)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(the_holder_of_a_lock_is_named),
        WITH_FOLDER(a_holder_that_ends_is_waited_for),
        WITH_FOLDER(a_lock_can_be_taken_again),
        WITH_FOLDER(only_regular_files_are_locked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
