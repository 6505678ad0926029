/* test_hang_times.c - at which check a hang is reported, by whom, and ends the job. */
#define _DEFAULT_SOURCE /* syscall() */
#include "base/system/launcher.h"
#include "tests/support/at_once.h"
#include "tests/support/stepped_detector.h"

/* The limit is a second: the tenth check after the last progress, of which the first sees some. */
enum { FOUND = 10, SECOND = 10, END = 30, MARKS = 2 };

static struct {
    struct dp_trace_mark marks[MARKS];
    struct dp_watchdog_question questions[MARKS];
    int event; /* the check after which something happens */
} host;

/* In the place of hang_gather.c, where there are other hosts: what they tell, from which check on,
 * and what they are told. */
static struct dp_hang_gather {
    int hang, complete, reports, knows_hang, knows_death; /* checks */
    struct dp_hang_row rows[MARKS + 1];
    int puts, put_rows; /* how often this host's were given, and how many */
    int told[DP_HANG_REPORT + 1], tells[DP_HANG_REPORT + 1]; /* the first check; how often */
    int told_before_hook;
    bool gives; /* at the last look */
    bool gave[64];
} others;

enum { NEVER = 1 << 30 };

bool dp_hang_gather_look(struct dp_hang_gather *gather, bool gives)
{
    if (gather != NULL) {
        gather->gave[steps.check % 64] = gives;
    }
    return gather != NULL && steps.check >= gather->hang;
}

void dp_hang_gather_tell(struct dp_hang_gather *gather, enum dp_hang_news news)
{
    if (gather != NULL) {
        note_first(&gather->told[news], true);
        gather->tells[news]++;
        gather->told_before_hook += steps.calls == 0;
    }
}

bool dp_hang_gather_knows(const struct dp_hang_gather *gather, enum dp_hang_news news)
{
    return gather != NULL &&
           steps.check >= (news == DP_HANG_REPORT ? gather->knows_hang : gather->knows_death);
}

void dp_hang_gather_put(struct dp_hang_gather *gather, const struct dp_hang_row *rows, int count)
{
    memcpy(gather->rows, rows, sizeof(*rows) * (size_t)count);
    gather->puts++;
    gather->put_rows = count;
}

bool dp_hang_gather_complete(const struct dp_hang_gather *gather)
{
    return steps.check >= gather->complete;
}

bool dp_hang_gather_reports(const struct dp_hang_gather *gather)
{
    return steps.check >= gather->reports;
}

const struct dp_hang_row *dp_hang_gather_rows(struct dp_hang_gather *gather, int *count)
{
    *count = MARKS + 1;
    return gather->rows;
}

static void sleeps(int64_t process, struct dp_process_doing *out)
{
    (void)process;
    *out = (struct dp_process_doing){.state = 'S'};
}

/* This process is rank `self` of so many of a host, which are all in a step from now on. */
static void make_host(int self, int ranks)
{
    struct dp_watchdog_rank is[MARKS];
    const struct dp_watchdog_config watched = {
        .ranks = is, .count = ranks, .self = self, .host = "h1", .look = sleeps};

    steps_init();
    memset(&host, 0, sizeof(host));
    host.event = -1;
    memset(&others, 0, sizeof(others));
    others.hang = others.complete = others.reports = NEVER;
    others.knows_hang = others.knows_death = NEVER;
    others.told[DP_HANG_DEATH] = others.told[DP_HANG_REPORT] = -1;
    others.rows[MARKS] = (struct dp_hang_row){.rank = 2, .host = "h2"};
    for (int i = 0; i < ranks; i++) {
        host.marks[i] = (struct dp_trace_mark){.changes = 1, .open = 1, .activity = DP_PHASE_STEP};
        is[i] = (struct dp_watchdog_rank){i, getpid(), &host.marks[i], &host.questions[i]};
    }
    assert_int_equal(dp_watchdog_create(&watched, &steps.config.watchdog), DP_OK);
    dp_watchdog_set_timeout(steps.config.watchdog, 1.0);
}

static void end_host(void)
{
    steps_end();
    dp_watchdog_destroy(steps.config.watchdog);
}

static void check_events(int called, int cancelled, int aborted)
{
    assert_int_equal(steps.called, called);
    assert_int_equal(steps.calls, called >= 0 ? 1 : 0);
    assert_int_equal(steps.cancelled, cancelled);
    assert_int_equal(steps.hung, cancelled);
    assert_int_equal(steps.aborted, aborted);
    assert_int_equal(steps.code, aborted >= 0 ? STEPS_EXIT_HUNG : 0);
}

static void who_is_alone_reports_once_it_knows_its_stacks(void **state)
{
    (void)state;

    make_host(0, 1);
    steps_make(FOUND + END + 20);
    check_events(FOUND + 1, FOUND + SECOND / 2, FOUND + SECOND / 2 + END);
    assert_int_equal(host.questions[0].asked, 1);
    assert_int_equal(host.questions[0].reporter, 1);
    end_host();
    assert_non_null(strstr(steps.cause, "did not arrive: rank 0 (h1)"));
    assert_int_equal(times_said("error: no progress for 1.1 s"), 1);
    assert_int_equal(times_said("warning: no progress for 0.5 s"), 1);
}

static void ranks_have_a_second_to_say_where_they_are(void **state)
{
    (void)state;

    make_host(0, 2);
    steps_make(FOUND + SECOND + END + 1);
    check_events(FOUND + SECOND, FOUND + SECOND, FOUND + SECOND + END);
    end_host();
    assert_int_equal(times_said("\n   1 h1"), 1);
}

static void another_rank_reports_after_four_seconds(void **state)
{
    enum { TAKEN = FOUND + 4 * SECOND };
    (void)state;

    make_host(1, 2);
    steps_make(TAKEN);
    check_events(-1, -1, -1);
    assert_int_equal(host.questions[0].asked, 0);
    end_host();
    assert_string_equal(stderr_text, ""); /* the first one warns */

    make_host(1, 2);
    steps_make(TAKEN + SECOND + END + 1);
    check_events(TAKEN + SECOND, TAKEN + SECOND, TAKEN + SECOND + END);
    assert_int_equal(host.questions[0].reporter, 2);
    assert_int_equal(host.questions[0].asked, 1);
    end_host();
}

/* It may be stuck itself. */
static void where_the_one_that_has_it_reports_nothing_the_job_ends_after_eight_seconds(void **state)
{
    enum { ENDED = FOUND + 8 * SECOND };
    (void)state;

    make_host(0, 2);
    atomic_store(&host.questions[0].reporter, 2);
    steps_make(ENDED + END + 1);
    check_events(-1, ENDED, ENDED + END);
    assert_int_equal(host.questions[0].asked, 0);
    assert_int_equal(host.questions[0].reporter, 2);
    end_host();
    assert_int_equal(times_said("error"), 0);
}

static void go_on(int check)
{
    if (check == host.event) {
        atomic_fetch_add(&host.marks[0].changes, 1);
    }
}

static void progress_before_a_report_ends_the_hang(void **state)
{
    enum { MOVES = FOUND + 3 };
    (void)state;

    make_host(0, 2);
    steps.after = go_on;
    host.event = MOVES;
    steps_make(MOVES + FOUND + 1);
    check_events(-1, -1, -1);
    assert_int_equal(host.questions[0].reporter, 0);
    assert_int_equal(host.questions[0].asked, 1);
    end_host();
    assert_int_equal(times_said("warning: no progress for 0.5 s"), 2);

    make_host(0, 2);
    steps.after = go_on;
    host.event = MOVES;
    steps_make(MOVES + 1 + FOUND + SECOND + 1); /* and there is another one */
    check_events(MOVES + 1 + FOUND + SECOND, MOVES + 1 + FOUND + SECOND, -1);
    assert_int_equal(host.questions[0].asked, 2);
    end_host();
}

static void what_is_reported_ends_the_job_also_where_ranks_go_on(void **state)
{
    (void)state;

    make_host(0, 1);
    steps.after = go_on;
    host.event = FOUND + 2;
    steps_make(FOUND + SECOND);
    check_events(FOUND + 1, FOUND + SECOND / 2, -1);
    assert_int_equal(host.questions[0].reporter, 1);
    end_host();
    assert_int_equal(host.questions[0].reporter, 1); /* it was told, so that it is kept */
}

static void who_ends_before_its_report_gives_it_back(void **state)
{
    (void)state;

    make_host(0, 2);
    steps_make(FOUND + 3);
    assert_int_equal(host.questions[0].reporter, 1);
    end_host();
    assert_int_equal(host.questions[0].reporter, 0);
}

static void where_waits_have_ended_nothing_is_a_hang(void **state)
{
    (void)state;

    make_host(0, 1);
    atomic_store(&steps.cancel, 1);
    steps_make(20 * SECOND);
    assert_int_equal(steps.calls + steps.aborts, 0);
    assert_int_equal(steps.hung, -1);
    end_host();
    assert_int_equal(times_said("error"), 0);
}

static void tell_ending(int check)
{
    if (check == host.event) {
        dp_launcher_tell_ending(getppid());
    }
}

static void a_hang_that_was_found_before_mpirun_ends_the_job_is_reported(void **state)
{
    (void)state;

    make_host(0, 2);
    steps.after = tell_ending;
    host.event = FOUND;
    steps_make(FOUND + SECOND + 1);
    check_events(FOUND + SECOND, FOUND + SECOND, -1);
    end_host();
}

static void nothing_is_a_hang_once_mpirun_ends_the_job(void **state)
{
    (void)state;

    make_host(0, 2);
    steps.after = tell_ending;
    host.event = FOUND - 1;
    steps_make(20 * SECOND);
    check_events(-1, -1, -1);
    end_host();
}

static void note_end(int check)
{
    if (check == host.event) {
        atomic_store(&host.questions[0].ended, 1);
    }
}

static void for_a_minute_after_a_death_elsewhere_nothing_is_a_hang(void **state)
{
    enum { AGAIN = FOUND + 3 + 60 * SECOND }; /* a minute after it was known */
    (void)state;

    make_host(0, 2);
    steps.after = note_end;
    host.event = FOUND + 2;
    steps_make(AGAIN);
    check_events(-1, -1, -1);
    assert_int_equal(steps.ends, FOUND + 3);
    assert_int_equal(host.questions[0].asked, 1);
    end_host();

    make_host(0, 2);
    steps.after = note_end;
    host.event = FOUND + 2;
    steps_make(AGAIN + SECOND + 1);
    check_events(AGAIN + SECOND, AGAIN + SECOND, -1);
    assert_int_equal(host.questions[0].asked, 2);
    end_host();
}

/* ---- with other hosts ---- */

static void rows_of_other_hosts_have_two_and_a_half_seconds(void **state)
{
    enum { LAST = FOUND + 5 * SECOND / 2 };
    (void)state;

    make_host(0, 1);
    steps.config.gather = &others;
    others.reports = 0;
    steps_make(LAST + 1);
    check_events(LAST, LAST, -1);
    assert_int_equal(others.put_rows, 1);
    assert_int_equal(others.puts, LAST - FOUND); /* each time, also if they have changed */
    assert_int_equal(others.told[DP_HANG_REPORT], LAST);
    assert_int_equal(others.told_before_hook, 1);
    end_host();
    assert_int_equal(times_said("\n   2 h2"), 1); /* in the table */

    make_host(0, 1);
    steps.config.gather = &others;
    others.reports = 0;
    others.complete = FOUND + 3;
    steps_make(LAST);
    check_events(FOUND + 3, FOUND + SECOND / 2, -1);
    end_host();
}

static void where_another_host_is_to_report_this_one_does_after_four_seconds(void **state)
{
    enum { TAKEN = FOUND + 4 * SECOND };
    (void)state;

    make_host(0, 1);
    steps.config.gather = &others;
    others.complete = 0;
    steps_make(TAKEN + END + 1);
    check_events(TAKEN, TAKEN, TAKEN + END); /* three seconds to end by itself */
    assert_int_equal(others.tells[DP_HANG_REPORT], 1);
    end_host();
}

static void where_another_host_has_reported_the_job_ends_after_eight_seconds(void **state)
{
    (void)state;

    make_host(0, 1);
    steps.config.gather = &others;
    others.complete = 0;
    others.knows_hang = FOUND + SECOND;
    steps_make(FOUND + 8 * SECOND + 1);
    check_events(-1, FOUND + 8 * SECOND, -1);
    assert_int_equal(others.told[DP_HANG_REPORT], -1);
    end_host();
}

static void a_hang_that_another_host_tells_of_is_one(void **state)
{
    (void)state;

    make_host(0, 1);
    steps.config.gather = &others;
    others.hang = 4;
    others.reports = others.complete = 0;
    steps_make(FOUND);
    check_events(5, 4 + SECOND / 2, -1);
    assert_true(others.gave[0]);
    end_host();

    make_host(1, 2); /* the first one gives rows, unless this one has the report */
    steps.config.gather = &others;
    others.hang = 4;
    steps_make(4 + 4 * SECOND + 2);
    assert_false(others.gave[0]);
    assert_false(others.gave[4 + 4 * SECOND]);
    assert_true(others.gave[4 + 4 * SECOND + 1]);
    end_host();
}

static void a_death_that_another_host_tells_of_is_known_to_all_of_this_one(void **state)
{
    (void)state;

    make_host(1, 2);
    steps.config.gather = &others;
    others.knows_death = 3;
    steps_make(20 * SECOND);
    check_events(-1, -1, -1);
    assert_int_equal(steps.ends, 3);
    assert_int_equal(host.questions[0].ended, 0);
    assert_int_equal(host.questions[1].ended, 1);
    end_host();
}

static void a_death_on_this_host_is_told_to_others_by_who_reports_it(void **state)
{
    (void)state;

    for (int reports = 0; reports < 2; reports++) {
        for (int silent = 0; silent < 2; silent++) {
            make_host(0, 1);
            steps.config.gather = &others;
            steps.lost_from = 2;
            steps.loss = (struct dp_loss){
                .rank = 3, .reports = reports != 0, .host = "h2", .silent_s = silent};
            steps_make(20);
            assert_int_equal(steps.cancelled, 2 + SECOND / 2);
            assert_int_equal(others.told[DP_HANG_DEATH],
                             reports != 0 && silent == 0 ? 2 + SECOND / 2 : -1);
            assert_int_equal(others.told[DP_HANG_REPORT], -1);
            end_host();
            assert_int_equal(times_said("no progress"), 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_alone_reports_once_it_knows_its_stacks),
        cmocka_unit_test(ranks_have_a_second_to_say_where_they_are),
        cmocka_unit_test(another_rank_reports_after_four_seconds),
        cmocka_unit_test(
            where_the_one_that_has_it_reports_nothing_the_job_ends_after_eight_seconds),
        cmocka_unit_test(progress_before_a_report_ends_the_hang),
        cmocka_unit_test(what_is_reported_ends_the_job_also_where_ranks_go_on),
        cmocka_unit_test(who_ends_before_its_report_gives_it_back),
        cmocka_unit_test(where_waits_have_ended_nothing_is_a_hang),
        cmocka_unit_test(a_hang_that_was_found_before_mpirun_ends_the_job_is_reported),
        cmocka_unit_test(nothing_is_a_hang_once_mpirun_ends_the_job),
        cmocka_unit_test(for_a_minute_after_a_death_elsewhere_nothing_is_a_hang),
        cmocka_unit_test(rows_of_other_hosts_have_two_and_a_half_seconds),
        cmocka_unit_test(where_another_host_is_to_report_this_one_does_after_four_seconds),
        cmocka_unit_test(where_another_host_has_reported_the_job_ends_after_eight_seconds),
        cmocka_unit_test(a_hang_that_another_host_tells_of_is_one),
        cmocka_unit_test(a_death_that_another_host_tells_of_is_known_to_all_of_this_one),
        cmocka_unit_test(a_death_on_this_host_is_told_to_others_by_who_reports_it),
    };

    return run_at_once(tests, sizeof(tests) / sizeof(tests[0]));
}
