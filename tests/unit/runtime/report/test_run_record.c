/* test_run_record.c - the folder of a run is read whatever is left of it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/files/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "runtime/report/files/metrics.h"
#include "runtime/report/record/record_json.h"
#include "runtime/report/record/record_print.h"
#include "tests/support/scratch.h"

static void write_text(const char *name, const char *text)
{
    scratch_write(scratch_path(name), text, strlen(text));
}

/* Adds lines of steps to metrics.jsonl, as a run does: step i takes 2 ms, its loss is 1 / i. */
static void write_steps(bool append, int from, int to)
{
    struct dp_metrics metrics;
    const struct dp_metrics_start start = {.name = "small",
                                           .device = "cpu",
                                           .precision = "fp32",
                                           .strategy = "shm",
                                           .compressor = "none",
                                           .world_size = 2,
                                           .global_batch = 8,
                                           .steps = 1000};

    assert_int_equal(dp_metrics_open(&metrics, scratch_path("metrics.jsonl"), append), DP_OK);
    if (!append) {
        assert_int_equal(dp_metrics_start(&metrics, &start), DP_OK);
    }
    for (int i = from; i <= to; i++) {
        const struct dp_metrics_step step = {.step = i,
                                             .epoch = 1,
                                             .loss = 1.0 / i,
                                             .lr = 0.5,
                                             .samples_per_second = 4000.0,
                                             .step_ms = 2.0};
        assert_int_equal(dp_metrics_step(&metrics, &step), DP_OK);
    }
    dp_metrics_close(&metrics);
}

static struct dp_run_record *opened(void)
{
    struct dp_run_record *record = NULL;

    assert_int_equal(dp_run_record_open(scratch_folder, &record), DP_OK);
    return record;
}

static bool notes(const struct dp_run_record *record, const char *what)
{
    for (int i = 0; i < record->note_count; i++) {
        if (strstr(record->notes[i], what) != NULL) {
            return true;
        }
    }
    return false;
}

static void a_run_that_was_killed_has_what_it_wrote(void **state)
{
    struct dp_run_record *record;
    FILE *torn;
    (void)state;

    write_steps(false, 1, 100);
    torn = fopen(scratch_path("metrics.jsonl"), "ab");
    assert_non_null(torn);
    (void)fputs("{\"type\":\"eval\"\n\n[1]\n{\"step\":7}\n{\"type\":\"step\",\"ste", torn);
    assert_int_equal(fclose(torn), 0);
    record = opened();
    assert_int_equal(record->state, DP_RUN_STATE_BROKEN);
    assert_false(record->has_summary);
    assert_string_equal(record->summary.name, "small");
    assert_int_equal(record->summary.world_size, 2);
    assert_int_equal(record->summary.steps, 100);
    assert_true(fabs(record->summary.samples_per_second - 4000.0) < 1e-3);
    assert_true(isnan(record->summary.scaling_efficiency));
    assert_int_equal(record->reader.unreadable, 3); /* an empty line is none */
    assert_true(notes(record, "run.json is missing") && notes(record, "config.yaml is missing"));
    assert_true(notes(record, "3 lines cannot be read") && notes(record, "torn"));
    dp_run_record_close(record);
    assert_int_equal(dp_mem_live(), 0);
}

static void a_run_that_goes_on_is_read_further(void **state)
{
    struct dp_run_record *record = NULL;
    struct dp_lock *lock = NULL;
    (void)state;

    write_steps(false, 1, 3);
    assert_int_equal(dp_run_record_create(scratch_folder, &record), DP_OK);
    assert_int_equal(dp_run_record_update(record, true), DP_OK);
    assert_int_equal(record->state, DP_RUN_STATE_GOING);
    assert_int_equal(record->history.steps, 3);
    write_steps(true, 4, 10);
    assert_int_equal(dp_run_record_update(record, true), DP_OK);
    assert_int_equal(record->history.steps, 10);
    assert_int_equal(record->history.last_step, 10);
    dp_run_record_close(record);

    assert_int_equal(dp_lock_take(scratch_path(".lockstep.lock"), "it", "", &lock), DP_OK);
    record = opened();
    assert_int_equal(record->state, DP_RUN_STATE_GOING);
    dp_run_record_close(record);
    dp_lock_release(lock);
    record = opened();
    assert_int_equal(record->state, DP_RUN_STATE_BROKEN);
    dp_run_record_close(record);
}

static const char run_json[] =
    "{\"name\":\"big\",\"exit\":\"stopped\",\"steps\":12,\"world_size\":2,\"version\":7,"
    "\"samples_per_second\":10.5,\"final\":{\"test_loss\":0.25},\"ranks\":[{\"rank\":0,"
    "\"host\":\"a\",\"step_ms\":{\"input\":1,\"forward\":2.5}},7]}";

static void run_json_is_read_as_far_as_it_goes(void **state)
{
    struct dp_run_record *record;
    (void)state;

    write_text("run.json", run_json);
    record = opened();
    assert_int_equal(record->state, DP_RUN_STATE_ENDED);
    assert_string_equal(record->summary.name, "big");
    assert_int_equal(record->summary.exit, DP_RUN_STOPPED);
    assert_int_equal(record->summary.steps, 12);
    assert_null(record->summary.version); /* a number is no text */
    assert_true(record->summary.final_test_loss == 0.25);
    assert_true(isnan(record->summary.final_test_accuracy));
    assert_int_equal(record->summary.wire_bytes_per_step, -1);
    assert_int_equal(record->summary.rank_count, 2);
    assert_string_equal(record->summary.ranks[0].host, "a");
    assert_true(record->summary.ranks[0].step_ms[DP_PART_FORWARD] == 2.5);
    assert_true(isnan(record->summary.ranks[0].step_ms[DP_PART_COPY]));
    assert_int_equal(record->summary.ranks[1].rank, -1);
    assert_true(notes(record, "metrics.jsonl is missing"));
    dp_run_record_close(record);
}

static void without_config_yaml_the_configuration_is_that_of_run_json(void **state)
{
    struct dp_run_record *record;
    (void)state;

    write_text("run.json", "{\"name\":\"big\",\"configuration\":\"train: {seed: 1}\\n\"}");
    record = opened();
    assert_string_equal(record->config, "train: {seed: 1}\n");
    assert_false(notes(record, "config.yaml is missing"));
    dp_run_record_close(record);
    write_text("config.yaml", "train: {seed: 2}\n");
    record = opened();
    assert_string_equal(record->config, "train: {seed: 2}\n");
    dp_run_record_close(record);
}

static void half_a_run_json_is_said_and_left_out(void **state)
{
    struct dp_run_record *record;
    (void)state;

    scratch_write(scratch_path("run.json"), run_json, sizeof(run_json) / 2);
    write_steps(false, 1, 5);
    record = opened();
    assert_false(record->has_summary);
    assert_int_equal(record->summary.steps, 5);
    assert_true(notes(record, "run.json is torn or damaged"));
    dp_run_record_close(record);
}

static void without_a_run_the_status_says_which(void **state)
{
    struct dp_run_record *record = NULL;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(dp_run_record_open(scratch_path("none"), &record), DP_ERR_NOINPUT);
    assert_int_equal(dp_run_record_open(scratch_folder, &record), DP_ERR_NOINPUT);
    write_text("run.json", "{");
    assert_int_equal(dp_run_record_open(scratch_path("run.json"), &record), DP_ERR_NOINPUT);
    assert_int_equal(dp_run_record_open(scratch_folder, &record), DP_ERR_DATA);
    write_text("metrics.jsonl", "no JSON\n");
    write_text("config.yaml", "");
    assert_int_equal(dp_run_record_open(scratch_folder, &record), DP_ERR_DATA);
    dp_log_set_level(DP_LOG_INFO);
    assert_null(record);
    assert_int_equal(dp_mem_live(), 0);
}

static void a_long_course_keeps_its_sums(void **state)
{
    struct dp_run_record *record;
    const struct dp_history *h;
    int64_t steps = 0, expected = 1;
    double losses = 0.0, harmonic = 0.0;
    (void)state;

    write_steps(false, 1, 5 * DP_HISTORY_POINTS + 3);
    record = opened();
    h = &record->history;
    assert_int_equal(h->per_point, 8);
    assert_in_range(h->count, DP_HISTORY_POINTS / 2, DP_HISTORY_POINTS);
    for (int i = 0; i < h->count; i++) {
        assert_int_equal(h->points[i].first, expected);
        expected = h->points[i].last + 1;
        steps += h->points[i].steps;
        losses += h->points[i].loss_sum;
        assert_true(fabs(dp_history_rate(&h->points[i]) - 4000.0) < 1e-6);
    }
    for (int i = 1; i <= steps; i++) {
        harmonic += 1.0 / i;
    }
    assert_int_equal(steps, 5 * DP_HISTORY_POINTS + 3);
    assert_true(fabs(losses - harmonic) < 1e-6);
    dp_run_record_close(record);
}

static void steps_that_other_programs_wrote_are_read_too(void **state)
{
    struct dp_run_record *record;
    const struct dp_history_point *p;
    (void)state;

    write_text("metrics.jsonl",
               "{ \"step\": 1, \"type\": \"step\", \"loss\": null, \"note\": \"a\\\"b\" }\n"
               "{\"type\":\"step\",\"step\":2,\"loss\":NaN}\n"
               "{\"type\":\"step\",\"step\":3,\"loss\":null,\"skipped\":true,\"new\":7}\n"
               "{\"type\":\"step\",\"step\":-4,\"loss\":1}\n"
               "{\"type\":\"step\",\"loss\":1}\n"
               "{\"type\":\"step\",\"step\":5,\"loss\":2.5,\"step_ms\":-1,"
               "\"samples_per_second\":1e308}\n");
    record = opened();
    p = record->history.points;
    assert_int_equal(record->history.steps, 3);
    assert_int_equal(record->reader.unreadable, 1);
    assert_int_equal(record->history.skipped, 1);
    assert_int_equal(p[1].first, 3);
    assert_true(isnan(dp_history_loss(&p[0])) && isnan(dp_history_loss(&p[1])));
    assert_true(dp_history_loss(&p[2]) == 2.5 && isnan(dp_history_rate(&p[2])));
    dp_run_record_close(record);
}

static void a_line_longer_than_the_window_is_skipped(void **state)
{
    enum { LONG = 200 * 1024 };
    static char text[LONG + 64];
    struct dp_run_record *record;
    (void)state;

    memset(text, 'x', LONG);
    memcpy(text + LONG, "\n{\"type\":\"step\",\"step\":9,\"loss\":1}\n", 36);
    scratch_write(scratch_path("metrics.jsonl"), text, strlen(text));
    record = opened();
    assert_int_equal(record->reader.unreadable, 1);
    assert_int_equal(record->history.last_step, 9);
    dp_run_record_close(record);
}

static void the_error_of_a_mean_is_that_of_its_blocks(void **state)
{
    struct dp_history *h = calloc(1, sizeof(*h));
    const struct dp_metrics_taker taker = dp_history_taker(h);
    struct dp_history_pace pace;
    (void)state;

    assert_non_null(h);
    dp_history_init(h);
    assert_true(isnan(dp_history_pace(h).rate));
    /* 10 unsteady steps, then 16 blocks of 10 steps: 1 ms in even ones, 3 ms in odd ones. */
    for (int i = 0; i < 170; i++) {
        const double ms = i < 10 ? 100.0 : (i - 10) / 10 % 2 == 0 ? 1.0 : 3.0;
        const struct dp_metrics_sample sample = {
            .step = i + 1, .loss = 1.0, .samples_per_second = 8e3 / ms, .step_ms = ms};
        taker.step(h, &sample);
    }
    pace = dp_history_pace(h);
    assert_int_equal(pace.steps, 160);
    assert_int_equal(pace.blocks, 16);
    assert_true(fabs(pace.ms - 2.0) < 1e-9 && fabs(pace.rate - 4000.0) < 1e-6);
    assert_true(fabs(pace.ms_error - sqrt(16.0 / 15.0 / 16.0)) < 1e-9); /* deviation 1, corrected */
    assert_true(fabs(pace.cv - sqrt(16.0 / 15.0) / 2.0) < 1e-9);
    assert_true(fabs(pace.rate_error - 2000.0 * pace.ms_error) < 1e-6);
    free(h);
}

/* What is said of the last steps must be of the same ones: the very last may be short. */
static void the_last_steps_are_a_tenth_of_all(void **state)
{
    struct dp_history *h = calloc(1, sizeof(*h));
    const struct dp_metrics_taker taker = dp_history_taker(h);
    struct dp_history_point recent;
    (void)state;

    assert_non_null(h);
    dp_history_init(h);
    recent = dp_history_recent(h);
    assert_int_equal(recent.steps, 0);
    assert_true(isnan(dp_history_loss(&recent)) && isnan(dp_history_rate(&recent)));
    for (int i = 1; i <= 40; i++) { /* the last four: losses 4, 4, 4 and 8, and 1 ms of 4 */
        const struct dp_metrics_sample sample = {.step = i,
                                                 .loss = i == 40  ? 8.0
                                                         : i > 36 ? 4.0
                                                                  : 100.0,
                                                 .lr = 0.5 / i,
                                                 .samples_per_second = 1000.0,
                                                 .step_ms = i == 40  ? 1.0
                                                            : i > 36 ? 5.0
                                                                     : 50.0};
        taker.step(h, &sample);
    }
    recent = dp_history_recent(h);
    assert_int_equal(recent.steps, 4);
    assert_true(dp_history_loss(&recent) == 5.0 && recent.ms == 16.0);
    assert_true(fabs(dp_history_rate(&recent) - 1000.0) < 1e-9 && recent.lr == 0.5 / 40);
    free(h);
}

/* 256 ranks, and texts that a terminal would obey: no line is longer than 80 columns. */
static void the_printed_report_has_80_columns(void **state)
{
    static char text[65536];
    struct dp_run_record *record;
    FILE *out = fopen(scratch_path("json"), "wb");
    (void)state;

    assert_non_null(out);
    (void)fprintf(out, "{\"name\":\"\\u001b[31m%s\",\"verdict\":\"%s \\u202e %s\",\"ranks\":[",
                  "a-long-name", "words and words and words and words and words and words",
                  "https://one.word.that.is.longer.than.a.line/"
                  "0123456789012345678901234567890123456789012345678901234567890123456789");
    for (int i = 0; i < 256; i++) {
        (void)fprintf(out,
                      "%s{\"rank\":%d,\"host\":\"h\\u001b]0;x\\u0007%d\",\"step_ms\":"
                      "{\"forward\":123456.5,\"backward\":0.25}}",
                      i > 0 ? "," : "", i, i);
    }
    (void)fputs("],\"utilisation\":{\"gpu\":0.943,\"joules_per_sample\":0.09174}}", out);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(rename(scratch_path("json"), scratch_path("run.json")), 0);
    record = opened();
    out = fopen(scratch_path("out"), "wb");
    assert_non_null(out);
    dp_record_print(record, out);
    assert_int_equal(fclose(out), 0);
    dp_run_record_close(record);
    assert_true(scratch_read(scratch_path("out"), text, sizeof(text)) > 500);
    assert_null(strchr(text, '\x1b'));
    assert_non_null(strstr(text, "and 240 more ranks"));
    assert_non_null(strstr(text, "GPUs        94.3 % busy, joules a sample: 0.09174\n"));
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1) {
        if (strcspn(line, "\n") > 80) {
            fail_msg("too long: %.*s", (int)strcspn(line, "\n"), line);
        }
    }
}

static void steps_become_csv(void **state)
{
    char text[512];
    struct dp_run_record *record;
    (void)state;

    write_text("metrics.jsonl", "{\"type\":\"step\",\"time\":1.25,\"step\":1,\"epoch\":2,\"loss\":"
                                "0.5,\"lr\":0.1,\"samples_per_second\":4e3,\"step_ms\":2}\n"
                                "{\"type\":\"step\",\"step\":2,\"loss\":null}\n");
    record = opened();
    assert_int_equal(dp_record_write_csv(record, scratch_path("csv")), DP_OK);
    assert_true(scratch_read(scratch_path("csv"), text, sizeof(text)) > 0);
    assert_string_equal(text, "step,epoch,time,loss,lr,samples_per_second,step_ms\n"
                              "1,2,1.25,0.5,0.1,4000,2\n2,,,,,,\n");
    dp_run_record_close(record);
}

static void memory_may_fail(void **state)
{
    struct dp_run_record *record = NULL;
    dp_status status = DP_ERR_NOMEM;
    (void)state;

    write_text("run.json", run_json);
    write_steps(false, 1, 5);
    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        assert_int_equal(status, DP_ERR_NOMEM);
        assert_int_equal(dp_mem_live(), 0);
        dp_mem_fail_nth(nth);
        status = dp_run_record_open(scratch_folder, &record);
        assert_in_range(nth, 1, 50);
    }
    dp_mem_fail_nth(0);
    dp_log_set_level(DP_LOG_INFO);
    dp_run_record_close(record);
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, scratch_create, scratch_destroy)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(a_run_that_was_killed_has_what_it_wrote),
        WITH_FOLDER(a_run_that_goes_on_is_read_further),
        WITH_FOLDER(run_json_is_read_as_far_as_it_goes),
        WITH_FOLDER(without_config_yaml_the_configuration_is_that_of_run_json),
        WITH_FOLDER(half_a_run_json_is_said_and_left_out),
        WITH_FOLDER(without_a_run_the_status_says_which),
        WITH_FOLDER(a_long_course_keeps_its_sums),
        WITH_FOLDER(steps_that_other_programs_wrote_are_read_too),
        WITH_FOLDER(a_line_longer_than_the_window_is_skipped),
        cmocka_unit_test(the_error_of_a_mean_is_that_of_its_blocks),
        cmocka_unit_test(the_last_steps_are_a_tenth_of_all),
        WITH_FOLDER(the_printed_report_has_80_columns),
        WITH_FOLDER(steps_become_csv),
        WITH_FOLDER(memory_may_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
