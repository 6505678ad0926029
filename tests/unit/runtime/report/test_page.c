/* test_page.c - report.html: texts from outside stay texts, and it has the figures. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/report/figure_text.h"
#include "runtime/report/files/report_writer.h"
#include "runtime/report/page/chart.h"
#include "runtime/report/page/page.h"
#include "tests/support/scratch.h"

static char page[1 << 20];

static void write_text(const char *name, const char *text)
{
    scratch_write(scratch_path(name), text, strlen(text));
}

static void write_page(void)
{
    dp_report_write_now(scratch_folder, true, NULL);
    assert_true(scratch_read(scratch_path("report.html"), page, sizeof(page)) > 0);
    assert_null(strstr(page, "{{"));
}

static dp_status create_writer(struct dp_report_writer **out)
{
    return dp_report_writer_create(
        &(struct dp_report_writer_config){.folder = scratch_folder, .html = true}, out);
}

static int count_of(const char *what)
{
    int count = 0;

    for (const char *at = page; (at = strstr(at, what)) != NULL; at++) {
        count++;
    }
    return count;
}

static void texts_are_escaped(void **state)
{
    struct dp_html html = {0};
    (void)state;

    dp_html_text(&html, "a<b>&\"'\x1b[1m\n\xe2\x80\xae\xf0\x9f\x98\x80\xff");
    assert_string_equal(html.text, "a&lt;b&gt;&amp;&quot;&#39;\\x1b[1m\\n\\u202e\xf0\x9f\x98\x80"
                                   "\\xff");
    html.used = 0;
    dp_html_lines(&html, "a\n\t<\r");
    assert_string_equal(html.text, "a\n\t&lt;\\r");
    html.used = 0;
    dp_html_text(&html, NULL);
    assert_int_equal(html.used, 0);
    dp_html_free(&html);
    assert_int_equal(dp_mem_live(), 0);
}

#define EVIL "</title></script><script>alert(1)</script>\\u001b[31m\\\"'><img src=x>&amp;"

/* Every text that a run.json may have, and the other files. */
static void hostile_texts_are_shown_as_texts(void **state)
{
    (void)state;

    write_text("run.json",
               "{\"name\":\"" EVIL "\",\"reason\":\"" EVIL "\",\"verdict\":\"" EVIL "\","
               "\"device\":\"" EVIL "\",\"plan\":\"" EVIL "\",\"version\":\"" EVIL "\","
               "\"" EVIL "\":{\"" EVIL "\":[\"" EVIL
               "\",{}]},\"verdict_detail\":{\"action\":\"" EVIL
               "\",\"predicted_samples_per_second\":6900},\"ranks\":[{\"rank\":0,\"host\":\"" EVIL
               "\",\"cpus\":\"" EVIL "\",\"step_ms\":{\"forward\":1e308,\"input\":-3,"
               "\"copy\":\"" EVIL "\",\"other\":2}}]}");
    write_text("config.yaml", "name: </pre><script>alert(1)</script>\x1b[31m\n");
    write_page();
    assert_int_equal(count_of("<script>"), 1); /* the page's own */
    assert_int_equal(count_of("<img"), 0);
    assert_int_equal(count_of("\x1b"), 0);
    assert_int_equal(count_of("</title>"), 1);
    assert_int_equal(count_of("</pre>"), 1);
    assert_true(count_of("&lt;script&gt;alert(1)") > 10);
    assert_non_null(strstr(page, "would give 6,900 samples/s</p>"));
    assert_null(strstr(page, "nan"));
}

static void a_number_that_vanishes_has_no_sign(void **state)
{
    char text[DP_FIGURE_BYTES];
    (void)state;

    assert_string_equal(dp_figure_fixed(text, -0.04, 1, " %"), "0.0 %");
    assert_string_equal(dp_figure_fixed(text, -0.06, 1, " %"), "-0.1 %");
    assert_string_equal(dp_figure_fixed(text, -0.4, 0, ""), "0");
}

static void a_loss_of_any_size_is_printed(void **state)
{
    char text[DP_FIGURE_BYTES];
    (void)state;

    assert_string_equal(dp_figure_number(text, DP_REPORT_LOSS, 2.30258), "2.3026");
    assert_string_equal(dp_figure_number(text, DP_REPORT_LOSS, 4.8727e22), "4.873e+22");
    assert_string_equal(dp_figure_number(text, DP_REPORT_LOSS, (double)NAN), "-");
}

/* A title has said that it stopped, and when. */
static void the_cause_of_a_stop_is_said_once(void **state)
{
    (void)state;
    assert_string_equal(dp_figure_cause("stopped after step 9: SIGTERM on rank 0 (h)"),
                        "SIGTERM on rank 0 (h)");
    assert_string_equal(dp_figure_cause("rank 1 has died"), "rank 1 has died");
    assert_string_equal(dp_figure_cause("stopped after step 9"), "stopped after step 9");
    assert_string_equal(dp_figure_cause(NULL), "");
}

static void dollars_are_no_powers_of_ten(void **state)
{
    char text[DP_FIGURE_BYTES];
    (void)state;

    assert_string_equal(dp_figure_dollars(text, 1e-5), "under $0.0001");
    assert_string_equal(dp_figure_dollars(text, 0.00042), "$0.00042");
    assert_string_equal(dp_figure_dollars(text, 0.00796), "$0.0080"); /* as exact as the others */
    assert_string_equal(dp_figure_dollars(text, 12.345), "$12.35");
    assert_string_equal(dp_figure_dollars(text, 0.0), "$0.00");
    assert_string_equal(dp_figure_dollars(text, (double)NAN), "-");
}

static const char whole[] =
    "{\"name\":\"lenet\",\"exit\":\"finished\",\"steps\":470,\"world_size\":2,"
    "\"samples_per_second\":2012.5,\"single_rank_samples_per_second\":1050,"
    "\"scaling_efficiency\":0.9583,\"samples_per_dollar\":1e6,\"final\":{\"test_accuracy\":0.9012},"
    "\"verdict\":\"launch-bound: calls; --set a=1 would give 4,025 samples/s (+100 %)\","
    "\"verdict_detail\":{\"evidence\":\"calls\",\"action\":\"--set a=1\","
    "\"predicted_samples_per_second\":4025},\"ranks\":["
    "{\"rank\":0,\"host\":\"n0\",\"step_ms\":{\"input\":1,\"forward\":3,\"backward\":6}},"
    "{\"rank\":1,\"host\":\"n1\",\"step_ms\":{\"input\":1,\"forward\":1,\"backward\":3}}]}";

/* 256 ranks of a run that ended before its first step, whose losses were no numbers. */
static void a_page_of_many_ranks_without_steps_and_losses(void **state)
{
    static char text[1 << 15];
    size_t used = 0;
    (void)state;

    used += (size_t)snprintf(text, sizeof(text),
                             "{\"name\":\"\xf0\x9f\x98\x80\",\"exit\":\"diverged\",\"steps\":0,"
                             "\"world_size\":256,\"samples_per_second\":null,\"ranks\":[");
    for (int i = 0; i < 256; i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used,
                                 "%s{\"rank\":%d,\"host\":\"node%d\",\"step_ms\":{\"forward\":0}}",
                                 i > 0 ? "," : "", i, i / 8);
    }
    (void)snprintf(text + used, sizeof(text) - used, "]}");
    write_text("run.json", text);
    write_text("metrics.jsonl", "{\"type\":\"start\",\"time\":1,\"steps\":470}\n"
                                "{\"type\":\"step\",\"step\":1,\"loss\":NaN}\n"
                                "{\"type\":\"step\",\"step\":2,\"loss\":null}\n"
                                "{\"type\":\"end\",\"time\":2}\n");
    write_page();
    assert_non_null(strstr(page, "\xf0\x9f\x98\x80: diverged"));
    assert_non_null(strstr(page, "node31"));
    assert_non_null(strstr(page, "on 256 ranks"));
    assert_true(count_of("node0") >= 8);
    assert_null(strstr(page, "nan"));
    assert_null(strstr(page, "inf%"));
}

static void a_unit_fits_its_number(void **state)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {474800, "475 kB/s"},   {8034000, "8.03 MB/s"}, {0, "0 B/s"},
        {9.996, "10.0 B/s"},    {999.6, "1.00 kB/s"},   {123456789012345.0, "123 TB/s"},
        {12.34e9, "12.3 GB/s"}, {(double)NAN, "-"},     {(double)INFINITY, "-"},
    };
    char text[DP_FIGURE_BYTES];
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_string_equal(dp_figure_unit(text, cases[i].value, "B/s"), cases[i].text);
    }
}

static void the_page_of_a_run_has_its_figures(void **state)
{
    (void)state;

    write_text("run.json", whole);
    write_text("metrics.jsonl",
               "{\"type\":\"start\",\"time\":1,\"name\":\"lenet\",\"steps\":470}\n"
               "{\"type\":\"step\",\"step\":1,\"loss\":2.5,\"step_ms\":2,"
               "\"samples_per_second\":100}\n"
               "{\"type\":\"step\",\"step\":2,\"loss\":null}\n"
               "{\"type\":\"step\",\"step\":3,\"loss\":1.5,\"step_ms\":2,"
               "\"samples_per_second\":200}\n"
               "{\"type\":\"eval\",\"step\":3,\"test_loss\":1.25,\"test_accuracy\":0.75}\n"
               "{\"type\":\"end\",\"time\":2}\n");
    write_page();
    assert_non_null(strstr(page, "<title>lenet: finished - Lockstep</title>"));
    assert_non_null(strstr(page, "<dd>95.8 %</dd>"));
    assert_non_null(strstr(page, "<dd>2,012</dd>"));
    assert_non_null(strstr(page, "<dd>1,000,000</dd>"));
    assert_non_null(strstr(page, "<dd>90.12 %</dd>"));
    assert_non_null(strstr(page, "<strong>Verdict:</strong> launch-bound: calls</p>"));
    assert_non_null(strstr(page, "<strong>Next:</strong> <code>--set a=1</code> would give 4,025 "
                                 "samples/s (+100 %)</p>"));
    /* Bars are in proportion to the longest step, 10 ms. */
    assert_non_null(strstr(page, "class=\"forward\" style=\"width:30.00%\""));
    assert_non_null(strstr(page, "class=\"backward\" style=\"width:30.00%\""));
    /* A step whose loss is no number is a gap: two parts of the line, and no value. */
    assert_non_null(strstr(page, "[[\"train\",[1,3],[2.5,1.5]],[\"test\",[3],[1.25]]]"));
    assert_non_null(strstr(page, "from 2.500 to 1.500"));
    assert_null(strstr(page, "http-equiv=\"refresh\""));
    assert_null(strstr(page, "href=\"http"));
    assert_null(strstr(page, "src=\"http"));
}

static void the_use_of_gpus_is_a_table_where_there_are_some(void **state)
{
    (void)state;

    write_text("run.json", whole);
    write_page();
    assert_null(strstr(page, "Use of GPUs"));
    write_text("run.json",
               "{\"name\":\"a\",\"exit\":\"finished\",\"world_size\":2,\"utilisation\":"
               "{\"gpu\":0.9,\"joules_per_sample\":0.09174},\"ranks\":[{\"rank\":0,\"utilisation\":"
               "{\"gpu\":0.943,\"gpu_mhz\":1980,\"gpu_throttled\":0.25,\"gpu_throttle\":"
               "\"power <cap>\",\"gpu_watts\":598.7,\"gpu_joules\":4321,"
               "\"gpu_memory\":1073741824}},{\"rank\":1}]}");
    write_page();
    assert_non_null(strstr(page, "read: 0.09174 J</caption>"));
    assert_non_null(strstr(page, "<th scope=\"row\">0</th><td>94.3 %</td><td>1980 MHz</td>"
                                 "<td>25.0 %: power &lt;cap&gt;</td><td>599 W</td><td>4.32 kJ</td>"
                                 "<td>1.0 GiB</td>"));
    assert_non_null(strstr(page, "<th scope=\"row\">1</th><td>-</td><td>-</td><td>-</td>"
                                 "<td>-</td><td>-</td><td>-</td>"));
}

static void a_run_without_right_answers_shows_its_error(void **state)
{
    (void)state;

    write_text("metrics.jsonl",
               "{\"type\":\"start\",\"time\":1,\"name\":\"plane\",\"steps\":4}\n"
               "{\"type\":\"step\",\"step\":1,\"loss\":2.5,\"step_ms\":2}\n"
               "{\"type\":\"eval\",\"step\":1,\"test_loss\":1.25,\"test_accuracy\":null,"
               "\"test_mean_absolute_error\":0.625}\n");
    write_page();
    assert_non_null(strstr(page, "test mean absolute error</dt><dd>0.6250</dd>"));
    assert_non_null(strstr(page, "<th scope=\"col\">test mean absolute error</th>"));
    assert_non_null(strstr(page, "[[\"mean error\",[1],[0.625]]]"));
    assert_null(strstr(page, "accuracy<"));
}

static void the_page_of_a_run_that_goes_on_reloads_itself(void **state)
{
    struct dp_report_writer *writer = NULL;
    (void)state;

    write_text("metrics.jsonl", "{\"type\":\"start\",\"name\":\"x\",\"steps\":9}\n");
    assert_int_equal(create_writer(&writer), DP_OK);
    dp_report_writer_poll(writer);
    dp_report_writer_poll(writer); /* not due */
    dp_report_writer_destroy(writer);
    assert_true(scratch_read(scratch_path("report.html"), page, sizeof(page)) > 0);
    assert_non_null(strstr(page, "http-equiv=\"refresh\" content=\"10\""));
    assert_non_null(strstr(page, "<strong>running</strong> after 0 of 9 steps"));

    write_text("run.json", whole);
    assert_int_equal(create_writer(&writer), DP_OK);
    dp_report_writer_finish(writer);
    dp_report_writer_destroy(writer);
    assert_true(scratch_read(scratch_path("report.html"), page, sizeof(page)) > 0);
    assert_null(strstr(page, "http-equiv=\"refresh\""));
    assert_int_equal(dp_mem_live(), 0);
}

/* The failure detector writes run.json and the page of a run that hung; a page that was begun
 * before must not take its place. */
static void a_late_page_is_that_of_the_ended_run(void **state)
{
    struct dp_report_writer *writer = NULL;
    (void)state;

    write_text("run.json", whole);
    assert_int_equal(create_writer(&writer), DP_OK);
    dp_report_writer_poll(writer);
    dp_report_writer_destroy(writer);
    assert_true(scratch_read(scratch_path("report.html"), page, sizeof(page)) > 0);
    assert_null(strstr(page, "http-equiv=\"refresh\""));
}

/* Its process may be stopped in the midst of it, and end before it can write the page again. */
static void a_page_begun_before_the_end_is_dropped(void **state)
{
    struct dp_run_record *record = NULL;
    struct stat info;
    (void)state;

    write_text("run.json", whole);
    assert_int_equal(dp_run_record_create(scratch_folder, &record), DP_OK);
    assert_int_equal(dp_run_record_update(record, true), DP_OK);
    assert_int_equal(dp_page_write(record, NULL), DP_OK);
    assert_int_not_equal(stat(scratch_path("report.html"), &info), 0);
    assert_int_equal(unlink(scratch_path("run.json")), 0);
    assert_int_equal(dp_page_write(record, NULL), DP_OK);
    assert_int_equal(stat(scratch_path("report.html"), &info), 0);
    dp_run_record_close(record);
}

/* A page that cannot be written ends nothing, and is reported once. */
static void a_page_that_cannot_be_written_is_a_warning(void **state)
{
    const int errors = dp_log_errors();
    (void)state;

    write_text("run.json", whole);
    assert_int_equal(mkdir(scratch_path("report.html"), 0777), 0);
    dp_log_set_level(DP_LOG_NONE);
    dp_report_write_now(scratch_folder, true, NULL);
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(dp_log_errors(), errors);
}

static void axes_have_round_numbers(void **state)
{
    (void)state;

    assert_true(fabs(dp_chart_step(10.0, 5) - 2.0) < 1e-12);
    assert_true(fabs(dp_chart_step(0.9, 5) - 0.2) < 1e-12);
    assert_true(fabs(dp_chart_step(1234.0, 5) - 500.0) < 1e-9);
    assert_true(fabs(dp_chart_step(1e-7, 5) - 2e-8) < 1e-20);
}

/* There is room for six characters. */
static void labels_of_axes_fit_beside_them(void **state)
{
    static const char *const labels[][2] = {{">50,000<", ">0<"},
                                            {">150k<", ">50k<"},
                                            {">1500k<", ">500k<"},
                                            {">15M<", ">5M<"},
                                            {">1000.20<", ">1000.00<"}};
    const double x[] = {100, 120000}, from[] = {0, 0, 0, 0, 1000},
                 to[] = {48000, 115000, 1150000, 11500000, 1000.19};
    (void)state;

    for (int i = 0; i < 5; i++) {
        const double y[] = {from[i], to[i]};
        const struct dp_chart chart = {.id = "c",
                                       .title = "t",
                                       .unit = "",
                                       .summary = "",
                                       .series = {{"s", x, y, 2, false}},
                                       .series_count = 1};
        struct dp_html html = {0};
        dp_chart_add(&html, &chart);
        assert_non_null(strstr(html.text, labels[i][0]));
        assert_non_null(strstr(html.text, labels[i][1]));
        assert_non_null(strstr(html.text, ">100k<")); /* of the steps */
        dp_html_free(&html);
    }
}

static void charts_stand_any_values(void **state)
{
    const double x[] = {1, 2, 3, 4}, flat[] = {0, 0, 0, 0},
                 odd[] = {(double)NAN, 1e300, -1e14, (double)INFINITY};
    const struct dp_chart charts[] = {
        {"c", "t", "", "s", false, {{"a", x, flat, 4, false}}, 1, NULL, 0.0, 0.0},
        {"c", "t", "", "s", true, {{"a", x, odd, 4, true}}, 1, NULL, 0.0, 0.0},
        {"c", "t", "", "s", true, {{"a", x, odd, 1, true}}, 1, NULL, 0.0, 0.0},
        {"c", "t", "", "s", true, {{"a", x, flat, 0, true}}, 1, NULL, 0.0, 0.0},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(charts) / sizeof(charts[0]); i++) {
        struct dp_html html = {0};
        dp_chart_add(&html, &charts[i]);
        assert_int_equal(strstr(html.text, "<svg") != NULL, i < 2);
        assert_int_equal(strstr(html.text, "no values yet") != NULL, i >= 2);
        assert_null(strstr(html.text, "nan"));
        assert_null(strstr(html.text, "inf"));
        dp_html_free(&html);
    }
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, scratch_create, scratch_destroy)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_escaped),
        cmocka_unit_test(a_number_that_vanishes_has_no_sign),
        cmocka_unit_test(a_loss_of_any_size_is_printed),
        cmocka_unit_test(the_cause_of_a_stop_is_said_once),
        cmocka_unit_test(dollars_are_no_powers_of_ten),
        cmocka_unit_test(a_unit_fits_its_number),
        WITH_FOLDER(hostile_texts_are_shown_as_texts),
        WITH_FOLDER(a_page_of_many_ranks_without_steps_and_losses),
        WITH_FOLDER(the_page_of_a_run_has_its_figures),
        WITH_FOLDER(the_use_of_gpus_is_a_table_where_there_are_some),
        WITH_FOLDER(a_run_without_right_answers_shows_its_error),
        WITH_FOLDER(the_page_of_a_run_that_goes_on_reloads_itself),
        WITH_FOLDER(a_late_page_is_that_of_the_ended_run),
        WITH_FOLDER(a_page_begun_before_the_end_is_dropped),
        WITH_FOLDER(a_page_that_cannot_be_written_is_a_warning),
        cmocka_unit_test(axes_have_round_numbers),
        cmocka_unit_test(labels_of_axes_fit_beside_them),
        cmocka_unit_test(charts_stand_any_values),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
