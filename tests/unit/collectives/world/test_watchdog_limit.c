/* test_watchdog_limit.c - after how long ranks count as hung, and what is no hang. */
#include <stdlib.h>

#include "tests/support/arrays.h"

#include "tests/support/watched_host.h"

static void a_step_may_take_five_times_the_slowest_but_at_least_ten_seconds(void **state)
{
    int when = 0;
    (void)state;

    begin(4, false);
    train_steps(300);
    assert_int_equal(look_for(20000, &when), DP_WATCHDOG_HUNG);
    assert_in_range(when, 9800, 10200);
    end();

    begin(4, false);
    dp_watchdog_set_timeout(host.watchdog, 60.0);
    train_steps(3000); /* no warning: far under 60 s */
    dp_watchdog_set_timeout(host.watchdog, 0.0);
    host.looks = 0;
    assert_int_equal(look_for(6000, &when), DP_WATCHDOG_FINE);
    assert_int_equal(host.looks, 0); /* every rank looks at all: not before it matters */
    assert_int_equal(look_for(14000, &when), DP_WATCHDOG_HUNG);
    assert_in_range(when, 14700 - 6000, 15300 - 6000);
    assert_true(host.looks > 0);
    end();
}

/* All that happened between two looks. */
static void steps_and_pauses_shorter_than_a_look_count(void **state)
{
    int when = 0;
    (void)state;

    begin(4, false);
    all_step(1);
    all_step(2);
    assert_int_equal(look_for(12000, &when), DP_WATCHDOG_HUNG);
    assert_in_range(when, 9800, 10200);
    end();

    begin(4, false);
    dp_watchdog_set_timeout(host.watchdog, 4.0);
    all_step(1);
    static const int pauses[] = {DP_PHASE_OTHER, DP_PHASE_CHECKPOINT};
    for (size_t i = 0; i < DP_COUNT(pauses); i++) {
        put(0, pauses[i], pauses[i], 1, -1);
        all_step(2);
        put(0, pauses[i], pauses[i], 2, -1);
        assert_int_equal(look_for(6000, &when), DP_WATCHDOG_HUNG);
        assert_in_range(when, 3800, 4200);
        all_step(3);
        (void)look_for(LOOK_MS, &when);
    }
    end();
}

static void a_timeout_that_is_set_holds_and_half_of_it_warns_once(void **state)
{
    int when = 0;
    (void)state;

    begin(4, false);
    dp_watchdog_set_timeout(host.watchdog, 4.0);
    train_steps(200);
    assert_int_equal(look_for(1800, &when), DP_WATCHDOG_FINE);
    assert_int_equal(look_for(400, &when), DP_WATCHDOG_QUIET);
    assert_int_equal(look_for(1000, &when), DP_WATCHDOG_FINE);
    all_step(6); /* progress after all */
    assert_int_equal(look_for(1800, &when), DP_WATCHDOG_FINE);
    assert_int_equal(look_for(400, &when), DP_WATCHDOG_QUIET);
    assert_int_equal(look_for(3000, &when), DP_WATCHDOG_HUNG);
    end();
}

/* Steps of 100 ms, and one earlier activity of this kind, if it took any time; then rank 4 is in
 * such a one, and the others wait for it. */
static void train_with(int activity, int before_ms, double timeout_s, bool other_hosts)
{
    int when;

    begin(4, other_hosts);
    dp_watchdog_set_timeout(host.watchdog, timeout_s);
    train_steps(100);
    if (before_ms > 0) {
        put(0, activity, activity, 5, -1);
        (void)look_for(before_ms, &when);
        all_step(6);
        (void)look_for(LOOK_MS, &when);
    }
    put(0, activity, activity, 6, -1);
    put(1, activity, DP_PHASE_WAIT, 6, -1);
    put(2, activity, DP_PHASE_WAIT, 6, -1);
}

/* It hangs after so many seconds, and not before. */
static void expect_limit(int seconds)
{
    int when = 0;

    assert_int_equal(look_for(seconds * 1000 + 2000, &when), DP_WATCHDOG_HUNG);
    assert_in_range(when, seconds * 1000 - 200, seconds * 1000 + 700);
    end();
}

static void other_activities_may_take_five_times_the_slowest_or_half_a_minute(void **state)
{
    int when;
    (void)state;

    train_with(DP_PHASE_CHECKPOINT, 0, 0.0, false); /* the first one */
    expect_limit(60);
    train_with(DP_PHASE_CHECKPOINT, 1000, 0.0, false);
    expect_limit(30);
    train_with(DP_PHASE_EVALUATE, 8000, 0.0, false);
    expect_limit(40);
    train_with(DP_PHASE_EVALUATE, 0, 4.0, false);
    expect_limit(60);
    train_with(DP_PHASE_EVALUATE, 500, 4.0, false);
    expect_limit(4);
    train_with(DP_PHASE_OTHER, 500, 4.0, false);
    expect_limit(4);
    train_with(DP_PHASE_CHECKPOINT, 500, 400.0, false);
    expect_limit(400);

    begin(4, false);
    train_steps(100);
    atomic_store(&host.marks[1].open, 0); /* the caller's own code */
    assert_int_equal(look_for(1000000, &when), DP_WATCHDOG_FINE);
    end();
}

/* On a busy machine a sum of ranks that are measured may take long. */
static void where_all_wait_for_each_other_the_limit_is_that_of_what_they_do(void **state)
{
    (void)state;

    train_with(DP_PHASE_MEASURE, 1000, 0.0, false);
    put(0, DP_PHASE_MEASURE, DP_PHASE_WAIT, 6, -1);
    expect_limit(30);
    train_with(DP_PHASE_STEP, 0, 0.0, false);
    put(0, DP_PHASE_STEP, DP_PHASE_WAIT, 6, -1);
    expect_limit(10);
}

static void what_may_be_at_work_unseen_has_five_minutes(void **state)
{
    int when = 0;
    (void)state;

    begin(4, false); /* the start */
    for (int i = 0; i < RANKS; i++) {
        put(i, DP_PHASE_OTHER, DP_PHASE_OTHER, 0, -1);
    }
    assert_int_equal(look_for(299000, &when), DP_WATCHDOG_QUIET);
    assert_int_equal(look_for(2000, &when), DP_WATCHDOG_HUNG);
    end();

    train_with(DP_PHASE_CHECKPOINT, 500, 4.0, false);
    atomic_store(&host.questions[0].on_disk, 1);
    expect_limit(300);

    static const struct {
        int activity;
        double timeout_s;
        int limit_s;
    } far[] = {{DP_PHASE_CHECKPOINT, 4.0, 300}, {DP_PHASE_MEASURE, 4.0, 300},
               {DP_PHASE_EVALUATE, 4.0, 4},     {DP_PHASE_OTHER, 4.0, 4},
               {DP_PHASE_EVALUATE, 0.0, 300},   {DP_PHASE_OTHER, 0.0, 300}};
    for (size_t i = 0; i < DP_COUNT(far); i++) {
        train_with(far[i].activity, 500, far[i].timeout_s, true);
        put(0, far[i].activity, DP_PHASE_WAIT, 6, -1);
        expect_limit(far[i].limit_s);
    }
}

/* For so many seconds rank 4 hears each second that another host makes progress: it is fine; then
 * no more, and it hangs after limit_s. */
static void expect_limit_after_news(int seconds, int limit_s)
{
    int when;

    for (int i = 0; i < seconds; i++) {
        atomic_fetch_add(&host.questions[0].heard, 1);
        assert_int_equal(look_for(1000, &when), DP_WATCHDOG_FINE);
    }
    atomic_fetch_add(&host.questions[0].heard, 1);
    expect_limit(limit_s);
}

static void where_other_hosts_may_be_at_work_their_progress_counts(void **state)
{
    static const int activities[] = {DP_PHASE_CHECKPOINT, DP_PHASE_MEASURE, DP_PHASE_OTHER};
    (void)state;

    for (size_t i = 0; i < 2; i++) { /* the start: what ranks do there is not known */
        begin(4, true);
        for (int r = 0; r < RANKS; r++) {
            put(r, DP_PHASE_OTHER, r == 0 ? DP_PHASE_WAIT : DP_PHASE_OTHER, 0, -1);
        }
        dp_watchdog_set_unseen(host.watchdog, i == 0 ? DP_HANG_UNSEEN_S : 100.0);
        expect_limit_after_news(400, i == 0 ? 300 : 100);
    }
    for (size_t i = 0; i < DP_COUNT(activities); i++) {
        train_with(activities[i], 500, 0.0, true);
        put(0, activities[i], DP_PHASE_WAIT, 6, -1);
        expect_limit_after_news(400, 300);
    }
}

static void each_time_without_news_is_warned_of(void **state)
{
    int when;
    (void)state;

    begin(4, true);
    for (int r = 0; r < RANKS; r++) {
        put(r, DP_PHASE_OTHER, DP_PHASE_WAIT, 0, -1);
    }
    dp_watchdog_set_unseen(host.watchdog, 100.0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(look_for(60000, &when), DP_WATCHDOG_QUIET);
        atomic_fetch_add(&host.questions[0].heard, 1);
        assert_int_equal(look_for(40000, &when), DP_WATCHDOG_FINE);
        atomic_fetch_add(&host.questions[0].heard, 1);
    }
    end();
}

/* Ranks of other hosts make progress all the time, but this host is not fine for long. */
static void expect_hang_despite_news(void)
{
    enum dp_watchdog_finding worst = DP_WATCHDOG_FINE;
    int when;

    for (int s = 0; s < 302 && worst != DP_WATCHDOG_HUNG; s++) {
        atomic_fetch_add(&host.questions[0].heard, 1);
        worst = look_for(1000, &when);
    }
    assert_int_equal(worst, DP_WATCHDOG_HUNG);
    end();
}

static void where_ranks_of_this_host_are_the_cause_progress_of_others_does_not_count(void **state)
{
    static const struct {
        int activity;
        double timeout_s;
        int phase, expects_ms; /* of rank 5, and of all */
        char state;            /* of rank 6 */
    } cases[] = {{DP_PHASE_STEP, 0.0, DP_PHASE_WAIT, 0, 'S'},
                 {DP_PHASE_EVALUATE, 4.0, DP_PHASE_WAIT, 0, 'S'},
                 {DP_PHASE_EVALUATE, 0.0, DP_PHASE_INPUT, 0, 'S'},
                 {DP_PHASE_EVALUATE, 0.0, DP_PHASE_WAIT, 1200, 'S'},
                 {DP_PHASE_EVALUATE, 0.0, DP_PHASE_WAIT, 0, 'T'}};
    (void)state;

    for (size_t k = 0; k < DP_COUNT(cases); k++) {
        train_with(cases[k].activity, 500, cases[k].timeout_s, true);
        put(0, cases[k].activity, DP_PHASE_WAIT, 6, -1);
        put(1, cases[k].activity, cases[k].phase, 6, -1);
        for (int r = 0; r < RANKS; r++) {
            atomic_store(&host.marks[r].expects_ms, cases[k].expects_ms);
        }
        host.doing[2].state = cases[k].state;
        expect_hang_despite_news();
    }
    for (int k = 0; k < 2; k++) { /* the start */
        begin(4, true);
        for (int r = 0; r < RANKS; r++) {
            put(r, DP_PHASE_OTHER, DP_PHASE_OTHER, 0, -1);
            atomic_store(&host.marks[r].expects_ms, k == 0 ? 1200 : 0);
        }
        host.doing[2].state = k == 0 ? 'S' : 'T';
        expect_hang_despite_news();
    }
}

/* At the start, or while rank 4 is measured, as ranks that wait for each other see it: not where
 * one of this host is not there yet, and may be at work for long. */
static void what_is_announced_may_take_five_times_as_long_but_at_least_half_a_minute(void **state)
{
    static const struct {
        double timeout_s;
        int outage_s, expects_ms;
        bool other_hosts, starts;
        int limit_s;
    } cases[] = {{0.0, 0, 1200, false, true, 30},   {0.0, 0, 1200, true, true, 30},
                 {0.0, 40, 1200, true, true, 45},   {0.0, 0, 20000, false, true, 100},
                 {2.0, 30, 1200, true, true, 10},   {90.0, 0, 1200, true, true, 90},
                 {0.0, 30, 1200, true, false, 35},  {2.0, 30, 1200, true, false, 10},
                 {0.0, 30, 12000, true, false, 60}, {2.0, 0, 12000, false, false, 60}};
    int when;
    (void)state;

    for (size_t k = 0; k < DP_COUNT(cases); k++) {
        if (cases[k].starts) {
            begin(4, cases[k].other_hosts);
            dp_watchdog_set_timeout(host.watchdog, cases[k].timeout_s);
        } else {
            train_with(DP_PHASE_MEASURE, 0, cases[k].timeout_s, cases[k].other_hosts);
        }
        dp_watchdog_allow_outage(host.watchdog, cases[k].outage_s);
        for (int i = 0; i < RANKS; i++) {
            const int activity = cases[k].starts ? DP_PHASE_OTHER : DP_PHASE_MEASURE;
            put(i, activity, DP_PHASE_WAIT, cases[k].starts ? 0 : 6, -1);
            atomic_store(&host.marks[i].expects_ms, cases[k].expects_ms);
        }
        expect_limit(cases[k].limit_s);
    }
    begin(4, false);
    for (int i = 0; i < RANKS; i++) {
        put(i, DP_PHASE_OTHER, DP_PHASE_OTHER, 0, -1);
        atomic_store(&host.marks[i].expects_ms, i == 1 ? 0 : 1200);
    }
    assert_int_equal(look_for(299000, &when), DP_WATCHDOG_QUIET);
    end();
}

/* As a rank that reads for an hour while the others wait. */
static void a_rank_that_beats_makes_progress(void **state)
{
    int when;
    (void)state;

    for (int expects_ms = 0; expects_ms <= 100; expects_ms += 100) {
        const int beat_s = expects_ms == 0 ? 140 : 14; /* no warning either */
        begin(4, true);
        for (int i = 0; i < RANKS; i++) {
            put(i, DP_PHASE_OTHER, DP_PHASE_OTHER, 0, -1);
            atomic_store(&host.marks[i].expects_ms, expects_ms);
        }
        for (int i = 0; i < 30; i++) {
            assert_int_equal(look_for(1000 * beat_s, &when), DP_WATCHDOG_FINE);
            atomic_fetch_add(&host.marks[1].beats, 1);
        }
        expect_limit(expects_ms == 0 ? 300 : 30);
    }
}

/* Each second all ranks but those that are stopped open and close spans, and whoever waits for one
 * that works alone does so in rounds; until it hangs. */
static int seconds_of_rounds(unsigned rounds, long long step, int most_s)
{
    enum dp_watchdog_finding worst = DP_WATCHDOG_FINE;
    int seconds = 0, when;

    for (int i = 0; i < RANKS; i++) {
        atomic_store(&host.marks[i].notes[DP_NOTE_AWAITS_ONE], (int)(rounds >> i & 1));
    }
    while (seconds < most_s && worst != DP_WATCHDOG_HUNG) {
        for (int i = 0; i < RANKS; i++) {
            if (host.doing[i].state != 'T') {
                put(i, DP_PHASE_EVALUATE, seconds % 2 == 0 ? DP_PHASE_WAIT : DP_PHASE_OTHER, step,
                    -1);
            }
        }
        worst = look_for(1000, &when);
        seconds++;
    }
    return seconds;
}

static void rounds_of_waiting_are_no_progress(void **state)
{
    int when;
    (void)state;

    for (int others = 0; others < 2; others++) { /* rank 6 evaluates; then it is stopped */
        train_with(DP_PHASE_EVALUATE, 500, 4.0, others == 1);
        assert_int_equal(seconds_of_rounds(3, 6, 400), 400);
        host.doing[2].state = 'T';
        assert_in_range(seconds_of_rounds(3, 6, 400), 4, 5);
        end();
    }
    for (int news_s = 0; news_s <= 400; news_s += 400) { /* a rank of another host evaluates */
        train_with(DP_PHASE_EVALUATE, 500, 4.0, true);
        for (int s = 0; s < news_s; s++) {
            (void)seconds_of_rounds(7, 6, 1);
            atomic_fetch_add(&host.questions[0].heard, 1);
            assert_int_equal(look_for(LOOK_MS, &when), DP_WATCHDOG_FINE);
        }
        assert_in_range(seconds_of_rounds(7, 6, 400), 299, 301);
        end();
    }
    train_with(DP_PHASE_EVALUATE, 500, 4.0, false); /* between two waits there was a step */
    for (int step = 7; step < 30; step++) {
        assert_int_equal(seconds_of_rounds(7, step, 3), 3);
    }
    end();
}

static void a_rank_says_that_it_changes_a_file(void **state)
{
    (void)state;

    begin(5, false);
    atomic_store(&host.questions[1].on_disk, 1);
    atomic_store(&host.questions[0].on_disk, 1);
    dp_watchdog_answer(host.watchdog); /* none is under way here */
    assert_int_equal(atomic_load(&host.questions[1].on_disk), 0);
    assert_int_equal(atomic_load(&host.questions[0].on_disk), 1);
    end();
}

/* Whoever waits has no time limit of its own where a rank of this host is stopped or at work, also
 * where it may wait for another host, which has five minutes. */
static void who_waits_does_not_lengthen_the_limit_of_who_keeps_it_waiting(void **state)
{
    (void)state;

    for (int other_hosts = 0; other_hosts < 2; other_hosts++) {
        train_with(DP_PHASE_CHECKPOINT, 0, 0.0, other_hosts == 1);
        put(0, DP_PHASE_EVALUATE, DP_PHASE_WAIT, 6, -1);
        put(1, DP_PHASE_CHECKPOINT, DP_PHASE_CHECKPOINT, 6, -1);
        put(2, DP_PHASE_STEP, DP_PHASE_WAIT, 6, 1);
        host.doing[1].state = 'T';
        expect_limit(10);

        train_with(DP_PHASE_MEASURE, 500, 4.0, other_hosts == 1); /* rank 4 is at work */
        expect_limit(4);
    }
}

static void an_outage_that_is_allowed_is_no_hang(void **state)
{
    int when = 0;
    (void)state;

    for (int other_hosts = 0; other_hosts < 2; other_hosts++) {
        begin(4, other_hosts == 1);
        dp_watchdog_allow_outage(host.watchdog, 30);
        train_steps(100);
        assert_int_equal(look_for(50000, &when), DP_WATCHDOG_HUNG);
        assert_in_range(when, other_hosts == 1 ? 34800 : 9800, other_hosts == 1 ? 35200 : 10200);
        end();
    }
}

static void time_in_which_the_job_was_suspended_does_not_count(void **state)
{
    int when = 0;
    (void)state;

    begin(4, false);
    train_steps(100);
    assert_int_equal(look_for(4000, &when), DP_WATCHDOG_FINE);
    host.now_ns += 3600000 * MS;
    assert_int_equal(look_for(400, &when), DP_WATCHDOG_FINE);
    all_step(6);
    assert_int_equal(look_for(4000, &when), DP_WATCHDOG_FINE);
    end();
}

static void a_debugger_may_hold_a_rank(void **state)
{
    int when = 0;
    (void)state;

    begin(4, false);
    train_steps(100);
    host.doing[2].state = 't';
    assert_int_equal(look_for(100000, &when), DP_WATCHDOG_FINE);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_may_take_five_times_the_slowest_but_at_least_ten_seconds),
        cmocka_unit_test(steps_and_pauses_shorter_than_a_look_count),
        cmocka_unit_test(a_timeout_that_is_set_holds_and_half_of_it_warns_once),
        cmocka_unit_test(other_activities_may_take_five_times_the_slowest_or_half_a_minute),
        cmocka_unit_test(where_all_wait_for_each_other_the_limit_is_that_of_what_they_do),
        cmocka_unit_test(what_may_be_at_work_unseen_has_five_minutes),
        cmocka_unit_test(where_other_hosts_may_be_at_work_their_progress_counts),
        cmocka_unit_test(each_time_without_news_is_warned_of),
        cmocka_unit_test(where_ranks_of_this_host_are_the_cause_progress_of_others_does_not_count),
        cmocka_unit_test(what_is_announced_may_take_five_times_as_long_but_at_least_half_a_minute),
        cmocka_unit_test(a_rank_that_beats_makes_progress),
        cmocka_unit_test(a_rank_says_that_it_changes_a_file),
        cmocka_unit_test(who_waits_does_not_lengthen_the_limit_of_who_keeps_it_waiting),
        cmocka_unit_test(an_outage_that_is_allowed_is_no_hang),
        cmocka_unit_test(time_in_which_the_job_was_suspended_does_not_count),
        cmocka_unit_test(rounds_of_waiting_are_no_progress),
        cmocka_unit_test(a_debugger_may_hold_a_rank),
    };

    return cmocka_run_group_tests_name("watchdog limit", tests, NULL, NULL);
}
