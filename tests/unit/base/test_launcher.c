/* test_launcher.c - what a rank waits for before it ends the job, or leaves it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <poll.h>
#include <signal.h>

#include "base/system/launcher.h"

/* A child whose stderr is a pipe into which it writes; then it waits until that is read. */
static pid_t start(int ends[2])
{
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)dup2(ends[1], STDERR_FILENO);
        (void)!write(STDERR_FILENO, "a line\n", 7);
        dp_launcher_let_read();
        _exit(0);
    }
    assert_true(child > 0);
    (void)close(ends[1]);
    return child;
}

static void test_what_was_written_is_read_before_a_job_ends(void **state)
{
    char text[16];
    int ends[2];

    (void)state;
    const pid_t child = start(ends);
    struct pollfd written = {.fd = ends[0], .events = POLLIN};
    assert_int_equal(poll(&written, 1, 10000), 1);
    struct pollfd ended = {.fd = ends[0], .events = 0};
    assert_int_equal(poll(&ended, 1, 50), 0);
    assert_int_equal(read(ends[0], text, sizeof(text)), 7);
    assert_int_equal(waitpid(child, NULL, 0), child);
    (void)close(ends[0]);
}

static void test_nobody_who_reads_delays_the_end_by_little(void **state)
{
    int ends[2];

    (void)state;
    const pid_t child = start(ends);
    assert_int_equal(waitpid(child, NULL, 0), child); /* the test has a timeout */
    (void)close(ends[0]);
}

/* A rank that meets all others by PMI, and leaves; its exit code is whether that was heard. Returns
 * its id, and our end of its line to the launcher. */
static pid_t meet(int *launcher)
{
    char name[16];
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    const pid_t rank = fork();
    if (rank == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)signal(SIGPIPE, SIG_IGN); /* as ddp_train does */
        (void)close(ends[0]);
        (void)snprintf(name, sizeof(name), "%d", ends[1]);
        (void)setenv("PMI_FD", name, 1);
        dp_launcher_meet();
        _exit(dp_launcher_leave());
    }
    assert_true(rank > 0);
    (void)close(ends[1]);
    *launcher = ends[0];
    return rank;
}

static void test_all_ranks_meet_by_hydra_and_leave(void **state)
{
    static const char answer[] = "cmd=barrier_out\n", heard[] = "cmd=finalize_ack\n";
    char text[32] = "";
    int launcher, status;

    (void)state;
    const pid_t rank = meet(&launcher);
    assert_int_equal(recv(launcher, text, 15, MSG_WAITALL), 15);
    assert_string_equal(text, "cmd=barrier_in\n");
    assert_int_equal(write(launcher, answer, 10), 10);
    struct pollfd ended = {.fd = launcher, .events = POLLIN};
    assert_int_equal(poll(&ended, 1, 50), 0);
    assert_int_equal(write(launcher, answer + 10, strlen(answer) - 10), strlen(answer) - 10);
    assert_int_equal(recv(launcher, text, 13, MSG_WAITALL), 13);
    assert_memory_equal(text, "cmd=finalize\n", 13);
    assert_int_equal(write(launcher, heard, strlen(heard)), strlen(heard));
    assert_int_equal(waitpid(rank, &status, 0), rank);
    assert_int_equal(WEXITSTATUS(status), true);
    (void)close(launcher);
}

static void test_a_launcher_that_goes_is_not_waited_for(void **state)
{
    int launcher, status;

    (void)state;
    const pid_t rank = meet(&launcher);
    (void)close(launcher);
    assert_int_equal(waitpid(rank, &status, 0), rank); /* the test has a timeout */
    assert_int_equal(WEXITSTATUS(status), false);
    dp_launcher_meet(); /* nor is one that has never been there */
    assert_false(dp_launcher_leave());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_written_is_read_before_a_job_ends),
        cmocka_unit_test(test_nobody_who_reads_delays_the_end_by_little),
        cmocka_unit_test(test_all_ranks_meet_by_hydra_and_leave),
        cmocka_unit_test(test_a_launcher_that_goes_is_not_waited_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
