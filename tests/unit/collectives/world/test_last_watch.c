/* test_last_watch.c - which rank reports that a job does not end, and when. */
#include "tests/support/arrays.h"

#include "base/log.h"
#include "base/mem.h"
#include "collectives/world/last_watch.h"
#include "tests/support/stderr_text.h"
#include "tests/support/watched_host.h"

static int ended; /* the code; 0: not yet */

static void note_end(int code)
{
    ended = code;
}

/* Ranks 4 to 6 of host h1, as rank `self` watches them; all sleep. */
static struct dp_last_watch *watch_host(int self, double timeout_s, double others_s)
{
    static struct dp_watchdog_rank ranks[RANKS];
    const struct dp_last_watch_config config = {.ranks = ranks,
                                                .count = RANKS,
                                                .self = self,
                                                .host = "h1",
                                                .timeout_s = timeout_s,
                                                .others_s = others_s,
                                                .look = look,
                                                .end = note_end};

    memset(&host, 0, sizeof(host));
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = (struct dp_watchdog_rank){.rank = 4 + i, .process = 40 + i};
        host.doing[i].state = 'S';
    }
    host.now_ns = 5000 * MS;
    ended = 0;
    return dp_last_watch_create(&config);
}

/* Looks until this process is to end, for so many seconds at most; after how many that was, or 0.
 * What is printed is in stderr_text. */
static double seconds_until_end(struct dp_last_watch *watch, int most_s)
{
    double at_s = 0.0;

    stderr_begin();
    for (int ms = 0; ms <= most_s * 1000 && ended == 0; ms += LOOK_MS) {
        dp_last_watch_look(watch, host.now_ns);
        host.now_ns += LOOK_MS * MS;
        at_s = ms / 1e3;
    }
    stderr_end();
    assert_true(ended == 0 || ended == dp_status_exit(DP_ERR_HUNG));
    return ended == 0 ? 0.0 : at_s;
}

/* `second`: the state of rank 5's process. said: NULL where this rank prints nothing. */
static void expect_end(int self, double timeout_s, double others_s, char second, double after_s,
                       const char *said)
{
    struct dp_last_watch *watch = watch_host(self, timeout_s, others_s);

    host.doing[1].state = second;
    assert_non_null(watch);
    assert_float_equal(seconds_until_end(watch, 200), after_s, 0.25);
    if (said == NULL) {
        assert_string_equal(stderr_text, "");
    } else {
        assert_non_null(strstr(stderr_text, said));
    }
    dp_last_watch_destroy(watch);
}

static const char stops[] = "did not arrive: rank 5 (h1): stopped by a signal, phase wait";

static void the_first_rank_that_runs_reports_and_the_others_end_later(void **state)
{
    (void)state;

    expect_end(4, 3.0, 0.0, 'T', 10.0, stops); /* ten seconds are the least */
    expect_end(4, 15.0, 0.0, 'T', 15.0, stops);
    expect_end(4, 0.0, 0.0, 'T', 60.0, stops);
    expect_end(6, 3.0, 0.0, 'T', 20.0, NULL);
    expect_end(4, 3.0, 0.0, 'S', 10.0, "all ranks of host h1 wait for each other");
}

static void a_cause_on_another_host_is_left_to_it_for_a_while(void **state)
{
    (void)state;

    expect_end(4, 3.0, 30.0, 'T', 10.0, stops);
    expect_end(4, 3.0, 30.0, 'S', 40.0,
               "all ranks of host h1 wait for ranks that cannot be seen from here");
    expect_end(6, 3.0, 30.0, 'S', 50.0, NULL);
}

static void time_in_which_this_process_did_not_run_does_not_count(void **state)
{
    struct dp_last_watch *watch = watch_host(4, 20.0, 0.0);
    (void)state;

    assert_non_null(watch);
    for (int i = 0; i < 3; i++) {
        host.now_ns += 3600000 * MS;
        assert_float_equal(seconds_until_end(watch, 5), 0.0, 0.0);
    }
    dp_last_watch_destroy(watch);
}

static void a_debugger_may_hold_a_rank(void **state)
{
    struct dp_last_watch *watch = watch_host(4, 3.0, 0.0);
    (void)state;

    assert_non_null(watch);
    host.doing[2].state = 't';
    assert_float_equal(seconds_until_end(watch, 200), 0.0, 0.0);
    dp_last_watch_destroy(watch);
}

static void a_watch_ends_and_without_memory_there_is_none(void **state)
{
    const struct dp_watchdog_rank rank = {.rank = 4, .process = 40};
    const struct dp_last_watch_config config = {
        .ranks = &rank, .count = 1, .self = 4, .host = "h1", .look = look, .end = note_end};
    const size_t live = dp_mem_live();
    struct dp_last_watch *watch = NULL;
    (void)state;

    ended = 0;
    stderr_begin();
    for (int nth = 1; watch == NULL; nth++) {
        dp_mem_fail_nth(nth);
        watch = dp_last_watch_begin(&config);
        dp_mem_fail_nth(0);
        assert_true(watch != NULL || dp_mem_live() == live);
    }
    dp_last_watch_end(watch);
    dp_last_watch_end(NULL);
    stderr_end();
    assert_int_equal(dp_mem_live(), live);
    assert_int_equal(ended, 0);
    assert_string_equal(stderr_text, ""); /* the run is over without it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_rank_that_runs_reports_and_the_others_end_later),
        cmocka_unit_test(a_cause_on_another_host_is_left_to_it_for_a_while),
        cmocka_unit_test(time_in_which_this_process_did_not_run_does_not_count),
        cmocka_unit_test(a_debugger_may_hold_a_rank),
        cmocka_unit_test(a_watch_ends_and_without_memory_there_is_none),
    };

    return cmocka_run_group_tests_name("last watch", tests, NULL, NULL);
}
