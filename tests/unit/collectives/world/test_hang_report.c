/* test_hang_report.c - of the ranks of a host that hang, one reports, whichever finds it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/system/launcher.h"
#include "base/system/stacks.h"
#include "base/trace.h"
#include "collectives/world/failure_detector.h"
#include "tests/support/at_once.h"
#include "tests/support/stderr_text.h"

static struct dp_loss lost_none(void *context)
{
    (void)context;
    return (struct dp_loss){-1, true, "h7", 0};
}

static void ignore_abort(int code)
{
    (void)code;
}

/* As rank `self` of two ranks of a host that hang; the other one has found nothing yet. `ended`:
 * another host has reported a death. */
static void hang_as(int self, bool ended, struct dp_watchdog_question *questions, double most_s,
                    atomic_int *cancel)
{
    struct dp_trace_mark mark = {.changes = 1, .open = 1, .activity = DP_PHASE_STEP};
    const struct dp_watchdog_rank ranks[] = {{0, getpid(), &mark, &questions[0]},
                                             {1, getpid(), &mark, &questions[1]}};
    const struct dp_watchdog_config watched = {
        .ranks = ranks, .count = 2, .self = self, .host = "h1", .look = dp_process_look};
    struct dp_failure_detector_config config = {
        .cancel = cancel, .lost = lost_none, .abort = ignore_abort};
    struct dp_failure_detector *detector = NULL;
    const uint64_t begin_ns = dp_now_ns();

    atomic_store(&questions[0].ended, ended);
    dp_stacks_init();
    assert_int_equal(dp_watchdog_create(&watched, &config.watchdog), DP_OK);
    dp_watchdog_set_timeout(config.watchdog, 0.1);
    stderr_begin();
    assert_int_equal(dp_failure_detector_create(&config, &detector), DP_OK);
    while (atomic_load(cancel) == 0 && (double)(dp_now_ns() - begin_ns) / 1e9 < most_s) {
        (void)nanosleep(&(struct timespec){0, 5000000}, NULL);
    }
    dp_failure_detector_destroy(detector);
    stderr_end();
    dp_watchdog_destroy(config.watchdog);
}

static void another_rank_reports_where_the_first_finds_nothing(void **state)
{
    struct dp_watchdog_question questions[2] = {0};
    atomic_int cancel = 0;
    (void)state;

    hang_as(1, false, questions, 30.0, &cancel);
    assert_int_equal(atomic_load(&cancel), 1);
    assert_int_equal(atomic_load(&questions[0].reporter), 2);
    assert_non_null(strstr(stderr_text, "lockstep: error: no progress for "));
    assert_non_null(strstr(stderr_text, "rank host     step bucket phase"));
}

static void what_another_rank_reports_is_not_reported_twice(void **state)
{
    struct dp_watchdog_question questions[2] = {{.reporter = 1}};
    atomic_int cancel = 0;
    (void)state;

    hang_as(1, false, questions, 4.6, &cancel);
    assert_int_equal(atomic_load(&cancel), 0); /* the other one still has time */
    assert_int_equal(atomic_load(&questions[1].asked), 0);
    assert_null(strstr(stderr_text, "error"));
}

static void after_a_death_on_another_host_there_is_no_hang(void **state)
{
    struct dp_watchdog_question questions[2] = {0};
    atomic_int cancel = 0;
    (void)state;

    hang_as(1, true, questions, 4.6, &cancel);
    assert_int_equal(atomic_load(&cancel), 0);
    assert_int_equal(atomic_load(&questions[0].reporter), 0);
    assert_null(strstr(stderr_text, "error"));
}

static void once_mpirun_ends_the_job_there_is_no_hang(void **state)
{
    struct dp_watchdog_question questions[2] = {0};
    atomic_int cancel = 0;
    (void)state;

    dp_launcher_tell_ending(getppid());
    hang_as(0, false, questions, 1.0, &cancel); /* which would report at once */
    assert_int_equal(atomic_load(&questions[0].reporter), 0);
    assert_int_equal(atomic_load(&questions[0].asked), 0);
    hang_as(1, false, questions, 8.0, &cancel);
    assert_int_equal(atomic_load(&cancel), 0);
    assert_null(strstr(stderr_text, "no progress"));
}

/* There is progress as soon as a rank has the report of a hang. */
static struct {
    struct dp_trace_mark mark;
    struct dp_watchdog_question question;
    atomic_bool went_on;
} late;

static struct dp_loss go_on_late(void *context)
{
    if (atomic_load(&late.question.reporter) != 0) {
        atomic_fetch_add(&late.mark.changes, 1);
        atomic_store(&late.went_on, true);
    }
    return lost_none(context);
}

static void the_report_is_given_back_where_ranks_go_on(void **state)
{
    const struct dp_watchdog_rank rank = {0, getpid(), &late.mark, &late.question};
    const struct dp_watchdog_config watched = {
        .ranks = &rank, .count = 1, .host = "h1", .look = dp_process_look};
    atomic_int cancel = 0;
    struct dp_failure_detector_config config = {
        .cancel = &cancel, .lost = go_on_late, .abort = ignore_abort};
    struct dp_failure_detector *detector = NULL;
    const uint64_t begin_ns = dp_now_ns();
    bool given_back = false;
    (void)state;

    late.mark = (struct dp_trace_mark){.changes = 1, .open = 1, .activity = DP_PHASE_STEP};
    dp_stacks_init();
    assert_int_equal(dp_watchdog_create(&watched, &config.watchdog), DP_OK);
    dp_watchdog_set_timeout(config.watchdog, 0.3);
    stderr_begin();
    assert_int_equal(dp_failure_detector_create(&config, &detector), DP_OK);
    while (!given_back && dp_now_ns() - begin_ns < 20000000000ull) {
        (void)nanosleep(&(struct timespec){0, 5000000}, NULL);
        given_back = atomic_load(&late.went_on) && atomic_load(&late.question.reporter) == 0;
    }
    dp_failure_detector_destroy(detector);
    stderr_end();
    dp_watchdog_destroy(config.watchdog);
    assert_true(given_back);
    assert_int_equal(atomic_load(&cancel), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_rank_reports_where_the_first_finds_nothing),
        cmocka_unit_test(what_another_rank_reports_is_not_reported_twice),
        cmocka_unit_test(the_report_is_given_back_where_ranks_go_on),
        cmocka_unit_test(after_a_death_on_another_host_there_is_no_hang),
        cmocka_unit_test(once_mpirun_ends_the_job_there_is_no_hang),
    };

    return run_at_once(tests, sizeof(tests) / sizeof(tests[0]));
}
