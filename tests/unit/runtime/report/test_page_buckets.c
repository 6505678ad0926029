/* test_page_buckets.c - the timeline of a step: bars in proportion, tables, and whatever a run.json
 * may hold. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "runtime/report/page/page_buckets.h"
#include "runtime/report/summary_read.h"

static struct dp_run_summary summary;
static struct dp_html html;

static int with_summary(void **state)
{
    (void)state;
    dp_run_summary_clear(&summary);
    memset(&html, 0, sizeof(html));
    return 0;
}

static int without_summary(void **state)
{
    (void)state;
    dp_run_summary_release(&summary);
    dp_html_free(&html);
    return dp_mem_live() == 0 ? 0 : -1;
}

/* Two ranks whose mean step takes 20 ms, and so many buckets; bucket i is ready at i + 10 ms. */
static void fill(int buckets)
{
    assert_int_equal(dp_run_summary_resize(&summary, DP_TABLE_RANKS, 2), DP_OK);
    assert_int_equal(dp_run_summary_resize(&summary, DP_TABLE_BUCKETS, buckets), DP_OK);
    assert_int_equal(dp_run_summary_resize(&summary, DP_TABLE_STRAGGLERS, 2), DP_OK);
    for (int i = 0; i < 2; i++) {
        summary.ranks[i].step_ms[DP_PART_FORWARD] = 5.0;
        summary.ranks[i].step_ms[DP_PART_BACKWARD] = 7.0;
        summary.ranks[i].step_ms[DP_PART_EXPOSED] = 8.0;
        summary.stragglers[i].rank = i;
        summary.stragglers[i].last_at = i;
        summary.stragglers[i].late_ms = 1.5 * i;
    }
    for (int b = 0; b < buckets; b++) {
        struct dp_run_bucket *bucket = &summary.buckets[b];
        bucket->bytes = 1 << 20;
        bucket->ready_ms = b + 10.0;
        bucket->sent_ms = b + 11.0;
        bucket->done_ms = b + 14.0;
        bucket->exposed_ms = 2.0;
        bucket->gbs = 0.35;
        bucket->last_rank = 1;
        bucket->first_rank = 0;
        bucket->spread_ms = 1.5;
    }
}

static int count_of(const char *what)
{
    int count = 0;

    for (const char *at = html.text; (at = strstr(at, what)) != NULL; at++) {
        count++;
    }
    return count;
}

static void bars_are_in_proportion_to_the_step(void **state)
{
    (void)state;

    fill(2);
    dp_page_buckets(&html, &summary);
    assert_int_equal(count_of("class=\"forward\" style=\"width:25.00%\""), 1);
    assert_int_equal(count_of("class=\"backward\" style=\"width:35.00%\""), 1);
    assert_int_equal(count_of("class=\"queued\" style=\"margin-left:50.00%;width:5.00%\""), 1);
    assert_int_equal(count_of("class=\"queued\" style=\"margin-left:55.00%;width:5.00%\""), 1);
    assert_int_equal(count_of("class=\"shared\" style=\"width:15.00%\""), 2);
    assert_int_equal(count_of("the step waits 2.00 ms for it"), 2);
    assert_int_equal(count_of("<caption>"), 2); /* buckets, and who comes late */
    assert_int_equal(count_of("<td>100.0 %</td><td>1.50</td>"), 1);
}

static void a_bucket_that_ends_in_the_next_step_widens_the_timeline(void **state)
{
    (void)state;

    fill(1);
    summary.buckets[0].done_ms = 40.0;
    dp_page_buckets(&html, &summary);
    assert_int_equal(count_of("class=\"forward\" style=\"width:12.50%\""), 1);
    assert_int_equal(count_of("margin-left:25.00%;width:2.50%"), 1);
}

static void factors_of_efficiency_are_named(void **state)
{
    (void)state;

    fill(1);
    summary.world_size = 2;
    summary.scaling_efficiency = 0.72;
    summary.efficiency_input = 0.8;
    summary.efficiency_exposed = 0.9;
    summary.efficiency_other = 1.0;
    dp_page_buckets(&html, &summary);
    assert_int_equal(count_of("efficiency, 72.0 %, is the product"), 1);
    assert_int_equal(count_of("waiting for input 80.0 %, exposed communication 90.0 %, all else"),
                     1);
    assert_int_equal(count_of("contention"), 0); /* which is not known */
}

static void more_buckets_than_fit_are_counted(void **state)
{
    (void)state;

    fill(1000);
    dp_page_buckets(&html, &summary);
    assert_int_equal(count_of("class=\"shared\" style"), DP_PAGE_BUCKETS_MOST);
    assert_int_equal(count_of("936 more buckets are in run.json"), 1);
}

static void any_values_and_texts_stand(void **state)
{
    (void)state;

    fill(4);
    summary.buckets[0].ready_ms = (double)NAN;
    summary.buckets[1].sent_ms = -1e300;
    summary.buckets[2].done_ms = (double)INFINITY;
    summary.buckets[3].done_ms = 1e300;
    (void)snprintf(summary.stragglers[0].host, sizeof(summary.stragglers[0].host), "%s",
                   "</td><script>\x1b[31m");
    dp_page_buckets(&html, &summary);
    assert_int_equal(count_of("<script>"), 0);
    assert_int_equal(count_of("\x1b"), 0);
    assert_null(strstr(html.text, "nan"));
    assert_null(strstr(html.text, "inf"));
}

static void without_buckets_the_page_says_so(void **state)
{
    (void)state;

    dp_page_buckets(&html, &summary);
    assert_int_equal(count_of("known when"), 1);
    assert_int_equal(count_of("<table>"), 0);
}

#define WITH_SUMMARY(test) cmocka_unit_test_setup_teardown(test, with_summary, without_summary)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SUMMARY(bars_are_in_proportion_to_the_step),
        WITH_SUMMARY(a_bucket_that_ends_in_the_next_step_widens_the_timeline),
        WITH_SUMMARY(factors_of_efficiency_are_named),
        WITH_SUMMARY(more_buckets_than_fit_are_counted),
        WITH_SUMMARY(any_values_and_texts_stand),
        WITH_SUMMARY(without_buckets_the_page_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
