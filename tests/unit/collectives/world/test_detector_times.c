/* test_detector_times.c - at which check a death or a silent host is reported, and ends the job. */
#define _DEFAULT_SOURCE /* syscall() */
#include <signal.h>

#include "tests/support/at_once.h"
#include "tests/support/stepped_detector.h"

enum { GRACE = 5, END = 36 }; /* half a second later; first check more than 3.5 s later */

static void lose(struct dp_loss loss, int from, int to)
{
    steps.loss = loss;
    steps.lost_from = from;
    steps.lost_to = to;
}

static void a_death_is_reported_once_after_half_a_second(void **state)
{
    (void)state;

    steps_init();
    lose((struct dp_loss){.rank = 2, .reports = true, .host = "h7"}, 3, 1000);
    steps_make(100);
    assert_int_equal(steps.lost, 3);
    assert_int_equal(steps.cancelled, 3 + GRACE);
    assert_int_equal(steps.called, 3 + GRACE);
    steps_end();
    assert_int_equal(steps.calls, 1);
    assert_string_equal(steps.cause, "rank 2 (h7) has died");
    assert_int_equal(times_said("rank 2 (h7) has died"), 1);
    assert_int_equal(steps.hung, -1);
    assert_int_equal(steps.aborts, 0); /* mpirun ends it */
}

static void a_death_on_this_host_names_no_host(void **state)
{
    (void)state;

    steps_init();
    lose((struct dp_loss){.rank = 0, .reports = true}, 0, 1000);
    steps_make(20);
    assert_int_equal(steps.cancelled, GRACE);
    steps_end();
    assert_string_equal(steps.cause, "rank 0 has died");
    assert_int_equal(times_said("rank 0, of this host, has died"), 1);
}

static void a_death_that_another_rank_reports_ends_waits_without_a_word(void **state)
{
    (void)state;

    steps_init();
    lose((struct dp_loss){.rank = 2, .host = "h7"}, 0, 1000);
    steps_make(20);
    assert_int_equal(steps.cancelled, GRACE);
    steps_end();
    assert_int_equal(steps.calls, 0);
    assert_string_equal(stderr_text, "");
}

static void who_was_told_to_end_reports_no_death(void **state)
{
    (void)state;

    steps_init();
    lose((struct dp_loss){.rank = 2, .reports = true, .host = "h7"}, 0, 1000);
    atomic_store(&steps.cancel, 1);
    steps_make(20);
    steps_end();
    assert_int_equal(steps.calls, 0);
    assert_string_equal(stderr_text, "");
}

/* As a rank that ends while the launcher ends all. */
static void half_a_second_counts_from_when_a_rank_was_first_lost(void **state)
{
    (void)state;

    steps_init();
    lose((struct dp_loss){.rank = 2, .reports = true, .host = "h7"}, 1, 1 + GRACE);
    steps_make(20);
    assert_int_equal(steps.lost, 1);
    assert_int_equal(steps.cancelled, -1);
    assert_true(dp_failure_detector_lost(steps.detector));
    steps_end();
    assert_string_equal(stderr_text, "");
}

static void a_silent_host_ends_the_job_after_three_seconds_more(void **state)
{
    (void)state;

    steps_init();
    lose((struct dp_loss){.rank = 4, .reports = true, .host = "h7", .silent_s = 30}, 2, 1000);
    steps_make(2 + END);
    assert_int_equal(steps.lost, 2);
    assert_int_equal(steps.cancelled, 2 + GRACE);
    assert_int_equal(steps.hung, 2 + GRACE);
    assert_int_equal(steps.aborts, 0);
    steps_end();
    assert_int_equal(steps.calls, 1);
    assert_string_equal(steps.cause, "no sign of life from host h7 (rank 4) for 30 s");

    steps_init();
    lose((struct dp_loss){.rank = 4, .host = "h7", .silent_s = 30}, 2, 1000);
    steps_make(3 + END);
    assert_int_equal(steps.aborted, 2 + END);
    assert_int_equal(steps.code, STEPS_EXIT_HUNG);
    steps_end();
    assert_int_equal(steps.calls, 0);
    assert_string_equal(stderr_text, "");
}

static const atomic_bool shrinks = true;

static void where_ranks_go_on_a_silent_host_ends_the_job_all_the_same(void **state)
{
    (void)state;

    steps_init();
    steps.config.shrinks = &shrinks;
    lose((struct dp_loss){.rank = 4, .reports = true, .host = "h7", .silent_s = 1}, 0, 1000);
    steps_make(20);
    assert_int_equal(steps.cancelled, GRACE);
    assert_int_equal(steps.hung, GRACE);
    steps_end();
    assert_int_equal(steps.calls, 1);
}

static void expect_end(int check)
{
    if (check == 4) {
        dp_failure_detector_expect_end(steps.detector);
    }
}

static void ranks_have_five_minutes_to_go_on_without_one(void **state)
{
    enum { MOST = 3001 }; /* first check more than 300 s later */
    (void)state;

    steps_init();
    steps.config.shrinks = &shrinks;
    lose((struct dp_loss){.rank = 2, .reports = true, .host = "h7"}, 2, 10000);
    steps.after = expect_end;
    steps_make(4 + MOST);
    assert_int_equal(steps.cancelled, 2); /* at once */
    assert_int_equal(steps.aborts, 0);
    steps_end();

    steps_init();
    lose((struct dp_loss){.rank = 2, .reports = true, .host = "h7"}, 6, 10000); /* not looked at */
    steps.after = expect_end;
    steps_make(5 + MOST);
    assert_int_equal(steps.lost, -1);
    assert_int_equal(steps.aborted, 4 + MOST);
    assert_int_equal(steps.code, STEPS_EXIT_HUNG);
    steps_end();
    assert_string_equal(stderr_text, "");
}

/* The seconds that this rank stands by from the loss on. */
static double stands_by(struct dp_loss loss, int launcher_s)
{
    double stood_s;

    steps_init();
    steps.config.launcher_s = launcher_s;
    lose(loss, 0, 1000);
    steps_make(20);
    assert_int_equal(steps.naps, 0);
    dp_failure_detector_stand_by(steps.detector);
    assert_true(steps.naps == 0 || steps.napped_ns / (uint64_t)steps.naps == STEP_NS / 10);
    stood_s = (double)(atomic_load(&steps.now_ns) - STEPS_BEGIN_NS) / STEPS_SECOND_NS;
    assert_true(steps.naps > 0 || (stood_s > 1.89 && stood_s < 1.91)); /* the checks */
    steps_end();
    return steps.naps > 0 ? stood_s : 0.0;
}

static void a_rank_stands_by_for_as_long_as_its_launcher_may_take(void **state)
{
    const struct dp_loss death = {.rank = 2, .host = "h7"},
                         silence = {.rank = 2, .host = "h7", .silent_s = 1}, none = {.rank = -1};
    (void)state;

    assert_float_equal(stands_by(death, 0), 4.5, 1e-6);
    assert_float_equal(stands_by(death, 1), 0.0, 0.0); /* that has passed */
    assert_float_equal(stands_by(death, 3), 3.0, 1e-6);
    assert_float_equal(stands_by(silence, 3), 0.0, 0.0);
    assert_float_equal(stands_by(none, 3), 0.0, 0.0);
}

static int broken_pipe(void)
{
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    (void)close(ends[0]);
    return ends[1];
}

static int end;

static void write_broken(int check)
{
    if (check == 0) {
        (void)sem_post(&steps.ended);
        wait_for_post(&steps.begun); /* the main thread has written */
    }
}

/* The thread that writes is held for six seconds, also where signals come meanwhile, and the
 * connection is said to be broken where no rank is found to be lost by then. */
static void check_broken(bool cancelled, int said)
{
    struct sigaction now;

    steps_init();
    end = broken_pipe();
    steps.most = 60;
    steps.after = write_broken;
    steps.interrupts = 2;
    stderr_begin();
    assert_int_equal(dp_failure_detector_create(&steps.config, &steps.detector), DP_OK);
    (void)sem_post(&steps.begun);
    wait_for_post(&steps.ended);
    errno = 0;
    assert_int_equal(write(end, "", 1), -1);
    assert_int_equal(errno, EPIPE);
    assert_int_equal(steps.naps, 3);
    assert_int_equal(steps.napped_ns, 6 * (uint64_t)STEPS_SECOND_NS);
    assert_int_equal(sigaction(SIGPIPE, NULL, &now), 0);
    assert_true(now.sa_handler == SIG_DFL); /* the next write ends this process */
    atomic_store(&steps.cancel, cancelled);
    (void)sem_post(&steps.begun);
    wait_for_post(&steps.ended);
    dp_failure_detector_destroy(steps.detector);
    stderr_end();
    (void)close(end);
    assert_int_equal(times_said("the connection to another rank is broken"), said);
}

static void who_writes_to_a_dead_rank_is_held_for_six_seconds(void **state)
{
    (void)state;
    check_broken(false, 1);
}

static void a_broken_connection_is_not_news_where_waits_end(void **state)
{
    (void)state;
    check_broken(true, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_death_is_reported_once_after_half_a_second),
        cmocka_unit_test(a_death_on_this_host_names_no_host),
        cmocka_unit_test(a_death_that_another_rank_reports_ends_waits_without_a_word),
        cmocka_unit_test(who_was_told_to_end_reports_no_death),
        cmocka_unit_test(half_a_second_counts_from_when_a_rank_was_first_lost),
        cmocka_unit_test(a_silent_host_ends_the_job_after_three_seconds_more),
        cmocka_unit_test(where_ranks_go_on_a_silent_host_ends_the_job_all_the_same),
        cmocka_unit_test(ranks_have_five_minutes_to_go_on_without_one),
        cmocka_unit_test(a_rank_stands_by_for_as_long_as_its_launcher_may_take),
        cmocka_unit_test(who_writes_to_a_dead_rank_is_held_for_six_seconds),
        cmocka_unit_test(a_broken_connection_is_not_news_where_waits_end),
    };

    return run_at_once(tests, sizeof(tests) / sizeof(tests[0]));
}
