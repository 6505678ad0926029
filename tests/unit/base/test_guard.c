/* test_guard.c - the process between a launcher and a rank. This one plays the launcher. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/system/guard.h"

static int pmi[2]; /* ends of a pipe: where ranks speak to the launcher */

/* Starts what becomes a guard, with a rank that does that; returns the guard's id. The rank's own
 * comes through the pipe. */
static pid_t start(void (*rank)(void))
{
    const pid_t self = getpid(), guard = fork();
    int code;

    if (guard == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        code = dp_guard_rank(0);
        if (code >= 0) {
            _exit(code);
        }
        if (dp_guard_launcher() != self || (getppid() != self) != dp_guard_ends_job()) {
            _exit(100);
        }
        rank();
        _exit(0);
    }
    assert_true(guard > 0);
    return guard;
}

/* How it ended. */
static int end_of(pid_t guard)
{
    int status;

    assert_int_equal(waitpid(guard, &status, 0), guard);
    return status;
}

static void leaves_with_3(void)
{
    _exit(3);
}

static void leaves_too_early(void)
{
    dp_guard_note(true);
    _exit(3);
}

static void leaves_in_time(void)
{
    dp_guard_note(true);
    dp_guard_note(false);
    _exit(3);
}

static void is_killed(void)
{
    (void)raise(SIGKILL);
}

static void tells_its_id_and_waits(void)
{
    const pid_t self = getpid();

    if (write(pmi[1], &self, sizeof(self)) == sizeof(self)) {
        for (;;) {
            (void)pause();
        }
    }
}

static void ends_of_sigterm(void)
{
    (void)signal(SIGTERM, SIG_DFL);
    tells_its_id_and_waits();
}

static pid_t id_of_rank(void)
{
    pid_t rank = 0;

    assert_int_equal(read(pmi[0], &rank, sizeof(rank)), sizeof(rank));
    return rank;
}

static int begin(void **state)
{
    char text[16];

    (void)state;
    if (pipe(pmi) != 0) {
        return -1;
    }
    (void)snprintf(text, sizeof(text), "%d", pmi[1]);
    (void)setenv("PMI_FD", text, 1);
    (void)setenv("PMI_SIZE", "2", 1);
    (void)prctl(PR_SET_NAME, "hydra_pmi_proxy", 0, 0, 0);
    return 0;
}

static int finish(void **state)
{
    (void)state;
    (void)close(pmi[0]);
    (void)close(pmi[1]);
    (void)unsetenv("OMPI_COMM_WORLD_SIZE");
    (void)unsetenv("OMPI_MCA_mpi_ft_enable");
    return 0;
}

static void test_the_guard_returns_its_ranks_exit_code(void **state)
{
    (void)state;
    void (*const ways[])(void) = {leaves_with_3, leaves_in_time};
    char text[8] = "";

    for (size_t i = 0; i < 2; i++) {
        const int status = end_of(start(ways[i]));
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 3);
    }
    assert_int_equal(write(pmi[1], "x", 1), 1);
    assert_int_equal(read(pmi[0], text, sizeof(text)), 1); /* nobody was asked for the end */
}

static void test_a_rank_that_leaves_too_early_ends_the_job_with_its_code(void **state)
{
    char text[64] = "";

    (void)state;
    const int status = end_of(start(leaves_too_early));
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 3);
    assert_true(read(pmi[0], text, sizeof(text) - 1) > 0);
    assert_string_equal(text, "cmd=abort exitcode=3\n");
}

static void test_a_killed_rank_ends_the_job_with_its_code_and_then_the_guard(void **state)
{
    char text[64] = "";

    (void)state;
    const int status = end_of(start(is_killed));
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
    assert_true(read(pmi[0], text, sizeof(text) - 1) > 0);
    assert_string_equal(text, "cmd=abort exitcode=137\n");
}

static void under_prrte(void)
{
    (void)unsetenv("PMI_FD");
    (void)unsetenv("PMI_SIZE");
    (void)setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    (void)prctl(PR_SET_NAME, "prterun", 0, 0, 0);
}

static void test_with_prrte_the_guard_dies_as_its_rank_did(void **state)
{
    (void)state;
    under_prrte();
    const pid_t guard = start(ends_of_sigterm), rank = id_of_rank();
    assert_int_not_equal(rank, guard);
    assert_int_equal(kill(rank, SIGTERM), 0);
    const int status = end_of(guard);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGTERM);
}

static void test_a_signal_to_both_is_the_ranks_to_take(void **state)
{
    (void)state;
    const pid_t guard = start(ends_of_sigterm), rank = id_of_rank();
    assert_int_not_equal(rank, guard);
    assert_int_equal(kill(guard, SIGUSR1), 0); /* ends a process that does not expect it */
    assert_int_equal(kill(guard, SIGTERM), 0);
    assert_int_equal(waitpid(guard, NULL, WNOHANG), 0);
    assert_int_equal(kill(rank, SIGTERM), 0);
    const int status = end_of(guard);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGTERM);
}

static void test_a_rank_does_not_outlive_its_guard(void **state)
{
    char byte;

    (void)state;
    const pid_t guard = start(tells_its_id_and_waits);
    (void)id_of_rank();
    (void)close(pmi[1]); /* from here on the pipe is the guard's and the rank's */
    assert_int_equal(kill(guard, SIGKILL), 0);
    (void)end_of(guard);
    assert_int_equal(read(pmi[0], &byte, 1), 0);
}

static void no_guard(void **state)
{
    (void)state;
    const pid_t process = start(tells_its_id_and_waits);
    assert_int_equal(id_of_rank(), process);
    assert_int_equal(kill(process, SIGKILL), 0);
    (void)end_of(process);
}

static void test_one_rank_and_one_of_another_launcher_have_no_guard(void **state)
{
    (void)setenv("PMI_SIZE", "1", 1);
    no_guard(state);
    (void)unsetenv("PMI_SIZE");
    no_guard(state);
    (void)setenv("PMI_SIZE", "2", 1);
    (void)prctl(PR_SET_NAME, "slurmstepd", 0, 0, 0);
    no_guard(state);
}

static void test_ranks_that_go_on_without_one_that_died_have_no_guard(void **state)
{
    under_prrte();
    (void)setenv("OMPI_MCA_mpi_ft_enable", "1", 1);
    no_guard(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_guard_returns_its_ranks_exit_code, begin, finish),
        cmocka_unit_test_setup_teardown(
            test_a_killed_rank_ends_the_job_with_its_code_and_then_the_guard, begin, finish),
        cmocka_unit_test_setup_teardown(
            test_a_rank_that_leaves_too_early_ends_the_job_with_its_code, begin, finish),
        cmocka_unit_test_setup_teardown(test_with_prrte_the_guard_dies_as_its_rank_did, begin,
                                        finish),
        cmocka_unit_test_setup_teardown(test_ranks_that_go_on_without_one_that_died_have_no_guard,
                                        begin, finish),
        cmocka_unit_test_setup_teardown(test_a_signal_to_both_is_the_ranks_to_take, begin, finish),
        cmocka_unit_test_setup_teardown(test_a_rank_does_not_outlive_its_guard, begin, finish),
        cmocka_unit_test_setup_teardown(test_one_rank_and_one_of_another_launcher_have_no_guard,
                                        begin, finish),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
