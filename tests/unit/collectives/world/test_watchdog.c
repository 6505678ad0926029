/* test_watchdog.c - who is named when ranks hang, and what is reported. */
#include <stdlib.h>

#include "tests/support/arrays.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/system/stacks.h"
#include "collectives/world/watchdog.h"
#include "tests/support/stderr_text.h"
#include "tests/support/watched_host.h"

static bool blames(int rank)
{
    int count;
    const struct dp_hang_row *rows = dp_watchdog_rows(host.watchdog, &count);

    return dp_hang_table_blames(rows, count, rank);
}

static void cause(char *out, size_t size)
{
    int count;
    const struct dp_hang_row *rows = dp_watchdog_rows(host.watchdog, &count);

    dp_hang_table_cause(rows, count, dp_watchdog_has_others(host.watchdog), out, size);
}

/* Rank 5 waits for work; rank 4 and 6 wait for each other, or have nothing to do either. */
static void a_rank_without_work_neither_hangs_nor_lengthens_the_limit_of_others(void **state)
{
    char text[200];
    int when = 0;
    (void)state;

    for (int other_hosts = 0; other_hosts < 2; other_hosts++) {
        begin(4, other_hosts == 1);
        train_steps(100);
        put(0, DP_PHASE_STEP, DP_PHASE_FORWARD, 5, -1);
        put(1, DP_PHASE_IDLE, DP_PHASE_IDLE, 0, -1);
        put(2, DP_PHASE_STEP, DP_PHASE_WAIT, 5, 1);
        assert_int_equal(look_for(20000, &when), DP_WATCHDOG_HUNG);
        assert_true(blames(4));
        assert_false(blames(5));
        cause(text, sizeof(text));
        assert_null(strstr(text, "rank 5"));
        end();
    }
    begin(4, false);
    train_steps(100);
    for (int i = 0; i < RANKS; i++) {
        put(i, DP_PHASE_IDLE, DP_PHASE_IDLE, 0, -1);
    }
    assert_int_equal(look_for(1000000, &when), DP_WATCHDOG_FINE);
    end();
}

/* For so many seconds rank 6 works beside the others; until the host hangs. */
static int seconds_beside(int most_s)
{
    enum dp_watchdog_finding worst = DP_WATCHDOG_FINE;
    int seconds = 0, when;

    atomic_store(&host.marks[2].notes[DP_NOTE_BESIDE], 1);
    while (seconds < most_s && worst != DP_WATCHDOG_HUNG) {
        put(2, DP_PHASE_EVALUATE, seconds % 2 == 0 ? DP_PHASE_FORWARD : DP_PHASE_EVALUATE, 0, -1);
        worst = look_for(1000, &when);
        seconds++;
    }
    return seconds;
}

/* Rank 4 takes steps, alone or with rank 5, which is stopped, or rank 4 is. */
static void a_rank_that_works_beside_others_hides_no_hang_of_theirs(void **state)
{
    (void)state;

    for (int culprit = 0; culprit < 2; culprit++) {
        for (int k = 0; k < 4; k++) {
            begin(6, k % 2 == 1);
            dp_watchdog_set_timeout(host.watchdog, 4.0);
            train_steps(100);
            put(1 - culprit, k < 2 ? DP_PHASE_STEP : DP_PHASE_IDLE,
                k < 2 ? DP_PHASE_WAIT : DP_PHASE_IDLE, 5, 1);
            host.doing[culprit].state = 'T';
            assert_in_range(seconds_beside(400), 4, 5);
            assert_true(blames(4 + culprit));
            assert_false(blames(5 - culprit));
            assert_false(blames(6));
            end();
        }
    }
}

static void who_waits_for_a_rank_beside_sees_its_progress_and_its_hang(void **state)
{
    static const int activities[] = {DP_PHASE_EVALUATE, DP_PHASE_IDLE}; /* of ranks 4 and 5 */
    int when;
    (void)state;

    for (size_t k = 0; k < DP_COUNT(activities); k++) { /* or nobody else is at work */
        begin(4, false);
        train_steps(100);
        for (int i = 0; i < 2; i++) {
            put(i, activities[k], k == 0 ? DP_PHASE_WAIT : DP_PHASE_IDLE, 5, -1);
            atomic_store(&host.marks[i].notes[DP_NOTE_AWAITS_ONE], k == 0);
        }
        assert_int_equal(seconds_beside(400), 400);
        assert_int_equal(look_for(70000, &when), DP_WATCHDOG_HUNG);
        assert_true(k == 1 || blames(6));
        end();
    }
}

static void what_is_waited_for_unseen_may_take_long_beside_a_rank(void **state)
{
    int when;
    (void)state;

    begin(4, true);
    train_steps(100);
    put(0, DP_PHASE_CHECKPOINT, DP_PHASE_WAIT, 5, -1);
    put(1, DP_PHASE_CHECKPOINT, DP_PHASE_WAIT, 5, -1);
    for (int s = 0; s < 400; s++) {
        atomic_fetch_add(&host.questions[0].heard, 1);
        (void)seconds_beside(1);
        assert_int_equal(look_for(LOOK_MS, &when), DP_WATCHDOG_FINE);
    }
    assert_in_range(seconds_beside(400), 299, 301);
    end();
}

static void the_first_rank_that_runs_reports(void **state)
{
    static const struct {
        int self;
        const char *states;
        bool reports;
    } cases[] = {{4, "SSS", true},  {5, "SSS", false}, {5, "TSS", true}, {6, "TZS", true},
                 {6, "TRS", false}, {4, "TSS", false}, {5, "?SS", false}};
    int when;
    (void)state;

    for (size_t i = 0; i < DP_COUNT(cases); i++) {
        begin(cases[i].self, false);
        train_steps(100);
        for (int r = 0; r < RANKS; r++) {
            host.doing[r].state = cases[i].states[r];
        }
        assert_int_equal(look_for(30000, &when), DP_WATCHDOG_HUNG);
        assert_int_equal(dp_watchdog_reports(host.watchdog), cases[i].reports);
        end();
    }
}

/* What stands in the report when two ranks wait in step 7 and the middle one is like this. */
static void expect_cause(char state, int phase, long long step, long long bucket,
                         uint64_t cpu_ms_per_s, uint64_t pages_per_s, const char *expected)
{
    char text[256];

    begin(4, false);
    train_steps(100);
    put(0, DP_PHASE_STEP, DP_PHASE_WAIT, 7, 2);
    put(1, DP_PHASE_STEP, phase, step, bucket);
    put(2, DP_PHASE_STEP, DP_PHASE_WAIT, 7, 2);
    host.doing[1].state = state;
    for (int ms = 0; ms < 12000; ms += LOOK_MS) {
        host.now_ns += LOOK_MS * MS;
        host.doing[1].cpu_ns += cpu_ms_per_s * LOOK_MS * MS / 1000;
        host.doing[1].page_reads += pages_per_s * LOOK_MS / 1000;
        (void)dp_watchdog_look(host.watchdog, host.now_ns);
    }
    cause(text, sizeof(text));
    assert_string_equal(text, expected);
    assert_int_equal(blames(5), strstr(expected, "rank 5") != NULL);
    assert_false(blames(4));
    end();
}

static void the_rank_that_did_not_arrive_is_named_with_what_it_does(void **state)
{
    (void)state;

    expect_cause('T', DP_PHASE_BACKWARD, 7, -1, 0, 0,
                 "did not arrive: rank 5 (h1): stopped by a signal, phase backward");
    expect_cause('T', DP_PHASE_WAIT, 7, 2, 0, 0,
                 "did not arrive: rank 5 (h1): stopped by a signal, phase wait");
    expect_cause('R', DP_PHASE_FORWARD, 7, -1, 1000, 0,
                 "did not arrive: rank 5 (h1): computing, phase forward");
    expect_cause('R', DP_PHASE_FORWARD, 7, -1, 300, 0, /* on a busy machine */
                 "did not arrive: rank 5 (h1): computing, phase forward");
    expect_cause('S', DP_PHASE_FORWARD, 7, -1, 510, 0, /* more than half of the time */
                 "did not arrive: rank 5 (h1): computing, phase forward");
    expect_cause('S', DP_PHASE_FORWARD, 7, -1, 500, 0,
                 "did not arrive: rank 5 (h1): sleeping, phase forward");
    expect_cause('S', DP_PHASE_INPUT, 7, -1, 0, 0,
                 "did not arrive: rank 5 (h1): sleeping, phase input");
    expect_cause('D', DP_PHASE_INPUT, 7, -1, 0, 0,
                 "did not arrive: rank 5 (h1): waits for a device, phase input");
    expect_cause('D', DP_PHASE_FORWARD, 7, -1, 100, 300,
                 "did not arrive: rank 5 (h1): swapping, phase forward");
    expect_cause('Z', DP_PHASE_FORWARD, 7, -1, 0, 0,
                 "did not arrive: rank 5 (h1): has ended, phase forward");
    expect_cause('S', DP_PHASE_WAIT, 7, 1, 0, 0,
                 "did not arrive: rank 5 (h1): waits for other ranks, phase wait");
    expect_cause('S', DP_PHASE_WAIT, 7, 2, 0, 0, "all ranks of host h1 wait for each other");
}

/* A rank that waits for one without a step of its own, as for an input rank, is behind the others
 * because of that one. */
static void who_waits_is_no_cause_where_another_rank_is(void **state)
{
    char text[256];
    int when;
    (void)state;

    begin(4, false);
    train_steps(100);
    put(0, DP_PHASE_STEP, DP_PHASE_WAIT, 7, 0);
    put(1, DP_PHASE_STEP, DP_PHASE_BACKWARD, 0, -1);
    put(2, DP_PHASE_STEP, DP_PHASE_WAIT, 7, 2);
    host.doing[1].state = 'T';
    assert_int_equal(look_for(10100, &when), DP_WATCHDOG_HUNG);
    cause(text, sizeof(text));
    assert_string_equal(text, "did not arrive: rank 5 (h1): stopped by a signal, phase backward");
    assert_false(blames(4));
    host.doing[1].state = 'S';
    put(1, DP_PHASE_STEP, DP_PHASE_WAIT, 7, 2); /* now all wait: who is behind is the cause */
    (void)dp_watchdog_look(host.watchdog, host.now_ns);
    assert_true(blames(4));
    end();
}

/* There ranks wait for each other in no span of its own. Whether rank 5 is stopped or at work. */
static void in_the_start_only_who_did_not_arrive_is_named(void **state)
{
    static const struct {
        char state;
        int limit_s;
        const char *cause;
    } cases[] = {{'T', 60, "did not arrive: rank 5 (h1): stopped by a signal, phase other"},
                 {'S', 300, "did not arrive: rank 5 (h1): sleeping, phase other"}};
    char text[256];
    int when;
    (void)state;

    for (size_t k = 0; k < DP_COUNT(cases); k++) {
        begin(4, false);
        for (int i = 0; i < RANKS; i++) {
            put(i, DP_PHASE_OTHER, DP_PHASE_OTHER, 0, -1);
            atomic_store(&host.marks[i].notes[DP_NOTE_AWAITS_RANKS],
                         cases[k].state == 'T' || i != 1);
        }
        host.doing[1].state = cases[k].state;
        assert_int_equal(look_for(310000, &when), DP_WATCHDOG_HUNG);
        assert_in_range(when, cases[k].limit_s * 1000, cases[k].limit_s * 1000 + LOOK_MS);
        cause(text, sizeof(text));
        assert_string_equal(text, cases[k].cause);
        assert_false(blames(4) || blames(6));
        end();
    }
}

static void report(void)
{
    int count;
    const struct dp_hang_row *rows = dp_watchdog_rows(host.watchdog, &count);

    dp_hang_table_report(rows, count, false, dp_watchdog_quiet_s(host.watchdog), true);
}

static void the_report_is_a_table_and_one_error(void **state)
{
    int when;
    (void)state;

    begin(4, false);
    train_steps(100);
    put(0, DP_PHASE_STEP, DP_PHASE_WAIT, 7, 2);
    put(1, DP_PHASE_STEP, DP_PHASE_OPTIMIZER, 7, -1);
    put(2, DP_PHASE_STEP, DP_PHASE_WAIT, 7, 2);
    host.doing[1].state = 'T';
    (void)snprintf(host.doing[1].waits, sizeof(host.doing[1].waits), "do_signal_stop");
    stderr_begin();
    assert_int_equal(look_for(10100, &when), DP_WATCHDOG_HUNG);
    dp_watchdog_warn(host.watchdog);
    report();
    stderr_end();
    assert_string_equal(
        stderr_text,
        "lockstep: warning: no progress for 10.0 s: did not arrive: rank 5 (h1): stopped by a "
        "signal, phase optimizer; the job ends after 10.0 s (train.hang_timeout_s)\n"
        "rank host     step bucket phase       since_s  process\n"
        "   4 h1          7      2 wait           10.0  waits for other ranks\n"
        "   5 h1          7      - optimizer      10.0  stopped by a signal (do_signal_stop)\n"
        "   6 h1          7      2 wait           10.0  waits for other ranks\n"
        "lockstep: error: no progress for 10.0 s: did not arrive: rank 5 (h1): stopped by a "
        "signal, phase optimizer; the job ends, start it again with --resume\n");
    end();
}

/* Rank 4 asks; 5 is stopped and does not answer, 6 has; 4 answers for itself. */
static void who_runs_is_asked_for_its_stacks(void **state)
{
    int when, count;
    (void)state;

    begin(4, false);
    dp_stacks_init();
    train_steps(100);
    put(0, DP_PHASE_STEP, DP_PHASE_FORWARD, 7, -1);
    put(2, DP_PHASE_STEP, DP_PHASE_WAIT, 7, 2);
    host.doing[1].state = 'T';
    assert_int_equal(look_for(10100, &when), DP_WATCHDOG_HUNG);
    dp_watchdog_answer(host.watchdog);
    assert_int_equal(atomic_load(&host.questions[0].given), 0);
    dp_watchdog_ask(host.watchdog);
    assert_false(dp_watchdog_answered(host.watchdog));
    (void)snprintf(host.questions[2].stacks, DP_HANG_STACKS, "main: b < a\ndp-engine: c");
    atomic_store(&host.questions[2].given, 1);
    assert_false(dp_watchdog_answered(host.watchdog));
    dp_watchdog_answer(host.watchdog);
    assert_true(dp_watchdog_answered(host.watchdog));
    (void)snprintf(host.questions[0].stacks, DP_HANG_STACKS, "main: e < d\ndp-engine: f");
    dp_watchdog_answer(host.watchdog); /* once is enough */
    stderr_begin();
    report();
    stderr_end();
    assert_string_equal(dp_watchdog_rows(host.watchdog, &count)[1].stacks, "");
    assert_non_null(strstr(stderr_text, "10.0  sleeping\n"
                                        "       main: e < d\n"
                                        "       dp-engine: f\n"
                                        "   5 h1"));
    assert_non_null(strstr(stderr_text, "waits for other ranks\n"
                                        "       main: b < a\n"
                                        "lockstep: error"));
    end();
}

static void what_a_process_sleeps_in_tells_locks_from_other_sleep(void **state)
{
    static const struct {
        const char *kernel, *told;
    } cases[] = {{"futex_wait_queue", "waits for a lock"},
                 {"futex", "waits for a lock"},
                 {"fute", "sleeping"},
                 {"fute_of_another_name", "sleeping"},
                 {"", "sleeping"}};
    int when, count;
    (void)state;

    for (size_t i = 0; i < DP_COUNT(cases); i++) {
        begin(4, false);
        train_steps(100);
        put(1, DP_PHASE_STEP, DP_PHASE_OPTIMIZER, 7, -1);
        (void)snprintf(host.doing[1].waits, sizeof(host.doing[1].waits), "%s", cases[i].kernel);
        assert_int_equal(look_for(10100, &when), DP_WATCHDOG_HUNG);
        assert_string_equal(dp_watchdog_rows(host.watchdog, &count)[1].doing, cases[i].told);
        end();
    }
}

/* Also where half of the limit is shorter than the time between two looks. */
static void each_time_without_progress_is_found(void **state)
{
    int when;
    (void)state;

    begin(4, false);
    dp_watchdog_set_timeout(host.watchdog, 0.15);
    for (int step = 1; step <= 3; step++) {
        all_step(step);
        assert_int_equal(look_for(LOOK_MS, &when), DP_WATCHDOG_FINE);
        assert_int_equal(look_for(LOOK_MS, &when), DP_WATCHDOG_QUIET);
    }
    assert_int_equal(look_for(LOOK_MS, &when), DP_WATCHDOG_HUNG);
    end();
}

static void a_failed_allocation_leaves_nothing(void **state)
{
    const struct dp_trace_mark mark = {0};
    const struct dp_watchdog_rank rank = {0, 1, &mark, NULL};
    const struct dp_watchdog_config config = {
        .ranks = &rank, .count = 1, .host = "h1", .look = look};
    const size_t live = dp_mem_live();
    struct dp_watchdog *watchdog = NULL;
    dp_status status = DP_ERR_NOMEM;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        dp_mem_fail_nth(nth);
        status = dp_watchdog_create(&config, &watchdog);
        dp_mem_fail_nth(0);
        assert_true(status == DP_OK || dp_mem_live() == live);
    }
    dp_log_set_level(DP_LOG_INFO);
    dp_watchdog_destroy(watchdog);
    dp_watchdog_destroy(NULL);
    assert_int_equal(dp_mem_live(), live);
}

static void one_rank_at_a_time_may_report(void **state)
{
    atomic_int *reporter = &host.questions[0].reporter;
    (void)state;

    begin(5, false);
    for (int turn = 0; turn < 2; turn++) {
        assert_true(dp_watchdog_claim(host.watchdog));
        assert_true(dp_watchdog_claim(host.watchdog));
        assert_int_equal(atomic_load(reporter), 6);
        dp_watchdog_disclaim(host.watchdog);
        assert_int_equal(atomic_load(reporter), 0);
    }
    atomic_store(reporter, 7); /* another one */
    assert_false(dp_watchdog_claim(host.watchdog));
    dp_watchdog_disclaim(host.watchdog);
    assert_int_equal(atomic_load(reporter), 7);
    end();
}

static void the_ranks_of_a_host_know_that_the_job_ends(void **state)
{
    (void)state;

    begin(5, false);
    assert_false(dp_watchdog_ends(host.watchdog));
    dp_watchdog_note_end(host.watchdog);
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(atomic_load(&host.questions[i].ended), i == 1);
    }
    assert_true(dp_watchdog_ends(host.watchdog));
    end();
    begin(6, false);
    atomic_store(&host.questions[0].ended, 1); /* as another rank does */
    assert_true(dp_watchdog_ends(host.watchdog));
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_without_work_neither_hangs_nor_lengthens_the_limit_of_others),
        cmocka_unit_test(a_rank_that_works_beside_others_hides_no_hang_of_theirs),
        cmocka_unit_test(who_waits_for_a_rank_beside_sees_its_progress_and_its_hang),
        cmocka_unit_test(what_is_waited_for_unseen_may_take_long_beside_a_rank),
        cmocka_unit_test(the_first_rank_that_runs_reports),
        cmocka_unit_test(the_rank_that_did_not_arrive_is_named_with_what_it_does),
        cmocka_unit_test(who_waits_is_no_cause_where_another_rank_is),
        cmocka_unit_test(in_the_start_only_who_did_not_arrive_is_named),
        cmocka_unit_test(the_report_is_a_table_and_one_error),
        cmocka_unit_test(what_a_process_sleeps_in_tells_locks_from_other_sleep),
        cmocka_unit_test(who_runs_is_asked_for_its_stacks),
        cmocka_unit_test(one_rank_at_a_time_may_report),
        cmocka_unit_test(the_ranks_of_a_host_know_that_the_job_ends),
        cmocka_unit_test(each_time_without_progress_is_found),
        cmocka_unit_test(a_failed_allocation_leaves_nothing),
    };

    return cmocka_run_group_tests_name("watchdog", tests, NULL, NULL);
}
