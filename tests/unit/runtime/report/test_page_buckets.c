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
#include "runtime/report/page/page_timeline.h"
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

/* Layers that took so long when each was timed by itself. */
static void fill_layers(double forward, double backward)
{
    assert_int_equal(dp_run_summary_resize(&summary, DP_TABLE_LAYERS, 3), DP_OK);
    for (int i = 0; i < 3; i++) {
        struct dp_run_layer *layer = &summary.layers[i];
        (void)snprintf(layer->name, sizeof(layer->name), "<%d>", i);
        (void)snprintf(layer->kind, sizeof(layer->kind), "dense");
        layer->forward_ms = i * forward;
        layer->backward_ms = i == 0 ? 0.01 * backward : backward;
    }
}

static void bars_are_in_proportion_to_the_step(void **state)
{
    (void)state;

    fill(2);
    dp_page_timeline(&html, &summary);
    assert_int_equal(count_of("class=\"forward\" style=\"left:0.00%;width:25.00%\""), 1);
    assert_int_equal(count_of("class=\"backward\" style=\"left:25.00%;width:35.00%\""), 1);
    assert_int_equal(count_of("class=\"queued\" style=\"left:50.00%;width:5.00%\""), 1);
    assert_int_equal(count_of("class=\"queued\" style=\"left:55.00%;width:5.00%\""), 1);
    assert_int_equal(count_of("class=\"shared\" style=\"left:55.00%;width:15.00%\""), 1);
    assert_int_equal(count_of("the step waits 2.00 ms for it"), 2);
    assert_int_equal(count_of("<b style=\"left:25.00%\">5</b>"), 1); /* the axis */
    assert_int_equal(count_of(" layer\""), 0);                       /* they were not timed */
    dp_page_buckets(&html, &summary);
    assert_int_equal(count_of("<caption>"), 2); /* buckets, and who comes late */
    assert_int_equal(count_of("<td>100.0 %</td><td>1.50</td>"), 1);
}

/* Forward in order, and backward in reverse, each layer with its share of the step's. */
static void layers_share_forward_and_backward_of_the_step(void **state)
{
    (void)state;

    fill(1);
    fill_layers(2.0, 10.0); /* 0, 2 and 4 of 5 ms; 0.1, 10 and 10 of 7 ms */
    dp_page_timeline(&html, &summary);
    assert_int_equal(count_of("layer\" style"), 2 + 3);
    assert_int_equal(count_of("class=\"forward layer\" style=\"left:0.00%;width:8.33%\" "
                              "title=\"&lt;1&gt; (dense): forward 1.67 ms\">dense &lt;1&gt;</i>"),
                     1);
    assert_int_equal(count_of("class=\"forward layer\" style=\"left:8.33%;width:16.67%\""), 1);
    assert_int_equal(count_of("class=\"backward layer\" style=\"left:25.00%;width:17.41%\" "
                              "title=\"&lt;2&gt; (dense): backward 3.48 ms\""),
                     1);
    assert_int_equal(count_of("class=\"backward layer\" style=\"left:42.41%;width:17.41%\""), 1);
    assert_int_equal(count_of("title=\"&lt;0&gt; (dense): backward 0.035 ms\"></i>"), 1);
    assert_int_equal(count_of("timed by itself"), 1);
}

static void a_bucket_that_ends_in_the_next_step_widens_the_timeline(void **state)
{
    (void)state;

    fill(1);
    summary.buckets[0].done_ms = 40.0;
    dp_page_timeline(&html, &summary);
    assert_int_equal(count_of("class=\"forward\" style=\"left:0.00%;width:12.50%\""), 1);
    assert_int_equal(count_of("left:25.00%;width:2.50%"), 1);
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
    dp_page_timeline(&html, &summary);
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
    fill_layers((double)NAN, 1e300);
    (void)snprintf(summary.stragglers[0].host, sizeof(summary.stragglers[0].host), "%s",
                   "</td><script>\x1b[31m");
    dp_page_timeline(&html, &summary);
    summary.buckets[3].done_ms = 20.0;
    fill_layers((double)INFINITY, -1.0);
    (void)snprintf(summary.layers[1].name, sizeof(summary.layers[1].name), "<script>\x1b[31m");
    dp_page_timeline(&html, &summary);
    fill_layers(1e-300, 1e-300);
    dp_page_timeline(&html, &summary);
    dp_page_buckets(&html, &summary);
    assert_int_equal(count_of("<script>"), 0);
    assert_int_equal(count_of("\x1b"), 0);
    assert_null(strstr(html.text, "nan"));
    assert_null(strstr(html.text, "inf"));
}

static void without_buckets_the_page_says_so(void **state)
{
    (void)state;

    dp_page_timeline(&html, &summary);
    dp_page_buckets(&html, &summary);
    assert_int_equal(count_of("known when"), 2);
    assert_int_equal(count_of("<table>"), 0);
}

#define WITH_SUMMARY(test) cmocka_unit_test_setup_teardown(test, with_summary, without_summary)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SUMMARY(bars_are_in_proportion_to_the_step),
        WITH_SUMMARY(layers_share_forward_and_backward_of_the_step),
        WITH_SUMMARY(a_bucket_that_ends_in_the_next_step_widens_the_timeline),
        WITH_SUMMARY(factors_of_efficiency_are_named),
        WITH_SUMMARY(more_buckets_than_fit_are_counted),
        WITH_SUMMARY(any_values_and_texts_stand),
        WITH_SUMMARY(without_buckets_the_page_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
