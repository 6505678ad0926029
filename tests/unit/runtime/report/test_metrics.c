/* test_metrics.c - what a run says of itself to programs: metrics.jsonl. */
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
#include "base/trace.h"
#include "runtime/report/files/metrics.h"
#include "tests/support/scratch.h"
#include "tests/support/stderr_text.h"

static const struct dp_metrics_step step = {.step = 120,
                                            .epoch = 1,
                                            .loss = 0.53125,
                                            .lr = 0.05,
                                            .samples_per_second = 12345.6,
                                            .step_ms = 20.7};
static const struct dp_metrics_start start = {.name = "lenet \"x\"",
                                              .device = "cpu",
                                              .precision = "fp32",
                                              .strategy = "direct",
                                              .compressor = "none",
                                              .world_size = 2,
                                              .global_batch = 256,
                                              .steps = 705};
static const struct dp_metrics_eval eval = {.step = 235,
                                            .epoch = 1,
                                            .train_loss = 0.6,
                                            .test_loss = 0.5,
                                            .test_accuracy = 0.87,
                                            .test_top5 = 0.99,
                                            .test_error = (double)NAN};
static const struct dp_run_summary end = {.exit = DP_RUN_FINISHED,
                                          .steps = 705,
                                          .samples_per_second = 2000,
                                          .scaling_efficiency = (double)NAN,
                                          .final_train_loss = 0.3,
                                          .final_test_loss = 0.4,
                                          .final_test_accuracy = 0.89,
                                          .seconds = 90};

/* Line `i` of a text, parsed; NULL after the last. */
static struct dp_json *line_at(const char *text, int i)
{
    struct dp_json *line = NULL;
    size_t length;

    for (; i > 0; i--) {
        text += strcspn(text, "\n") + 1;
    }
    length = strcspn(text, "\n");
    if (length == 0) {
        return NULL;
    }
    assert_int_equal(text[length], '\n');
    assert_int_equal(dp_json_parse(text, length, "metrics", &line), DP_OK);
    return line;
}

static double real_of(const struct dp_json *line, const char *key)
{
    double value = -1;

    assert_true(dp_json_real(dp_json_get(line, key), &value));
    return value;
}

static const char *type_of(const struct dp_json *line)
{
    return dp_json_text(dp_json_get(line, "type"));
}

static void a_run_is_one_object_a_line(void **state)
{
    struct dp_metrics metrics;
    struct dp_json *line;
    char text[4096];
    (void)state;

    assert_int_equal(dp_metrics_open(&metrics, scratch_path("m"), false), DP_OK);
    assert_int_equal(dp_metrics_start(&metrics, &start), DP_OK);
    assert_int_equal(dp_metrics_step(&metrics, &step), DP_OK);
    assert_true(scratch_read(scratch_path("m"), text, sizeof(text)) > 0); /* flushed already */
    line = line_at(text, 1);
    assert_non_null(line);
    assert_string_equal(type_of(line), "step");
    assert_true(real_of(line, "step") == 120);
    assert_true(real_of(line, "epoch") == 1);
    assert_true(real_of(line, "loss") == 0.53125);
    assert_true(real_of(line, "lr") == 0.05);
    assert_true(real_of(line, "samples_per_second") == 12345.6);
    assert_true(real_of(line, "step_ms") == 20.7);
    assert_true(real_of(line, "time") > 1.6e9);
    dp_json_destroy(line);

    assert_int_equal(dp_metrics_eval(&metrics, &eval), DP_OK);
    assert_int_equal(dp_metrics_end(&metrics, &end), DP_OK);
    dp_metrics_close(&metrics);
    assert_true(scratch_read(scratch_path("m"), text, sizeof(text)) > 0);
    line = line_at(text, 0);
    assert_string_equal(type_of(line), "start");
    assert_string_equal(dp_json_text(dp_json_get(line, "name")), "lenet \"x\"");
    assert_true(real_of(line, "world_size") == 2);
    dp_json_destroy(line);
    line = line_at(text, 2);
    assert_string_equal(type_of(line), "eval");
    assert_true(real_of(line, "test_accuracy") == 0.87);
    assert_true(real_of(line, "test_top5_accuracy") == 0.99);
    assert_non_null(dp_json_get(line, "test_mean_absolute_error"));
    dp_json_destroy(line);
    line = line_at(text, 3);
    assert_string_equal(type_of(line), "end");
    assert_string_equal(dp_json_text(dp_json_get(line, "exit")), "finished");
    assert_non_null(dp_json_get(line, "scaling_efficiency")); /* NaN: there, and null */
    assert_false(dp_json_real(dp_json_get(line, "scaling_efficiency"), &(double){0}));
    dp_json_destroy(line);
    assert_null(line_at(text, 4));
    assert_int_equal(dp_mem_live(), 0);
}

static void numbers_that_are_not_finite_are_null(void **state)
{
    struct dp_metrics_step odd = step;
    struct dp_metrics metrics;
    char text[1024];
    (void)state;

    odd.loss = (double)NAN;
    odd.samples_per_second = (double)INFINITY;
    odd.step = INT64_MAX;
    odd.lr = -1.7976931348623157e308;
    odd.step_ms = 5e-324;
    assert_int_equal(dp_metrics_open(&metrics, scratch_path("m"), false), DP_OK);
    assert_int_equal(dp_metrics_step(&metrics, &odd), DP_OK);
    dp_metrics_close(&metrics);
    assert_true(scratch_read(scratch_path("m"), text, sizeof(text)) > 0);
    assert_non_null(strstr(text, "\"loss\":null,"));
    assert_non_null(strstr(text, "\"samples_per_second\":null,"));
    assert_non_null(strstr(text, "\"step\":9223372036854775807,"));
}

static void a_step_allocates_nothing(void **state)
{
    struct dp_metrics metrics;
    (void)state;

    assert_int_equal(dp_metrics_open(&metrics, scratch_path("m"), false), DP_OK);
    dp_mem_fail_nth(1);
    assert_int_equal(dp_metrics_step(&metrics, &step), DP_OK);
    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(dp_metrics_end(&metrics, &end), DP_ERR_NOMEM);
    dp_log_set_level(DP_LOG_INFO);
    dp_mem_fail_nth(0);
    dp_metrics_close(&metrics);
    assert_int_equal(dp_mem_live(), 0);
}

/* Lines of later steps, and torn lines, are removed. */
static void a_resumed_run_has_no_lines_of_later_steps(void **state)
{
    static const char kept[] = "{\"type\":\"start\",\"first_step\":0,\"steps\":900}\n"
                               "{\"type\":\"step\",\"step\":8}\n"
                               "{\"type\":\"eval\",\"step\":9,\"name\":\"\\\"step\\\":10\"}\n"
                               "{\"type\":\"end\",\"steps\":9}\n"
                               "{\"type\":\"resume\",\"step\":9,\"steps\":900}\n";
    static const char gone[] = "{\"type\":\"step\",\"step\":10}\n"
                               "{\"type\":\"end\",\"steps\":10}\n"
                               "{\"type\":\"resume\",\"step\":10,\"steps\":900}\n"
                               "{\"type\":\"step\",\"st";
    char text[1024];
    (void)state;

    (void)snprintf(text, sizeof(text), "%s%s", kept, gone);
    scratch_write(scratch_path("metrics.jsonl"), text, strlen(text));
    assert_int_equal(dp_metrics_trim(scratch_path("metrics.jsonl"), 9, 9), DP_OK);
    assert_int_equal(scratch_read(scratch_path("metrics.jsonl"), text, sizeof(text)),
                     (long)strlen(kept));
    assert_string_equal(text, kept);
    assert_int_equal(dp_metrics_trim(scratch_path("metrics.jsonl"), 9, 9), DP_OK);
    assert_int_equal(dp_metrics_trim(scratch_path("nowhere"), 9, 9), DP_OK);
    assert_int_equal(scratch_count("."), 1);
    assert_int_equal(dp_mem_live(), 0);
}

/* The evaluation of the step that is resumed from was not known yet. */
static void an_evaluation_that_is_made_again_loses_its_line(void **state)
{
    static const char text[] = "{\"type\":\"eval\",\"step\":6}\n"
                               "{\"type\":\"step\",\"step\":9}\n"
                               "{\"type\":\"step\",\"step\":10}\n"
                               "{\"type\":\"eval\",\"step\":9}\n";
    char found[256];
    (void)state;

    scratch_write(scratch_path("m"), text, sizeof(text) - 1);
    assert_int_equal(dp_metrics_trim(scratch_path("m"), 9, 6), DP_OK);
    assert_true(scratch_read(scratch_path("m"), found, sizeof(found)) > 0);
    assert_string_equal(found, "{\"type\":\"eval\",\"step\":6}\n{\"type\":\"step\",\"step\":9}\n");
}

static void a_line_that_may_be_there_is_written_once(void **state)
{
    struct dp_metrics_step next = step;
    struct dp_metrics metrics;
    char text[4096];
    const char *line;
    (void)state;

    assert_int_equal(dp_metrics_open(&metrics, scratch_path("m"), false), DP_OK);
    assert_int_equal(dp_metrics_step_once(&metrics, &step), DP_OK);
    assert_int_equal(dp_metrics_eval(&metrics, &eval), DP_OK);
    dp_metrics_close(&metrics);
    assert_int_equal(dp_metrics_open(&metrics, scratch_path("m"), true), DP_OK);
    assert_int_equal(dp_metrics_step_once(&metrics, &step), DP_OK);
    next.step++;
    assert_int_equal(dp_metrics_step_once(&metrics, &next), DP_OK);
    dp_metrics_close(&metrics);
    assert_true(scratch_read(scratch_path("m"), text, sizeof(text)) > 0);
    line = strstr(text, "\"step\":120,");
    assert_non_null(line);
    assert_null(strstr(line + 1, "\"step\":120,"));
    assert_non_null(strstr(line + 1, "\"step\":121,"));
    assert_int_equal(dp_mem_live(), 0);
}

static void lost_ranks_are_in_the_line_about_going_on(void **state)
{
    const struct dp_run_lost_rank lost[] = {{.rank = 3}, {.rank = 1}};
    struct dp_metrics_start on = start;
    struct dp_metrics metrics;
    char text[4096];
    (void)state;

    on.lost = lost;
    on.lost_count = 2;
    assert_int_equal(dp_metrics_open(&metrics, scratch_path("m"), false), DP_OK);
    assert_int_equal(dp_metrics_resume(&metrics, &on, "memory"), DP_OK);
    dp_metrics_close(&metrics);
    assert_true(scratch_read(scratch_path("m"), text, sizeof(text)) > 0);
    assert_non_null(strstr(text, "\"checkpoint\":\"memory\",\"lost_ranks\":[3,1],"));
}

static void a_resumed_run_continues_after_a_torn_line(void **state)
{
    struct dp_metrics metrics;
    char text[1024];
    (void)state;

    scratch_write(scratch_path("m"), "{\"type\":\"start\"}\n{\"type\":\"st", 28);
    assert_int_equal(dp_metrics_open(&metrics, scratch_path("m"), true), DP_OK);
    assert_int_equal(dp_metrics_step(&metrics, &step), DP_OK);
    dp_metrics_close(&metrics);
    assert_int_equal(dp_metrics_open(&metrics, scratch_path("m"), true), DP_OK);
    assert_int_equal(dp_metrics_step(&metrics, &step), DP_OK);
    dp_metrics_close(&metrics);
    assert_true(scratch_read(scratch_path("m"), text, sizeof(text)) > 0);
    assert_memory_equal(text, "{\"type\":\"start\"}\n{\"type\":\"st\n{\"type\":\"step\"", 43);
    assert_int_equal(strstr(text, "\n\n") == NULL, 1);
    assert_int_equal(dp_metrics_open(&metrics, scratch_path("m"), false), DP_OK);
    dp_metrics_close(&metrics);
    assert_int_equal(scratch_read(scratch_path("m"), text, sizeof(text)), 0);
}

/* Readable lines stay; the others are reported. */
static void nul_bytes_damage_only_their_own_lines(void **state)
{
    static const char text[] = "{\"type\":\"step\",\"step\":1}\n"
                               "{\"type\":\"st\0\0\0\0\n"
                               "\0\0\0{\"type\":\"step\",\"step\":3}\n"
                               "{\"type\":\"step\",\"step\":4}\n"
                               "{\"type\":\"step\",\"step\":5}\n\0\0\0\0";
    static const char expected[] = "{\"type\":\"step\",\"step\":1}\n"
                                   "{\"type\":\"step\",\"step\":3}\n"
                                   "{\"type\":\"step\",\"step\":4}\n";
    char found[1024];
    (void)state;

    scratch_write(scratch_path("m"), text, sizeof(text) - 1);
    stderr_begin();
    assert_int_equal(dp_metrics_trim(scratch_path("m"), 4, 4), DP_OK);
    stderr_end();
    assert_int_equal(scratch_read(scratch_path("m"), found, sizeof(found)),
                     (long)sizeof(expected) - 1);
    assert_string_equal(found, expected);
    assert_non_null(strstr(stderr_text, "m: 2 lines are damaged by NUL bytes"));
    assert_int_equal(dp_mem_live(), 0);
}

/* Lines that a step of that number writes. */
static dp_status note(struct dp_metrics *metrics, int64_t number)
{
    struct dp_metrics_step numbered = step;

    numbered.step = number;
    DP_TRY(dp_metrics_step(metrics, &numbered));
    return dp_metrics_flush(metrics);
}

/* How many lines the file has. */
static int line_count(void)
{
    static char text[64 * 1024];
    int lines = 0;

    (void)scratch_read(scratch_path("m"), text, sizeof(text));
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++) {
        lines++;
    }
    return lines;
}

static void steps_that_follow_quickly_are_written_together(void **state)
{
    struct dp_metrics metrics;
    (void)state;

    assert_int_equal(dp_metrics_open(&metrics, scratch_path("m"), false), DP_OK);
    assert_int_equal(dp_metrics_step(&metrics, &step), DP_OK);
    assert_int_equal(line_count(), 1);                /* the last ones were long ago, */
    metrics.late_ns = dp_now_ns() + 1000000000000000; /* and now they are not */
    for (int i = 1; i < DP_METRICS_STEPS; i++) {
        assert_int_equal(dp_metrics_step(&metrics, &step), DP_OK);
        assert_int_equal(line_count(), 1);
    }
    assert_int_equal(dp_metrics_step(&metrics, &step), DP_OK); /* no room for more */
    assert_int_equal(line_count(), 1 + DP_METRICS_STEPS);
    metrics.late_ns = dp_now_ns() + 1000000000000000;
    assert_int_equal(dp_metrics_step(&metrics, &step), DP_OK);
    assert_int_equal(dp_metrics_eval(&metrics, &eval), DP_OK); /* after the step */
    assert_int_equal(line_count(), 3 + DP_METRICS_STEPS);
    assert_int_equal(dp_metrics_step(&metrics, &step), DP_OK);
    assert_int_equal(dp_metrics_flush(&metrics), DP_OK);
    assert_int_equal(line_count(), 4 + DP_METRICS_STEPS);
    assert_int_equal(dp_metrics_step(&metrics, &step), DP_OK);
    assert_int_equal(line_count(), 4 + DP_METRICS_STEPS);
    metrics.at_once = true;
    assert_int_equal(dp_metrics_step(&metrics, &step), DP_OK); /* with the one before */
    assert_int_equal(line_count(), 6 + DP_METRICS_STEPS);
    metrics.at_once = false;
    assert_int_equal(dp_metrics_step(&metrics, &step), DP_OK);
    dp_metrics_close(&metrics);
    assert_int_equal(line_count(), 7 + DP_METRICS_STEPS);
    assert_int_equal(dp_mem_live(), 0);
}

static void lines_wait_until_the_disk_has_space(void **state)
{
    struct dp_metrics metrics;
    struct dp_json *line;
    char text[8192];
    (void)state;

    assert_int_equal(dp_metrics_open(&metrics, scratch_path("m"), false), DP_OK);
    stderr_begin();
    scratch_limit(500); /* in the middle of a line */
    for (int64_t number = 1; number <= 20; number++) {
        assert_int_equal(note(&metrics, number), DP_OK);
    }
    assert_true(scratch_read(scratch_path("m"), text, sizeof(text)) <= 500);
    scratch_limit(-1);
    metrics.tried_ns -= DP_METRICS_RETRY_NS;
    assert_int_equal(note(&metrics, 21), DP_OK);
    stderr_end();
    assert_int_equal(metrics.waiting_bytes, 0);
    assert_non_null(strstr(stderr_text, "m: File too large; make room there"));
    assert_ptr_equal(strchr(stderr_text, '\n'), strrchr(stderr_text, '\n')); /* reported once */
    assert_true(scratch_read(scratch_path("m"), text, sizeof(text)) > 0);
    for (int number = 1; number <= 21; number++) {
        line = line_at(text, number - 1);
        assert_non_null(line);
        assert_true(real_of(line, "step") == number);
        dp_json_destroy(line);
    }
    assert_null(line_at(text, 21));
    assert_int_equal(dp_metrics_eval(&metrics, &eval), DP_OK);
    assert_int_equal(dp_metrics_end(&metrics, &end), DP_OK);
    assert_false(metrics.given_up);
    dp_metrics_close(&metrics);
    assert_int_equal(dp_mem_live(), 0);
}

static void a_disk_that_stays_full_ends_the_run(void **state)
{
    struct dp_metrics metrics;
    int errors, lines = 0;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(dp_metrics_open(&metrics, "/dev/full", false), DP_OK);
        errors = dp_log_errors();
        assert_int_equal(note(&metrics, 1), DP_OK);
        if (turn == 0) { /* the time is over, */
            metrics.failing_ns -= DP_METRICS_PATIENCE_NS;
        } else { /* or the room for lines */
            while (note(&metrics, 1) == DP_OK) {
                lines++;
            }
            assert_true(lines > DP_METRICS_ROOM / 256);
        }
        assert_int_equal(note(&metrics, 2), DP_ERR_WRITE);
        assert_true(metrics.given_up);
        assert_int_equal(dp_metrics_eval(&metrics, &eval), DP_ERR_WRITE);
        assert_int_equal(dp_log_errors(), errors); /* warned, and no more */
        assert_int_equal(dp_metrics_end(&metrics, &end), DP_ERR_WRITE);
        assert_int_equal(dp_log_errors(), errors + 1);
        dp_metrics_close(&metrics);
    }
    assert_int_equal(dp_metrics_open(&metrics, "/dev/full", false), DP_OK);
    assert_int_equal(dp_metrics_start(&metrics, &start), DP_ERR_WRITE); /* which does not wait */
    dp_metrics_close(&metrics);
    assert_int_equal(dp_metrics_open(&metrics, scratch_path("no/m"), false), DP_ERR_WRITE);
    assert_int_equal(dp_metrics_open(&metrics, scratch_folder, false), DP_ERR_WRITE);
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(dp_mem_live(), 0);
}

static void metrics_are_not_written_to_pipes_or_through_links(void **state)
{
    struct dp_metrics metrics;
    char pipe[DP_PATH_BYTES], file[DP_PATH_BYTES], link[DP_PATH_BYTES];
    struct stat info;

    (void)state;
    (void)snprintf(pipe, sizeof(pipe), "%s", scratch_path("pipe"));
    (void)snprintf(file, sizeof(file), "%s", scratch_path("thesis"));
    (void)snprintf(link, sizeof(link), "%s", scratch_path("link"));
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(dp_file_replace(file, "words\n", 6), DP_OK);
    assert_int_equal(symlink(file, link), 0);
    for (int append = 0; append < 2; append++) {
        assert_int_equal(dp_metrics_open(&metrics, pipe, append), DP_ERR_WRITE);
    }
    assert_int_equal(dp_metrics_open(&metrics, link, false), DP_ERR_WRITE);
    assert_int_equal(stat(file, &info), 0);
    assert_int_equal(info.st_size, 6);
    assert_int_equal(dp_metrics_open(&metrics, link, true), DP_OK);
    dp_metrics_close(&metrics);
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, scratch_create, scratch_destroy)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(a_run_is_one_object_a_line),
        WITH_FOLDER(numbers_that_are_not_finite_are_null),
        WITH_FOLDER(a_step_allocates_nothing),
        WITH_FOLDER(a_resumed_run_has_no_lines_of_later_steps),
        WITH_FOLDER(an_evaluation_that_is_made_again_loses_its_line),
        WITH_FOLDER(a_resumed_run_continues_after_a_torn_line),
        WITH_FOLDER(a_line_that_may_be_there_is_written_once),
        WITH_FOLDER(lost_ranks_are_in_the_line_about_going_on),
        WITH_FOLDER(nul_bytes_damage_only_their_own_lines),
        WITH_FOLDER(steps_that_follow_quickly_are_written_together),
        WITH_FOLDER(lines_wait_until_the_disk_has_space),
        WITH_FOLDER(a_disk_that_stays_full_ends_the_run),
        WITH_FOLDER(metrics_are_not_written_to_pipes_or_through_links),
    };

    (void)signal(SIGXFSZ, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
