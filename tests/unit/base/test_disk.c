/* test_disk.c - faults of the calls that change files: which call, what it does, whose. */
#include "tests/support/arrays.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/files/disk.h"
#include "base/files/file.h"
#include "tests/support/scratch.h"

enum { BYTES = 100 };

static const char content[BYTES] = "content";

/* Three calls: creates a file, writes into it, renames it. Returns the number of the first that
 * fails, with *reason; 0: none. */
static int change(int *reason)
{
    char from[DP_PATH_BYTES];
    int failed = 0;

    (void)snprintf(from, sizeof(from), "%s", scratch_path("from"));
    const int fd = dp_disk_create(from, O_WRONLY | O_TRUNC);
    const ssize_t done = fd < 0 ? -1 : dp_disk_write(fd, content, BYTES);

    if (fd < 0 || done < 0) {
        failed = fd < 0 ? 1 : 2;
    } else if (dp_disk_rename(from, scratch_path("to")) != 0) {
        failed = 3;
    }
    *reason = failed > 0 ? errno : 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return failed;
}

static ssize_t size_of(const char *name)
{
    static char read[2 * BYTES];

    return access(scratch_path(name), F_OK) != 0
               ? -1
               : (ssize_t)scratch_read(scratch_path(name), read, sizeof(read));
}

/* The calls, in a process of their own that may be killed. Returns what waitpid() does. */
static int change_apart(const struct dp_fault *faults)
{
    const pid_t child = fork();
    int status = 0, reason;

    if (child == 0) {
        dp_disk_set_faults(faults, 0);
        _exit(change(&reason));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void a_rank_is_killed_before_or_within_a_call(void **state)
{
    static const struct {
        const char *text;
        ssize_t from, to; /* bytes afterwards; -1: the file is not there */
    } cases[] = {{"kill:write=1", -1, -1},          {"torn:write=1", 0, -1},
                 {"kill:write=2", 0, -1},           {"torn:write=2", BYTES / 2, -1},
                 {"kill:write=3", BYTES, -1},       {"torn:write=3", -1, BYTES},
                 {"kill:write=4", -1, BYTES},       {"torn:write=4", -1, BYTES},
                 {"kill:write=2,rank=1", -1, BYTES}};
    (void)state;

    for (size_t i = 0; i < DP_COUNT(cases); i++) {
        struct dp_fault *faults = NULL;

        (void)unlink(scratch_path("from"));
        (void)unlink(scratch_path("to"));
        assert_int_equal(dp_faults_create(cases[i].text, &faults), DP_OK);
        const int status = change_apart(faults);
        assert_int_equal(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, i < 6);
        assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
        assert_int_equal(size_of("from"), cases[i].from);
        assert_int_equal(size_of("to"), cases[i].to);
        dp_faults_destroy(faults);
    }
}

static void a_rank_stops_before_a_call_and_then_makes_it(void **state)
{
    struct dp_fault *faults = NULL;
    pid_t child;
    int status, reason;
    (void)state;

    (void)unlink(scratch_path("to"));
    assert_int_equal(dp_faults_create("stop:write=3", &faults), DP_OK);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dp_disk_set_faults(faults, 0);
        _exit(change(&reason));
    }
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    assert_int_equal(size_of("to"), -1);
    assert_int_equal(kill(child, SIGCONT), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(size_of("to"), BYTES);
    dp_faults_destroy(faults);
}

static void a_call_fails(void **state)
{
    static const struct {
        const char *text;
        int failed, reason; /* of two rounds of calls, that of the first, and of the second */
        int failed_again;
    } cases[] = {{"eio:write=1", 1, EIO, 0},      {"eio:write=2", 2, EIO, 0},
                 {"eio:write=3", 3, EIO, 0},      {"full:write=1", 1, ENOSPC, 1},
                 {"full:write=2", 3, ENOSPC, 1},  {"full:write=3", 3, ENOSPC, 1},
                 {"full:write=2,rank=1", 0, 0, 0}};
    (void)state;

    for (size_t i = 0; i < DP_COUNT(cases); i++) {
        struct dp_fault *faults = NULL;
        uint64_t of[DP_FILE_CALLS];
        int reason;

        assert_int_equal(dp_faults_create(cases[i].text, &faults), DP_OK);
        dp_disk_set_faults(faults, 0);
        assert_int_equal(change(&reason), cases[i].failed);
        assert_int_equal(reason, cases[i].reason);
        assert_int_equal(change(&reason), cases[i].failed_again);
        dp_disk_set_faults(NULL, 0);
        assert_int_equal(change(&reason), 0);
        assert_true(dp_disk_calls(of) == 0);
        dp_faults_destroy(faults);
    }
}

static void a_full_disk_takes_half_of_a_write_and_no_more(void **state)
{
    struct dp_fault *faults = NULL;
    uint64_t of[DP_FILE_CALLS];
    (void)state;

    assert_int_equal(dp_faults_create("full:write=2", &faults), DP_OK);
    dp_disk_set_faults(faults, 0);
    const int fd = dp_disk_create(scratch_path("short"), O_WRONLY | O_TRUNC);
    assert_int_equal(dp_disk_write(fd, content, BYTES), BYTES / 2);
    assert_int_equal(dp_disk_write(fd, content, BYTES), -1);
    assert_int_equal(errno, ENOSPC);
    assert_int_equal(dp_disk_sync(fd), 0);
    (void)close(fd);
    assert_int_equal(dp_disk_unlink(scratch_path("short")), 0); /* which needs no space */
    assert_true(dp_disk_calls(of) == 5);
    assert_true(of[DP_FILE_CALL_CREATE] == 1 && of[DP_FILE_CALL_WRITE] == 2 &&
                of[DP_FILE_CALL_SYNC] == 1 && of[DP_FILE_CALL_UNLINK] == 1 &&
                of[DP_FILE_CALL_RENAME] == 0);
    dp_disk_set_faults(NULL, 0);
    dp_faults_destroy(faults);
}

/* Writes more into a pipe than it takes: waits until somebody reads. */
static void *write_much(void *pipe_end)
{
    static const char much[1 << 20];

    (void)dp_disk_write(*(int *)pipe_end, much, sizeof(much));
    return NULL;
}

static void calls_that_have_not_returned_are_known(void **state)
{
    static char read_bytes[1 << 16];
    struct dp_fault *faults = NULL;
    pthread_t thread;
    int ends[2], reason;
    (void)state;

    assert_int_equal(dp_disk_under_way(), 0);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(pthread_create(&thread, NULL, write_much, &ends[1]), 0);
    assert_true(read(ends[0], read_bytes, 1) == 1); /* it has begun, and cannot end */
    assert_int_equal(dp_disk_under_way(), 1);
    for (size_t left = (1 << 20) - 1; left > 0;) {
        left -= (size_t)read(ends[0], read_bytes, sizeof(read_bytes));
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(dp_disk_under_way(), 0);
    assert_int_equal(dp_faults_create("eio:write=1;full:write=2", &faults), DP_OK);
    dp_disk_set_faults(faults, 0);
    (void)change(&reason);
    (void)change(&reason);
    dp_disk_set_faults(NULL, 0);
    dp_faults_destroy(faults);
    assert_int_equal(dp_disk_under_way(), 0); /* also where they failed */
    (void)close(ends[0]);
    (void)close(ends[1]);
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, scratch_create, scratch_destroy)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(a_rank_is_killed_before_or_within_a_call),
        WITH_FOLDER(a_rank_stops_before_a_call_and_then_makes_it),
        WITH_FOLDER(a_call_fails),
        WITH_FOLDER(a_full_disk_takes_half_of_a_write_and_no_more),
        WITH_FOLDER(calls_that_have_not_returned_are_known),
    };

    return cmocka_run_group_tests_name("disk", tests, NULL, NULL);
}
