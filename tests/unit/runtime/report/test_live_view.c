/* test_live_view.c - what ddp_top prints of jobs, whatever their names, and however many ranks. */
#define _GNU_SOURCE /* open_memstream */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "runtime/report/live/live_view.h"
#include "runtime/report/summary_read.h"

static void set_rank(struct dp_live_rank *r, const char *job, int rank, int ranks)
{
    struct dp_live *live = &r->live;

    r->process = 1000 + rank;
    r->cores = rank == 0 ? 0.98 : (double)NAN;
    (void)snprintf(live->who.name, sizeof(live->who.name), "small");
    (void)snprintf(live->who.host, sizeof(live->who.host), "here");
    (void)snprintf(live->who.job, sizeof(live->who.job), "%s", job);
    live->who.rank = rank;
    live->who.ranks = ranks;
    live->who.steps = 1000;
    atomic_store(&live->mark.open, 2);
    atomic_store(&live->mark.activity, DP_PHASE_STEP);
    atomic_store(&live->mark.phase, rank == 0 ? DP_PHASE_BACKWARD : DP_PHASE_WAIT);
    atomic_store(&live->mark.step, 40);
    atomic_store(&live->mark.bucket, 3);
    atomic_store(&live->samples_per_second, 2000.0);
    atomic_store(&live->rows_per_second, 500.0);
    atomic_store(&live->exposed, 0.125);
    atomic_store(&live->loss, 0.5);
    atomic_store(&live->batch, 100.0);
    atomic_store(&live->memory, 104857600);
}

static struct dp_live_jobs some_ranks(int count, int ranks)
{
    struct dp_live_jobs jobs = {dp_zalloc((size_t)count, sizeof(*jobs.ranks)), count};

    assert_non_null(jobs.ranks);
    for (int i = 0; i < count; i++) {
        set_rank(&jobs.ranks[i], "one", i, ranks);
    }
    return jobs;
}

/* What is printed; to be freed. */
static char *printed(const struct dp_live_jobs *jobs, const struct dp_run_record *record, int width,
                     int height)
{
    char *text = NULL;
    size_t bytes = 0;
    struct dp_live_view view = {
        .out = open_memstream(&text, &bytes), .width = width, .height = height, .end_line = "\n"};

    assert_non_null(view.out);
    dp_live_view_print(&view, jobs, record);
    assert_int_equal(fclose(view.out), 0);
    return text;
}

static void ranks_of_a_job_are_rows(void **state)
{
    struct dp_live_jobs jobs = some_ranks(2, 4);
    char *text = printed(&jobs, NULL, 80, 0);
    (void)state;

    assert_string_equal(
        text, "small: step 40 of 1000, loss 0.5000, 2,000 samples/s, 0:00:48 left\n"
              "2 of 4 ranks: the others are on other hosts, or another user's\n"
              "rank host       process     step phase       samples/s exposed   cpu    memory\n"
              "   0 here          1000       40 backward          500  12.5 %   98%   100 MiB\n"
              "   1 here          1001       40 wait 3            500  12.5 %     -   100 MiB\n");
    free(text);
    dp_live_jobs_release(&jobs);
}

/* Columns that can be spared go first; those that stay are whole. */
static void a_narrow_terminal_keeps_what_matters(void **state)
{
    struct dp_live_jobs jobs = some_ranks(1, 1);
    char *text = printed(&jobs, NULL, 40, 0);
    (void)state;

    assert_string_equal(text, "small: step 40 of 1000, loss 0.5000,\n"
                              "    2,000 samples/s, 0:00:48 left\n"
                              "rank     step phase       samples/s\n"
                              "   0       40 backward          500\n");
    free(text);
    text = printed(&jobs, NULL, 66, 0);
    assert_non_null(strstr(text, "rank     step phase       samples/s exposed   cpu    memory\n"
                                 "   0       40 backward          500  12.5 %   98%   100 MiB\n"));
    free(text);
    text = printed(&jobs, NULL, 20, 0);
    assert_non_null(strstr(text, "rank samples/s\n   0       500\n"));
    free(text);
    dp_live_jobs_release(&jobs);
}

/* Columns, not bytes or characters: the numbers after a name stay where they are. */
static void wide_and_combining_characters_shift_no_column(void **state)
{
    static const char *const hosts[][2] = {
        {"\u65e5\u672c\u8a9e", "\u65e5\u672c\u8a9e        1000 "},
        {"\u65e5\u672c\u8a9e\u65e5\u672c\u8a9e", "\u65e5\u672c\u8a9e...     1000 "},
        {"\U0001f600 a", "\U0001f600 a          1000 "},
        {"e\u0301\u0301cole", "e\u0301\u0301cole         1000 "},
        {"na\u00efve-and-long", "na\u00efve-a...    1000 "},
    };
    struct dp_live_jobs jobs = some_ranks(1, 1);
    (void)state;

    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        char *text;
        (void)snprintf(jobs.ranks[0].live.who.host, DP_LIVE_TEXT, "%s", hosts[i][0]);
        text = printed(&jobs, NULL, 80, 0);
        if (strstr(text, hosts[i][1]) == NULL) {
            fail_msg("\"%s\" is not in\n%s", hosts[i][1], text);
        }
        free(text);
    }
    dp_live_jobs_release(&jobs);
}

static void jobs_are_apart_and_a_rank_that_stands_still_says_so(void **state)
{
    struct dp_live_jobs jobs = some_ranks(2, 1);
    char *text;
    (void)state;

    set_rank(&jobs.ranks[1], "two", 0, 1);
    jobs.ranks[1].at_ns = 9000000000;
    jobs.ranks[1].still_ns = 2000000000;
    atomic_store(&jobs.ranks[1].live.mark.activity, DP_PHASE_EVALUATE);
    text = printed(&jobs, NULL, 80, 0);
    assert_non_null(strstr(text, "MiB\n\nsmall: step"));
    assert_non_null(strstr(text, " evaluate 7s "));
    free(text);
    dp_live_jobs_release(&jobs);
}

static void odd_names_do_no_harm_and_lines_are_cut(void **state)
{
    struct dp_live_jobs jobs = some_ranks(1, 1);
    char *text;
    (void)state;

    (void)snprintf(jobs.ranks[0].live.who.name, DP_LIVE_TEXT, "%s", "\x1b[2J\xff\n<b>");
    memset(jobs.ranks[0].live.who.folder, 'x', 300);
    text = printed(&jobs, NULL, 40, 0);
    assert_null(strchr(text, '\x1b'));
    assert_non_null(strstr(text, "\\x1b[2J\\xff\\n<b>"));
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1) {
        assert_true(strcspn(line, "\n") <= 40);
    }
    free(text);
    dp_live_jobs_release(&jobs);
}

static void more_ranks_than_lines_are_counted(void **state)
{
    struct dp_live_jobs jobs = some_ranks(256, 256);
    char *text = printed(&jobs, NULL, 80, 24);
    int lines = 0;
    (void)state;

    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++) {
        lines++;
    }
    assert_int_equal(lines, 24);
    assert_non_null(strstr(text, "... and 235 more ranks\n"));
    free(text);
    dp_live_jobs_release(&jobs);
}

static void assert_verdict_fits(const char *text, size_t columns)
{
    const char *line = strstr(text, "verdict: input-bound: 40 % of the step");

    assert_non_null(line);
    assert_non_null(strstr(line, "(+74 %)\n"));
    for (; *line != '\0'; line += strcspn(line, "\n") + 1) {
        assert_true(strcspn(line, "\n") <= columns);
    }
}

/* A verdict is the last thing that one wants to be cut. */
static void a_verdict_takes_the_lines_that_it_needs(void **state)
{
    const struct dp_live_jobs none = {0};
    struct dp_run_record record = {.has_summary = true};
    (void)state;

    dp_run_summary_clear(&record.summary);
    record.summary.verdict = "input-bound: 40 % of the step waits for data; --set data.workers=2 "
                             "would give 6,900 samples/s (+74 %)";
    for (int width = 40; width <= 200; width += 160) {
        char *text = printed(&none, &record, width, 0), copy[1024]; /* gcc thinks text dangles */
        (void)snprintf(copy, sizeof(copy), "%s", text);
        free(text);
        assert_verdict_fits(copy, width < 80 ? 40 : 80);
    }
}

static void without_a_job_it_says_so(void **state)
{
    const struct dp_live_jobs none = {0};
    char *text = printed(&none, NULL, 80, 0);
    (void)state;

    assert_string_equal(text, "no job of yours runs on this host\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_a_job_are_rows),
        cmocka_unit_test(a_narrow_terminal_keeps_what_matters),
        cmocka_unit_test(wide_and_combining_characters_shift_no_column),
        cmocka_unit_test(jobs_are_apart_and_a_rank_that_stands_still_says_so),
        cmocka_unit_test(odd_names_do_no_harm_and_lines_are_cut),
        cmocka_unit_test(more_ranks_than_lines_are_counted),
        cmocka_unit_test(a_verdict_takes_the_lines_that_it_needs),
        cmocka_unit_test(without_a_job_it_says_so),
    };
    return cmocka_run_group_tests_name("live view", tests, NULL, NULL);
}
