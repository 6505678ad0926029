/* test_failure_detector.c - a dead rank is reported, whatever this rank is doing. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/trace.h"
#include "collectives/world/failure_detector.h"
#include "tests/support/at_once.h"
#include "tests/support/stderr_text.h"

static atomic_int looks, dead, silent_s, aborted;

static struct dp_loss lost(void *context)
{
    (void)context;
    atomic_fetch_add(&looks, 1);
    return (struct dp_loss){atomic_load(&dead), true, "h7", atomic_load(&silent_s)};
}

static void note_abort(int code)
{
    atomic_store(&aborted, code);
}

static void sleep_ms(long ms)
{
    (void)nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* Waits until there were that many checks, at most ten seconds. */
static bool looked(int times)
{
    const uint64_t end_ns = dp_now_ns() + 10000000000ull;

    while (atomic_load(&looks) < times && dp_now_ns() < end_ns) {
        sleep_ms(5);
    }
    return atomic_load(&looks) >= times;
}

static void a_death_is_reported_once(void **state)
{
    atomic_int cancel = 0;
    const struct dp_failure_detector_config config = {
        .cancel = &cancel, .lost = lost, .abort = note_abort};
    struct dp_failure_detector *detector = NULL;
    const size_t live = dp_mem_live();
    struct dp_log_capture capture;
    const char *line;
    uint64_t begin_ns;
    (void)state;

    atomic_store(&looks, 0);
    atomic_store(&dead, -1);
    stderr_begin();
    dp_log_capture_begin(&capture, DP_LOG_DEBUG); /* as ranks are while all find the same */
    assert_int_equal(dp_failure_detector_create(&config, &detector), DP_OK);
    assert_true(looked(1));
    assert_int_equal(atomic_load(&cancel), 0);
    begin_ns = dp_now_ns();
    atomic_store(&dead, 2);
    while (atomic_load(&cancel) == 0 && dp_now_ns() - begin_ns < 10000000000ull) {
        sleep_ms(5);
    }
    /* Ranks that are ended together are no losses. */
    assert_in_range(dp_now_ns() - begin_ns, 500000000, 10000000000ull);
    assert_true(looked(atomic_load(&looks) + 2));
    dp_failure_detector_destroy(detector);
    assert_int_equal(atomic_load(&cancel), 1);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    stderr_end();
    line = strstr(stderr_text, "rank 2 (h7) has died");
    assert_non_null(line);
    assert_null(strstr(line + 1, "rank 2 (h7)"));
    assert_int_equal(dp_mem_live(), live);
}

static void where_ranks_go_on_a_death_ends_waits_at_once_and_nothing_else(void **state)
{
    atomic_bool shrinks = true;
    atomic_int cancel = 0;
    const struct dp_failure_detector_config config = {
        .cancel = &cancel, .lost = lost, .abort = note_abort, .shrinks = &shrinks};
    struct dp_failure_detector *detector = NULL;
    int before;
    (void)state;

    atomic_store(&looks, 0);
    atomic_store(&aborted, 0);
    atomic_store(&dead, -1);
    stderr_begin();
    assert_int_equal(dp_failure_detector_create(&config, &detector), DP_OK);
    assert_true(looked(1));
    assert_false(dp_failure_detector_lost(detector));
    atomic_store(&dead, 2);
    assert_true(looked(atomic_load(&looks) + 2));
    assert_int_equal(atomic_load(&cancel), 1);
    assert_true(dp_failure_detector_lost(detector));
    dp_failure_detector_expect_end(detector); /* from now on it looks at nothing */
    atomic_store(&cancel, 0);
    before = atomic_load(&looks);
    sleep_ms(250);
    assert_int_equal(atomic_load(&looks), before);
    assert_int_equal(atomic_load(&cancel), 0);
    dp_failure_detector_destroy(detector);
    stderr_end();
    assert_string_equal(stderr_text, "");
    assert_int_equal(atomic_load(&aborted), 0);
}

/* The seconds that dp_failure_detector_stand_by() takes after the first check. */
static double stands_by(int who, int launcher_s)
{
    atomic_int cancel = 0;
    const struct dp_failure_detector_config config = {
        .cancel = &cancel, .lost = lost, .abort = note_abort, .launcher_s = launcher_s};
    struct dp_failure_detector *detector = NULL;
    uint64_t begin_ns;
    double taken_s;

    atomic_store(&looks, 0);
    atomic_store(&dead, who);
    stderr_begin();
    assert_int_equal(dp_failure_detector_create(&config, &detector), DP_OK);
    assert_true(looked(2));
    begin_ns = dp_now_ns();
    dp_failure_detector_stand_by(detector);
    taken_s = (double)(dp_now_ns() - begin_ns) / 1e9;
    dp_failure_detector_destroy(detector);
    stderr_end();
    assert_int_equal(strstr(stderr_text, "rank 2 (h7) has died") != NULL, who == 2);
    return taken_s;
}

static void without_a_death_nobody_stands_by(void **state)
{
    (void)state;

    assert_true(stands_by(-1, 1) < 1.0);
    dp_failure_detector_stand_by(NULL);
}

static void after_a_death_a_launcher_gets_time_to_end_ranks(void **state)
{
    (void)state;

    assert_true(stands_by(2, 0) > 3.0);
}

static void a_launcher_gets_the_time_it_may_take(void **state)
{
    (void)state;

    assert_true(stands_by(2, 1) < 3.0);
}

static void check_silence(int seconds, const char *words)
{
    atomic_int cancel = 0;
    const struct dp_failure_detector_config config = {
        .cancel = &cancel, .lost = lost, .abort = note_abort};
    struct dp_failure_detector *detector = NULL;
    uint64_t begin_ns = dp_now_ns();

    atomic_store(&dead, 2);
    atomic_store(&silent_s, seconds);
    atomic_store(&aborted, 0);
    stderr_begin();
    assert_int_equal(dp_failure_detector_create(&config, &detector), DP_OK);
    while (atomic_load(&aborted) == 0 && dp_now_ns() - begin_ns < 20000000000ull) {
        sleep_ms(5);
    }
    assert_in_range(dp_now_ns() - begin_ns, 2000000000, 20000000000ull); /* it may end by itself */
    assert_true(dp_failure_detector_hung(detector));
    begin_ns = dp_now_ns();
    dp_failure_detector_stand_by(detector); /* mpirun ends nobody */
    assert_true(dp_now_ns() - begin_ns < 1000000000);
    dp_failure_detector_destroy(detector);
    stderr_end();
    atomic_store(&silent_s, 0);
    assert_int_equal(atomic_load(&aborted), 76);
    assert_int_equal(atomic_load(&cancel), 1);
    assert_non_null(strstr(stderr_text, words));
    assert_null(strstr(stderr_text, "has died"));
}

static void a_silent_host_is_not_a_death_and_ends_the_job(void **state)
{
    (void)state;
    check_silence(30, "no sign of life from host h7 (rank 2) for 30 s");
}

static void a_second_of_silence_is_enough_where_it_is_the_limit(void **state)
{
    (void)state;
    check_silence(1, "no sign of life from host h7 (rank 2) for 1 s");
}

static struct {
    int calls;
    int cancelled; /* before it was called */
    atomic_int *cancel;
    char cause[128];
} hook;

static void note_hang(void *context, const char *cause)
{
    assert_ptr_equal(context, &hook);
    hook.calls++;
    hook.cancelled += atomic_load(hook.cancel);
    (void)snprintf(hook.cause, sizeof(hook.cause), "%s", cause);
}

/* This process is all ranks up to `self`, in a step that does not end; the first one reports or,
 * if it does not for so long, another one. */
static void check_hang(int self, uint64_t least_ns)
{
    struct dp_trace_mark mark = {.changes = 1,
                                 .open = 1,
                                 .activity = DP_PHASE_STEP,
                                 .phase = DP_PHASE_FORWARD,
                                 .step = 3,
                                 .bucket = -1};
    const struct dp_watchdog_rank ranks[] = {{0, getpid(), &mark, NULL},
                                             {1, getpid(), &mark, NULL}};
    const struct dp_watchdog_config watched = {
        .ranks = ranks, .count = self + 1, .self = self, .host = "h1", .look = dp_process_look};
    atomic_int cancel = 0;
    struct dp_failure_detector_config config = {
        .cancel = &cancel, .lost = lost, .abort = note_abort};
    struct dp_failure_detector *detector = NULL;
    const uint64_t begin_ns = dp_now_ns();

    atomic_store(&dead, -1);
    atomic_store(&aborted, 0);
    hook.cancel = &cancel;
    assert_int_equal(dp_watchdog_create(&watched, &config.watchdog), DP_OK);
    dp_watchdog_set_timeout(config.watchdog, 0.3);
    stderr_begin();
    assert_int_equal(dp_failure_detector_create(&config, &detector), DP_OK);
    dp_failure_detector_on_hang(detector, note_hang, &hook);
    while (atomic_load(&cancel) == 0 && dp_now_ns() - begin_ns < 20000000000ull) {
        sleep_ms(5);
    }
    assert_true(dp_now_ns() - begin_ns >= least_ns);
    assert_int_equal(atomic_load(&aborted), 0); /* it may end by itself */
    assert_true(dp_failure_detector_hung(detector));
    while (atomic_load(&aborted) == 0 && dp_now_ns() - begin_ns < 20000000000ull) {
        sleep_ms(5);
    }
    dp_failure_detector_destroy(detector);
    stderr_end();
    dp_watchdog_destroy(config.watchdog);
    assert_int_equal(atomic_load(&aborted), 76);
    assert_int_equal(hook.calls, 1);
    assert_int_equal(hook.cancelled, 0);
    assert_non_null(strstr(hook.cause, "did not arrive: rank 0 (h1): "));
    assert_non_null(strstr(stderr_text, "\n   0 h1          3      - forward "));
    assert_non_null(strstr(stderr_text, "lockstep: error: no progress for "));
}

static void ranks_without_progress_end_the_job_after_a_report(void **state)
{
    (void)state;
    check_hang(0, 800000000);
}

static void another_rank_reports_where_the_first_one_does_not(void **state)
{
    (void)state;
    check_hang(1, 4300000000);
}

static void nothing_is_checked_after_the_end(void **state)
{
    atomic_int cancel = 0;
    const struct dp_failure_detector_config config = {
        .cancel = &cancel, .lost = lost, .abort = note_abort};
    struct dp_failure_detector *detector = NULL;
    int before;
    (void)state;

    atomic_store(&looks, 0);
    atomic_store(&dead, -1);
    assert_int_equal(dp_failure_detector_create(&config, &detector), DP_OK);
    assert_true(looked(2)); /* and again */
    dp_failure_detector_destroy(detector);
    before = atomic_load(&looks);
    sleep_ms(250);
    assert_int_equal(atomic_load(&looks), before);
    assert_int_equal(atomic_load(&cancel), 0);
    dp_failure_detector_destroy(NULL);
}

/* A process with a failure detector, which writes to a pipe without readers. */
struct hung {
    pid_t pid;
    int err;
};

static struct hung hang(int who, const atomic_bool *shrinks)
{
    int err[2], broken[2];
    struct hung hung;

    assert_int_equal(pipe(err), 0);
    assert_int_equal(pipe(broken), 0);
    (void)close(broken[0]);
    hung.pid = fork();
    assert_true(hung.pid >= 0);
    if (hung.pid == 0) {
        atomic_int cancel = 0;
        const struct dp_failure_detector_config config = {
            .cancel = &cancel, .lost = lost, .abort = note_abort, .shrinks = shrinks};
        struct dp_failure_detector *detector;
        int failed = 0;

        atomic_store(&dead, who);
        (void)dup2(err[1], STDERR_FILENO);
        if (dp_failure_detector_create(&config, &detector) == DP_OK) {
            failed += write(broken[1], "", 1) == -1 && errno == EPIPE;
            failed += write(broken[1], "", 1) == -1 && errno == EPIPE;
        }
        _exit(failed);
    }
    (void)close(err[1]);
    (void)close(broken[1]);
    hung.err = err[0];
    return hung;
}

/* What such a process writes before SIGPIPE ends it. */
static void check_hung(const struct hung *hung, const char *text)
{
    char said[4096];
    size_t length = 0;
    ssize_t got;
    int status;

    while ((got = read(hung->err, said + length, sizeof(said) - 1 - length)) > 0) {
        length += (size_t)got;
    }
    said[length] = '\0';
    (void)close(hung->err);
    assert_int_equal(waitpid(hung->pid, &status, 0), hung->pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGPIPE);
    assert_non_null(strstr(said, text));
    assert_ptr_equal(strchr(said, '\n'), said + length - 1); /* one line */
}

static void a_rank_that_writes_to_a_dead_one_reports_and_ends(void **state)
{
    static const atomic_bool shrinks = false;
    const struct hung known = hang(2, NULL), unknown = hang(-1, &shrinks);
    (void)state;

    check_hung(&known, "rank 2 (h7) has died");
    check_hung(&unknown, "the connection to another rank is broken");
}

/* Whoever wrote learns of it, and may write again. */
static void where_ranks_go_on_a_write_to_a_dead_one_fails_and_no_more(void **state)
{
    static const atomic_bool shrinks = true;
    const struct hung hung = hang(-1, &shrinks);
    int status = -1;
    char said;
    (void)state;

    assert_int_equal(waitpid(hung.pid, &status, 0), hung.pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 2);
    assert_int_equal(read(hung.err, &said, 1), 0);
    (void)close(hung.err);
}

/* A process whose stderr nobody reads; `handler` is what SIGPIPE does without a failure detector.
 * Returns how it ended, if that is soon. */
static int write_unread(void (*handler)(int))
{
    int broken[2], status = -1;
    pid_t pid;

    assert_int_equal(pipe(broken), 0);
    (void)close(broken[0]); /* before the fork: a reader in this process would count, too */
    pid = fork();
    if (pid == 0) {
        atomic_int cancel = 0;
        const struct dp_failure_detector_config config = {
            .cancel = &cancel, .lost = lost, .abort = note_abort};
        struct dp_failure_detector *detector;

        (void)alarm(4); /* less than a thread hangs */
        (void)signal(SIGPIPE, handler);
        (void)dup2(broken[1], STDERR_FILENO);
        if (dp_failure_detector_create(&config, &detector) == DP_OK) {
            (void)!write(STDERR_FILENO, "", 1);
            (void)!write(STDERR_FILENO, "", 1);
        }
        _exit(4);
    }
    (void)close(broken[1]);
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void leave(int number)
{
    _exit(number == SIGPIPE ? 3 : 5);
}

static void unread_output_is_not_a_dead_rank(void **state)
{
    int status;
    (void)state;

    atomic_store(&dead, -1);
    status = write_unread(SIG_DFL);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGPIPE);
    status = write_unread(leave);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 3);
    status = write_unread(SIG_IGN);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 4);
}

static void after_the_end_a_broken_pipe_has_its_old_effect(void **state)
{
    atomic_int cancel = 0;
    const struct dp_failure_detector_config config = {
        .cancel = &cancel, .lost = lost, .abort = note_abort};
    struct dp_failure_detector *detector = NULL;
    struct sigaction now;
    (void)state;

    atomic_store(&dead, -1);
    assert_int_equal(dp_failure_detector_create(&config, &detector), DP_OK);
    assert_int_equal(sigaction(SIGPIPE, NULL, &now), 0);
    assert_true(now.sa_handler != SIG_DFL);
    dp_failure_detector_destroy(detector);
    assert_int_equal(sigaction(SIGPIPE, NULL, &now), 0);
    assert_true(now.sa_handler == SIG_DFL);
}

static void a_failed_allocation_leaves_nothing(void **state)
{
    const struct dp_failure_detector_config config = {.lost = lost};
    struct dp_failure_detector *detector = NULL;
    const size_t live = dp_mem_live();
    (void)state;

    stderr_begin();
    dp_mem_fail_nth(1);
    assert_int_equal(dp_failure_detector_create(&config, &detector), DP_ERR_NOMEM);
    dp_mem_fail_nth(0);
    stderr_end();
    assert_null(detector);
    assert_int_equal(dp_mem_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_death_is_reported_once),
        cmocka_unit_test(where_ranks_go_on_a_death_ends_waits_at_once_and_nothing_else),
        cmocka_unit_test(without_a_death_nobody_stands_by),
        cmocka_unit_test(after_a_death_a_launcher_gets_time_to_end_ranks),
        cmocka_unit_test(a_launcher_gets_the_time_it_may_take),
        cmocka_unit_test(a_silent_host_is_not_a_death_and_ends_the_job),
        cmocka_unit_test(a_second_of_silence_is_enough_where_it_is_the_limit),
        cmocka_unit_test(ranks_without_progress_end_the_job_after_a_report),
        cmocka_unit_test(another_rank_reports_where_the_first_one_does_not),
        cmocka_unit_test(nothing_is_checked_after_the_end),
        cmocka_unit_test(a_rank_that_writes_to_a_dead_one_reports_and_ends),
        cmocka_unit_test(where_ranks_go_on_a_write_to_a_dead_one_fails_and_no_more),
        cmocka_unit_test(unread_output_is_not_a_dead_rank),
        cmocka_unit_test(after_the_end_a_broken_pipe_has_its_old_effect),
        cmocka_unit_test(a_failed_allocation_leaves_nothing),
    };

    return run_at_once(tests, sizeof(tests) / sizeof(tests[0]));
}
