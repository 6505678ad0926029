/* test_summary.c - run.json has every documented field, and a table is printed. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "runtime/report/summary_print.h"
#include "tests/support/scratch.h"

static struct dp_run_rank ranks[] = {
    {.rank = 0,
     .threads = 2,
     .host = "node7",
     .cpus = "0-1",
     .samples_per_second = 1006.25,
     .scaling_efficiency = 0.958,
     .compute_efficiency = 0.971,
     .step_ms = {0.5, 0.25, 30, 60, 2, 1, 0, 0.125},
     .hidden_comm_ms = 10.5,
     .peak_rss_bytes = 327155712,
     .peak_device_bytes = 65536},
    {.rank = 1,
     .threads = 1,
     .host = "a-host-with-a-name-longer-than-the-table",
     .samples_per_second = (double)NAN,
     .scaling_efficiency = (double)NAN,
     .compute_efficiency = (double)NAN,
     .step_ms = {(double)NAN},
     .hidden_comm_ms = (double)NAN,
     .peak_rss_bytes = -1,
     .peak_device_bytes = -1},
};

static const char *const classes[] = {"cat", "\"dog\""};
static const uint64_t staleness[] = {5, 0, 15};

static const struct dp_run_summary whole = {
    .schema = DP_SUMMARY_SCHEMA,
    .name = "lenet",
    .version = "0.1.0",
    .started = "2024-05-01T12:00:00Z",
    .exit = DP_RUN_EARLY_STOPPED,
    .reason = "no better test_accuracy",
    .world_size = 2,
    .device = "cpu",
    .precision = "fp32",
    .strategy = "direct",
    .compressor = "none",
    .plan = "3 buckets, 1.0 to 5.3 MiB",
    .global_batch = 256,
    .steps = 705,
    .resumed_from = 120,
    .epochs = 3,
    .samples_per_second = 2012.5,
    .single_rank_samples_per_second = 1050,
    .baseline_source = "measured",
    .baseline_before = 1060,
    .baseline_after = 1040,
    .baseline_spread = 0.019,
    .scaling_efficiency = 0.9583,
    .samples_per_dollar = 1e6,
    .wire_bytes_per_step = 6653184,
    .skipped_steps = 4,
    .skipped_samples = 3,
    .restored = 2,
    .time_to_first_step_s = 0.5,
    .seconds = 93,
    .final_train_loss = 0.25,
    .final_test_loss = 0.28,
    .final_test_accuracy = 0.9012,
    .final_test_top5 = 0.9971,
    .final_test_error = (double)NAN,
    .classes = {classes, 2},
    .staleness = {staleness, 3},
    .verdict = "compute bound",
    .ranks = ranks,
    .rank_count = 2,
};

static struct dp_json *written(const struct dp_run_summary *summary)
{
    static char text[16384];
    struct dp_json *json = NULL;

    assert_int_equal(dp_run_summary_write(summary, scratch_path("run.json")), DP_OK);
    assert_true(scratch_read(scratch_path("run.json"), text, sizeof(text)) > 0);
    assert_int_equal(dp_json_parse(text, strlen(text), "run.json", &json), DP_OK);
    assert_int_equal(scratch_count("."), 1);
    return json;
}

static void assert_text(const struct dp_json *object, const char *key, const char *expected)
{
    const char *text = dp_json_text(dp_json_get(object, key));

    if (text == NULL) {
        fail_msg("%s is missing", key);
    }
    assert_string_equal(text, expected);
}

static void assert_real(const struct dp_json *object, const char *key, double expected)
{
    double value = (double)NAN;

    if (!dp_json_real(dp_json_get(object, key), &value) || value != expected) {
        fail_msg("%s is %g, not %g", key, value, expected);
    }
}

/* There, and null. */
static void assert_null_member(const struct dp_json *object, const char *key)
{
    double value;

    assert_non_null(dp_json_get(object, key));
    assert_null(dp_json_text(dp_json_get(object, key)));
    assert_false(dp_json_real(dp_json_get(object, key), &value));
}

static void run_json_has_every_field(void **state)
{
    struct dp_json *json = written(&whole);
    const struct dp_json *inner;
    double stale = 0.0;
    (void)state;

    assert_text(json, "schema", "lockstep.run/1");
    assert_text(json, "name", "lenet");
    assert_text(json, "exit", "early_stopped");
    assert_text(json, "reason", "no better test_accuracy");
    assert_real(json, "world_size", 2);
    assert_text(json, "device", "cpu");
    assert_text(json, "precision", "fp32");
    assert_text(json, "strategy", "direct");
    assert_text(json, "compressor", "none");
    assert_real(json, "global_batch", 256);
    assert_real(json, "steps", 705);
    assert_real(json, "resumed_from", 120);
    assert_real(json, "epochs", 3);
    assert_real(json, "samples_per_second", 2012.5);
    assert_real(json, "single_rank_samples_per_second", 1050);
    assert_real(json, "scaling_efficiency", 0.9583);
    assert_real(json, "samples_per_dollar", 1e6);
    assert_real(json, "wire_bytes_per_step", 6653184);
    assert_real(json, "skipped_steps", 4);
    assert_int_equal(dp_json_length(dp_json_get(json, "staleness")), 3);
    assert_true(dp_json_real(dp_json_at(dp_json_get(json, "staleness"), 2), &stale) &&
                stale == 15.0);
    assert_real(json, "restored", 2);
    assert_real(json, "skipped_samples", 3);
    assert_int_equal(dp_json_length(dp_json_get(json, "classes")), 2);
    assert_string_equal(dp_json_text(dp_json_at(dp_json_get(json, "classes"), 1)), "\"dog\"");
    assert_real(json, "time_to_first_step_s", 0.5);
    assert_text(json, "verdict", "compute bound");
    inner = dp_json_get(json, "final");
    assert_real(inner, "train_loss", 0.25);
    assert_real(inner, "test_loss", 0.28);
    assert_real(inner, "test_accuracy", 0.9012);
    assert_real(inner, "test_top5_accuracy", 0.9971);
    assert_null_member(inner, "test_mean_absolute_error");
    inner = dp_json_get(json, "baseline");
    assert_text(inner, "source", "measured");
    assert_real(inner, "before", 1060);
    assert_real(inner, "after", 1040);
    assert_real(inner, "spread", 0.019);
    dp_json_destroy(json);
    assert_int_equal(dp_mem_live(), 0);
}

static void every_rank_has_every_field(void **state)
{
    static const char *const parts[] = {"input",        "copy",      "forward",    "backward",
                                        "exposed_comm", "optimizer", "checkpoint", "other"};
    struct dp_json *json = written(&whole);
    const struct dp_json *rank = dp_json_at(dp_json_get(json, "ranks"), 0);
    (void)state;

    assert_int_equal(dp_json_length(dp_json_get(json, "ranks")), 2);
    assert_real(rank, "rank", 0);
    assert_text(rank, "host", "node7");
    assert_text(rank, "cpus", "0-1");
    assert_real(rank, "threads", 2);
    assert_real(rank, "samples_per_second", 1006.25);
    assert_real(rank, "scaling_efficiency", 0.958);
    assert_real(rank, "compute_efficiency", 0.971);
    assert_real(rank, "hidden_comm_ms", 10.5);
    assert_real(rank, "peak_rss_bytes", 327155712);
    assert_real(rank, "peak_device_bytes", 65536);
    assert_int_equal(dp_json_length(dp_json_get(rank, "step_ms")), 8);
    for (int i = 0; i < 8; i++) {
        assert_real(dp_json_get(rank, "step_ms"), parts[i], ranks[0].step_ms[i]);
    }
    rank = dp_json_at(dp_json_get(json, "ranks"), 1);
    assert_null_member(rank, "samples_per_second");
    assert_null_member(rank, "peak_rss_bytes");
    assert_null_member(rank, "peak_device_bytes");
    assert_null_member(dp_json_get(rank, "step_ms"), "input");
    dp_json_destroy(json);
}

static void unknown_values_are_null(void **state)
{
    struct dp_run_summary unknown = {.name = "x",
                                     .exit = DP_RUN_ERROR,
                                     .samples_per_second = (double)NAN,
                                     .samples_per_dollar = (double)NAN,
                                     .wire_bytes_per_step = -1,
                                     .final_train_loss = (double)NAN,
                                     .final_test_loss = (double)INFINITY,
                                     .final_test_accuracy = (double)NAN};
    struct dp_json *json = written(&unknown);
    (void)state;

    assert_text(json, "exit", "error");
    assert_null_member(json, "samples_per_second");
    assert_null_member(json, "samples_per_dollar");
    assert_null_member(json, "wire_bytes_per_step");
    assert_null_member(json, "strategy");
    assert_null_member(json, "verdict");
    assert_null_member(json, "reason");
    assert_null_member(json, "classes");
    assert_null_member(dp_json_get(json, "final"), "test_loss");
    assert_int_equal(dp_json_length(dp_json_get(json, "ranks")), 0);
    dp_json_destroy(json);
}

static void every_exit_has_its_name(void **state)
{
    static const char *const names[] = {"finished", "early_stopped", "stopped",
                                        "diverged", "hung",          "error"};
    (void)state;

    assert_int_equal(DP_RUN_EXIT_COUNT, 6);
    for (int i = 0; i < DP_RUN_EXIT_COUNT; i++) {
        assert_string_equal(dp_run_exit_text((enum dp_run_exit)i), names[i]);
    }
}

static void an_older_run_json_survives_a_failed_write(void **state)
{
    char text[32];
    (void)state;

    scratch_write(scratch_path("run.json"), "old", 3);
    dp_log_set_level(DP_LOG_NONE);
    scratch_limit(100);
    assert_int_equal(dp_run_summary_write(&whole, scratch_path("run.json")), DP_ERR_WRITE);
    scratch_limit(-1);
    assert_int_equal(dp_run_summary_write(&whole, scratch_path("run.json/x")), DP_ERR_WRITE);
    for (int nth = 1; nth <= 2; nth++) {
        dp_mem_fail_nth(nth);
        assert_int_equal(dp_run_summary_write(&whole, scratch_path("run.json")), DP_ERR_NOMEM);
        assert_int_equal(dp_mem_live(), 0);
    }
    dp_mem_fail_nth(0);
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(scratch_count("."), 1);
    assert_int_equal(scratch_read(scratch_path("run.json"), text, sizeof(text)), 3);
}

static void rows_have_a_description_and_one_value(void **state)
{
    const struct dp_report_row *row;
    int rows = 0;
    (void)state;

    for (int i = 0; (row = dp_report_run_row(i)) != NULL; i++, rows++) {
        const char *value = strstr(row->text, "%s");
        assert_true(row->help[0] != '\0');
        assert_int_equal(value != NULL, row->line != DP_LINE_NONE);
        assert_true(value == NULL || strchr(value + 1, '%') == NULL);
        for (int k = 0; k < i; k++) {
            assert_string_not_equal(row->key, dp_report_run_row(k)->key);
        }
    }
    for (int i = 0; (row = dp_report_rank_row(i)) != NULL; i++, rows++) {
        assert_true(row->help[0] != '\0');
        assert_int_equal(row->text[0] != '\0', row->width > 0);
        assert_true(row->kind == DP_REPORT_NAME || row->width == 0 ||
                    (int)strlen(row->text) <= row->width);
    }
    assert_in_range(rows, 40, 1000);
}

static void the_last_line_of_metrics_has_the_declared_keys(void **state)
{
    struct dp_json *line = dp_json_create();
    (void)state;

    assert_int_equal(dp_run_summary_put_end(&whole, line), DP_OK);
    assert_int_equal(dp_json_length(line), 10);
    assert_text(line, "exit", "early_stopped");
    assert_real(line, "steps", 705);
    assert_real(line, "samples_per_second", 2012.5);
    assert_real(line, "scaling_efficiency", 0.9583);
    assert_real(line, "train_loss", 0.25);
    assert_real(line, "test_loss", 0.28);
    assert_real(line, "test_accuracy", 0.9012);
    assert_real(line, "seconds", 93);
    dp_json_destroy(line);
}

static const char *printed(const struct dp_run_summary *summary)
{
    static char text[8192];
    FILE *out = fopen(scratch_path("out"), "wb");

    assert_non_null(out);
    dp_run_summary_print(summary, out);
    assert_int_equal(fclose(out), 0);
    assert_true(scratch_read(scratch_path("out"), text, sizeof(text)) > 0);
    return text;
}

static void unknown_values_are_printed_as_a_dash_or_left_out(void **state)
{
    const struct dp_run_summary unknown = {.name = "x",
                                           .samples_per_second = (double)NAN,
                                           .scaling_efficiency = (double)NAN,
                                           .samples_per_dollar = (double)NAN,
                                           .baseline_before = (double)NAN,
                                           .wire_bytes_per_step = -1,
                                           .final_test_accuracy = (double)NAN,
                                           .final_test_error = (double)NAN};
    const char *text = printed(&unknown);
    (void)state;

    assert_non_null(strstr(text, "- samples/s, scaling efficiency -\n"));
    assert_non_null(strstr(text, "wire - a step, skipped steps 0, "));
    assert_null(strstr(text, "accuracy"));
    assert_null(strstr(text, "mean absolute error"));
    assert_null(strstr(text, "dollar"));
    assert_null(strstr(text, "reason"));
    assert_null(strstr(text, "plan"));
    assert_null(strstr(text, "verdict"));
    assert_null(strstr(text, "staleness"));
}

static void a_loss_without_answers_prints_how_far_they_are_off(void **state)
{
    const struct dp_run_summary square = {.final_train_loss = 0.25,
                                          .final_test_loss = 0.5,
                                          .final_test_accuracy = (double)NAN,
                                          .final_test_error = 0.0625};
    (void)state;

    assert_non_null(strstr(printed(&square), "train loss 0.2500, test loss 0.5000, test mean "
                                             "absolute error 0.0625\n"));
}

/* Memory that nothing explains is said, and a peak a tenth above the prediction, with the purpose
 * that takes most. */
static void a_peak_above_the_prediction_is_said(void **state)
{
    struct dp_run_summary s = whole;
    (void)state;

    s.memory_predicted = 100 << 20;
    s.memory_peak = 110 << 20;
    s.memory_peak_step = 7;
    s.memory_unexplained = 11 << 20;
    s.memory_weights = 10 << 20;
    s.memory_activations = 60 << 20;
    s.memory_input = 29 << 20;
    assert_non_null(strstr(printed(&s), "memory of a rank: at most 110 MiB, after step 7, "
                                        "predicted 100 MiB\n"));
    s.memory_peak = 125 << 20;
    assert_non_null(strstr(printed(&s), "memory of a rank: at most 125 MiB, after step 7, "
                                        "predicted 100 MiB: 25 % more;\n"
                                        "    most of it: activations\n"));
    s.memory_unexplained = 13 << 20;
    assert_non_null(strstr(printed(&s), "predicted 100 MiB, of which\n"
                                        "    nothing explains 13.0 MiB\n"));
    s.memory_predicted = -1;
    s.memory_unexplained = 0;
    assert_non_null(strstr(printed(&s), "predicted -\n"));
    s.memory_peak = 0;
    assert_null(strstr(printed(&s), "memory of a rank"));
}

static void printed_lines_have_the_same_form(void **state)
{
    const char *line, *first, *second, *text = printed(&whole);
    (void)state;

    assert_non_null(strstr(text, "lenet: early_stopped after 705 steps, 3.0 epochs, on 2 ranks\n"));
    assert_non_null(strstr(text, "\nreason: no better test_accuracy\n"));
    assert_non_null(strstr(text, "plan: 3 buckets, 1.0 to 5.3 MiB\n"));
    assert_non_null(strstr(text, "train loss 0.2500, test loss 0.2800, test accuracy 90.12 %\n"));
    assert_non_null(strstr(text, "2,012 samples/s, scaling efficiency 95.8 %, "
                                 "1,000,000 samples per dollar\n"));
    assert_non_null(strstr(text, "one rank alone: 1,050 samples/s (measured; before 1,060, "
                                 "after 1,040, spread\n    1.9 %)\n"));
    assert_non_null(strstr(text, "wire 6.3 MiB a step"));
    assert_non_null(strstr(text,
                           "\nstaleness: weights of 20 gradients lacked 1.50 of other ranks on "
                           "average, 2 at\n    most\n"));
    assert_non_null(strstr(text, "\nverdict: compute bound\n"));

    line = strstr(text, "\nrank ");
    assert_non_null(line);
    first = strchr(line + 1, '\n') + 1;
    second = strchr(first, '\n') + 1;
    assert_int_equal(first - line - 1, second - first);            /* heading as wide as rank 0 */
    assert_int_equal(strcspn(first, "\n"), strcspn(second, "\n")); /* and as rank 1 */
    assert_non_null(strstr(first, "node7"));
    assert_non_null(strstr(first, "  10.50   312 MiB\n"));
    line = strstr(text, "parts of a mean steady step, in ms\nrank host ");
    assert_non_null(line);
    assert_non_null(strstr(line, " 93.88"));
    for (line = text; *line != '\0'; line += strcspn(line, "\n") + 1) {
        assert_in_range(strcspn(line, "\n"), 0, 80);
    }
    assert_null(strstr(text, "nan"));
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, scratch_create, scratch_destroy)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(run_json_has_every_field),
        WITH_FOLDER(every_rank_has_every_field),
        WITH_FOLDER(unknown_values_are_null),
        cmocka_unit_test(every_exit_has_its_name),
        WITH_FOLDER(an_older_run_json_survives_a_failed_write),
        cmocka_unit_test(rows_have_a_description_and_one_value),
        cmocka_unit_test(the_last_line_of_metrics_has_the_declared_keys),
        WITH_FOLDER(unknown_values_are_printed_as_a_dash_or_left_out),
        WITH_FOLDER(a_loss_without_answers_prints_how_far_they_are_off),
        WITH_FOLDER(a_peak_above_the_prediction_is_said),
        WITH_FOLDER(printed_lines_have_the_same_form),
    };

    (void)signal(SIGXFSZ, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
