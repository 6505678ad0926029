/* test_layers.c - the layers that take longest, and those that are slower than others of their
 * kind, for a terminal and on the page. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "runtime/report/layers/layer_order.h"
#include "runtime/report/layers/layers_table.h"
#include "runtime/report/layers/limits_table.h"
#include "runtime/report/layers/page_layers.h"
#include "runtime/report/summary_read.h"

static struct dp_run_summary summary;
static struct dp_html html;
static char printed[8192];

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

static void set_layer(int i, const char *kind, double ms, double of_limit, const char *path)
{
    struct dp_run_layer *l = &summary.layers[i];

    (void)snprintf(l->name, sizeof(l->name), "%d", i);
    (void)snprintf(l->kind, sizeof(l->kind), "%s", kind);
    (void)snprintf(l->implementation, sizeof(l->implementation), "%s", path);
    l->forward_ms = ms / 4.0;
    l->backward_ms = ms - ms / 4.0;
    l->share = 0.05;
    l->limit = 200.0;
    l->gflops = of_limit * l->limit;
    l->gbs = 10.0;
}

/* Convolutions that take 1, 2 ... ms, all of one path. */
static void fill(int layers)
{
    assert_int_equal(dp_run_summary_resize(&summary, DP_TABLE_RANKS, 1), DP_OK);
    assert_int_equal(dp_run_summary_resize(&summary, DP_TABLE_LAYERS, layers), DP_OK);
    summary.ranks[0].peak_gflops = 250.0;
    summary.ranks[0].copy_gbs = 25.0;
    for (int i = 0; i < layers; i++) {
        set_layer(i, "conv2d", i + 1.0, 0.8, "jit");
    }
}

static void print(void)
{
    FILE *out = fmemopen(printed, sizeof(printed), "w");

    printed[0] = '\0'; /* fmemopen leaves it, where nothing is written */
    assert_non_null(out);
    dp_layers_print(&summary, out);
    (void)fclose(out);
}

static void the_longest_layers_come_first(void **state)
{
    static const int counts[] = {0, 1, 3, DP_LAYERS_SHOWN, DP_LAYERS_SHOWN + 1, 200};
    (void)state;

    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        const int layers = counts[c], most = layers < DP_LAYERS_SHOWN ? layers : DP_LAYERS_SHOWN;
        int order[DP_LAYERS_SHOWN];
        fill(layers);
        for (int i = 0; i < layers; i++) { /* in an order that is neither up nor down */
            summary.layers[i].forward_ms = (i * 7919) % 1009;
            summary.layers[i].backward_ms = 0.0;
        }
        assert_int_equal(dp_layers_longest(&summary, order), most);
        for (int i = 1; i < most; i++) {
            assert_true(dp_layer_ms(&summary.layers[order[i - 1]]) >=
                        dp_layer_ms(&summary.layers[order[i]]));
        }
        for (int i = 0, longer = 0; most > 0 && i < layers; i++) {
            longer +=
                dp_layer_ms(&summary.layers[i]) > dp_layer_ms(&summary.layers[order[most - 1]]);
            assert_true(longer < most);
        }
    }
}

static void a_tiny_speed_stays_in_its_column(void **state)
{
    (void)state;

    fill(1);
    summary.layers[0].gflops = 0.005538;
    print();
    assert_non_null(strstr(printed, "    < 0.1 "));
    summary.layers[0].gflops = 0.0; /* a copy, say */
    print();
    assert_non_null(strstr(printed, "        - "));
}

static void what_was_not_timed_is_left_out(void **state)
{
    int order[DP_LAYERS_SHOWN];
    (void)state;

    fill(3);
    summary.layers[1].forward_ms = (double)NAN;
    assert_int_equal(dp_layers_longest(&summary, order), 2);
    assert_int_equal(order[0], 2);
    assert_int_equal(order[1], 0);
    assert_true(isnan(dp_layer_of_limit(&(struct dp_run_layer){.limit = 0.0, .gflops = 0.0})));
}

static void a_slow_path_is_one_that_all_of_the_kind_beat(void **state)
{
    int other = -1;
    (void)state;

    fill(4);
    for (int i = 0; i < 4; i++) { /* of one path none is slow, however slow it is */
        summary.layers[i].gflops *= i == 2 ? 0.01 : 1.0;
        assert_false(dp_layer_is_slow(&summary, i, &other));
    }
    set_layer(2, "conv2d", 3.0, 0.1, "ref loops");
    assert_true(dp_layer_is_slow(&summary, 2, &other));
    assert_string_equal(summary.layers[other].implementation, "jit");
    assert_false(dp_layer_is_slow(&summary, 0, &other));
    summary.layers[2].share = 0.001; /* it takes no time */
    assert_false(dp_layer_is_slow(&summary, 2, &other));
    set_layer(2, "conv2d", 3.0, 0.25, "ref loops"); /* not so much slower */
    assert_false(dp_layer_is_slow(&summary, 2, &other));
    set_layer(2, "dense", 3.0, 0.1, "ref loops"); /* another kind has other paths */
    assert_false(dp_layer_is_slow(&summary, 2, &other));
    set_layer(2, "conv2d", 3.0, 0.1, "ref loops");
    set_layer(3, "conv2d", 3.0, 0.5, "ref loops"); /* which is not slow in itself */
    assert_false(dp_layer_is_slow(&summary, 2, &other));
    set_layer(3, "conv2d", 3.0, 0.1, "gemm"); /* one path is no better */
    assert_false(dp_layer_is_slow(&summary, 2, &other));
    set_layer(3, "conv2d", 3.0, 0.5, "gemm");
    assert_true(dp_layer_is_slow(&summary, 2, &other));
    summary.verdict_bound = "memory";
    assert_true(dp_layer_is_slow(&summary, 2, &other));
    summary.verdict_bound = "contention"; /* times of single layers tell nothing */
    assert_false(dp_layer_is_slow(&summary, 2, &other));
    summary.verdict_bound = NULL;
}

static void numbers_of_algorithms_make_no_other_path(void **state)
{
    int other = -1;
    (void)state;

    fill(3);
    set_layer(0, "dense", 1.0, 0.5, "cuBLASLt algorithm 55");
    set_layer(1, "dense", 2.0, 0.01, "cuBLASLt algorithm 20; cuBLASLt algorithm 5");
    assert_false(dp_layer_is_slow(&summary, 1, &other));
    set_layer(1, "dense", 2.0, 0.01, "cuBLASLt algorithm 20; own code");
    assert_true(dp_layer_is_slow(&summary, 1, &other));
    set_layer(1, "dense", 2.0, 0.01, "cuBLASLt");
    assert_true(dp_layer_is_slow(&summary, 1, &other));
    set_layer(0, "dense", 1.0, 0.5, "jit:avx512"); /* this one is part of a name */
    set_layer(1, "dense", 2.0, 0.01, "jit:avx2");
    assert_true(dp_layer_is_slow(&summary, 1, &other));
}

static void the_table_fits_a_terminal(void **state)
{
    (void)state;

    fill(0);
    print();
    assert_string_equal(printed, "");
    fill(30);
    (void)snprintf(summary.layers[29].name, sizeof(summary.layers[29].name), "a\x1b[2Jlong.%s",
                   "shortcut.body.shortcut.body");
    set_layer(28, "batchnorm", 29.0, 0.0, "a path that is longer than its column is wide");
    set_layer(27, "conv2d", 28.0, 0.01, "ref loops");
    print();
    assert_null(strchr(printed, '\x1b'));
    assert_non_null(strstr(printed, "... and 20 shorter ones"));
    assert_non_null(strstr(printed,
                           "slow path: layer 27 (conv2d) reaches 1.0 % of its limit by ref "
                           "loops"));
    for (const char *line = printed, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        if (end - line > 80) {
            fail_msg("%.*s", (int)(end - line), line);
        }
    }
}

static int count_of(const char *text)
{
    int count = 0;

    for (const char *at = html.text; (at = strstr(at, text)) != NULL; at++) {
        count++;
    }
    return count;
}

static void the_page_draws_what_computes_and_escapes_names(void **state)
{
    (void)state;

    fill(12);
    set_layer(3, "relu", 40.0, 0.0, "own code"); /* no arithmetic: no dot */
    set_layer(4, "conv2d", 39.0, 0.01, "ref <b>");
    (void)snprintf(summary.layers[5].name, sizeof(summary.layers[5].name), "<script>\"&");
    dp_page_layers(&html, &summary);
    assert_false(html.failed);
    assert_int_equal(count_of("<tr>"), 1 + DP_LAYERS_SHOWN);
    assert_int_equal(count_of("<circle"), 11);
    /* Ten dots are in one place, which has room for a name above it, and one below. */
    assert_int_equal(count_of("\"middle\">conv2d "), 3);
    assert_int_equal(count_of("\"middle\">conv2d 11<") + count_of("\"middle\">conv2d 10<"), 2);
    assert_int_equal(count_of("<script>"), 0);
    assert_int_equal(count_of("<b>"), 0);
    assert_int_equal(count_of("slow path: ref &lt;b&gt;"), 1);
    assert_int_equal(count_of("nan"), 0);
}

static void odd_figures_draw_nothing_wrong(void **state)
{
    static const double odd[] = {0.0, -1.0, (double)NAN, (double)INFINITY, 1e-300, 1e300};
    (void)state;

    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        for (int where = 0; where < 4; where++) {
            fill(2);
            summary.ranks[0].peak_gflops = where == 0 ? odd[i] : 250.0;
            summary.ranks[0].copy_gbs = where == 1 ? odd[i] : 25.0;
            summary.layers[0].gflops = where == 2 ? odd[i] : 100.0;
            summary.layers[0].gbs = where == 3 ? odd[i] : 10.0;
            dp_page_layers(&html, &summary);
            assert_false(html.failed);
            assert_int_equal(count_of("\"nan") + count_of("Lnan") + count_of("inf\"") +
                                 count_of("Linf") + count_of("-nan"),
                             0);
            dp_html_free(&html);
            memset(&html, 0, sizeof(html));
        }
    }
    fill(0);
    dp_page_layers(&html, &summary);
    assert_int_equal(count_of("class=\"none\""), 1);
}

/* The table of limits, printed and as HTML. */
static void parts_stand_next_to_their_limits(void **state)
{
    FILE *file = fmemopen(printed, sizeof(printed), "w");
    struct dp_run_part *part;
    (void)state;

    assert_non_null(file);
    dp_limits_print(&summary, file);
    dp_page_limits(&html, &summary);
    assert_int_equal(ftell(file), 0);
    assert_int_equal(html.used, 0);
    assert_int_equal(dp_run_summary_resize(&summary, DP_TABLE_PARTS, 1), DP_OK);
    part = &summary.parts[0];
    (void)snprintf(part->name, sizeof(part->name), "<b>sum");
    (void)snprintf(part->limit, sizeof(part->limit), "the sum alone");
    part->ms = 8.0;
    part->limit_ms = 2.0;
    part->of_limit = 0.25;
    summary.limits_raised = "peak_gflops";
    dp_limits_print(&summary, file);
    assert_int_equal(fclose(file), 0);
    assert_non_null(strstr(printed, "<b>sum                   8.00     2.00   25.0 %  the sum"));
    assert_non_null(strstr(printed, "limits.peak_gflops: the run itself was faster"));
    dp_page_limits(&html, &summary);
    assert_non_null(strstr(html.text, "&lt;b&gt;sum</th><td>8.00</td><td>2.00</td>"));
    assert_non_null(strstr(html.text, "limits.peak_gflops: the run itself was faster"));
}

static void layers_that_take_longer_alone_are_explained(void **state)
{
    static const char *const names[] = {"forward and backward", "products", "other layers"};
    (void)state;

    assert_int_equal(dp_run_summary_resize(&summary, DP_TABLE_PARTS, 3), DP_OK);
    for (int longer = 0; longer < 2; longer++) {
        FILE *file = fmemopen(printed, sizeof(printed), "w");
        for (int i = 0; i < 3; i++) {
            (void)snprintf(summary.parts[i].name, sizeof(summary.parts[i].name), "%s", names[i]);
            summary.parts[i].ms = i == 0 ? 10.0 : longer ? 5.5 : 5.0;
        }
        assert_non_null(file);
        dp_limits_print(&summary, file);
        assert_int_equal(fclose(file), 0);
        dp_page_limits(&html, &summary);
        assert_int_equal(strstr(printed, "each layer was timed alone;") != NULL, longer);
        assert_int_equal(count_of("each layer was timed alone;"), longer);
    }
}

#define WITH_SUMMARY(test) cmocka_unit_test_setup_teardown(test, with_summary, without_summary)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SUMMARY(the_longest_layers_come_first),
        WITH_SUMMARY(a_tiny_speed_stays_in_its_column),
        WITH_SUMMARY(what_was_not_timed_is_left_out),
        WITH_SUMMARY(a_slow_path_is_one_that_all_of_the_kind_beat),
        WITH_SUMMARY(numbers_of_algorithms_make_no_other_path),
        WITH_SUMMARY(the_table_fits_a_terminal),
        WITH_SUMMARY(the_page_draws_what_computes_and_escapes_names),
        WITH_SUMMARY(odd_figures_draw_nothing_wrong),
        WITH_SUMMARY(parts_stand_next_to_their_limits),
        WITH_SUMMARY(layers_that_take_longer_alone_are_explained),
    };

    return cmocka_run_group_tests_name("layers", tests, NULL, NULL);
}
