/*
 * test_bad_samples.c - in the place of a bad sample stands the next good one, which is counted and
 * said once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/sample_reader.h"
#include "tests/support/scratch.h"
#include "tests/support/stderr_text.h"

enum { WARNED = 5 };

static struct dp_source_config config; /* borrowed by the data set */

/* Samples whose number is their row, and whose labels are these: those below 2 are good. */
static struct dp_samples *open_labels(const char *labels)
{
    struct dp_samples *samples = NULL;
    char text[512] = "label,x\n";

    for (size_t i = 0; labels[i] != '\0'; i++) {
        const size_t used = strlen(text);
        (void)snprintf(text + used, sizeof(text) - used, "%c,%zu\n", labels[i], i);
    }
    scratch_write(scratch_path("train.csv"), text, strlen(text));
    scratch_write(scratch_path("test.csv"), text, strlen(text));
    config = (struct dp_source_config){.dir = scratch_folder, .classes = 2};
    assert_int_equal(dp_samples_open("csv", &config, &samples), DP_OK);
    return samples;
}

static void the_next_good_sample_is_taken_round_and_round(void **state)
{
    static const struct {
        const char *labels;
        size_t row, expected, skipped;
    } cases[] = {
        {"0101", 1, 1, 0}, {"0501", 1, 2, 1}, {"0551", 1, 3, 1}, {"0551", 2, 3, 1},
        {"0115", 3, 0, 1}, {"5115", 3, 1, 1}, {"5515", 3, 2, 1}, {"0555", 1, 0, 1},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int set = 0; set < DP_SETS; set++) {
            struct dp_samples *samples = open_labels(cases[i].labels);
            struct dp_sample_reader *reader = NULL;
            size_t skipped = 10;
            float x = -1.0f;
            int32_t label = -1;
            stderr_begin();
            assert_int_equal(dp_sample_reader_create(samples, &reader), DP_OK);
            assert_int_equal(dp_sample_reader_read_good(reader, (enum dp_set)set, cases[i].row, &x,
                                                        &label, &skipped),
                             DP_OK);
            dp_sample_reader_destroy(reader);
            dp_samples_close(samples);
            stderr_end();
            assert_int_equal((size_t)x, cases[i].expected);
            assert_int_equal(label, cases[i].labels[cases[i].expected] - '0');
            assert_int_equal(skipped, 10 + cases[i].skipped);
        }
    }
}

/* How often a text has some words. */
static int count_of(const char *text, const char *words)
{
    int count = 0;

    while ((text = strstr(text, words)) != NULL) {
        count++;
        text++;
    }
    return count;
}

static void one_warning_names_the_sample_and_its_fault(void **state)
{
    struct dp_samples *samples = open_labels("0551");
    struct dp_sample_reader *reader = NULL;
    size_t skipped = 0;
    float x;
    int32_t label;
    (void)state;

    stderr_begin();
    dp_log_set_level(DP_LOG_WARN);
    assert_int_equal(dp_sample_reader_create(samples, &reader), DP_OK);
    for (int time = 0; time < 2; time++) {
        assert_int_equal(dp_sample_reader_read_good(reader, DP_SET_TRAIN, 1, &x, &label, &skipped),
                         DP_OK);
    }
    dp_sample_reader_destroy(reader);
    dp_samples_close(samples);
    dp_log_set_level(DP_LOG_NONE);
    stderr_end();
    assert_int_equal(skipped, 2);
    assert_int_equal(count_of(stderr_text, "train.csv: line 3"), 1);
    assert_int_equal(count_of(stderr_text, "line 4"), 0);
    assert_int_equal(count_of(stderr_text, "error"), 0);
}

/* One and two to train on, and one to test with, each twice. */
static void each_bad_sample_of_both_sets_is_named(void **state)
{
    static const struct {
        enum dp_set set;
        size_t row;
    } bad[] = {{DP_SET_TRAIN, 1}, {DP_SET_TRAIN, 2}, {DP_SET_TEST, 1}};
    struct dp_samples *samples = open_labels("0551");
    struct dp_sample_reader *reader = NULL;
    size_t skipped = 0;
    float x;
    int32_t label;
    (void)state;

    stderr_begin();
    dp_log_set_level(DP_LOG_WARN);
    assert_int_equal(dp_sample_reader_create(samples, &reader), DP_OK);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(dp_sample_reader_read_good(reader, bad[i % 3].set, bad[i % 3].row, &x,
                                                    &label, &skipped),
                         DP_OK);
    }
    dp_sample_reader_destroy(reader);
    dp_samples_close(samples);
    dp_log_set_level(DP_LOG_NONE);
    stderr_end();
    assert_int_equal(skipped, 6);
    assert_int_equal(count_of(stderr_text, "train.csv: line 3"), 1);
    assert_int_equal(count_of(stderr_text, "train.csv: line 4"), 1);
    assert_int_equal(count_of(stderr_text, "test.csv: line 3"), 1);
}

/* Ten samples are bad, and met twice. */
static void after_a_few_warnings_there_are_no_more_and_the_last_one_says_so(void **state)
{
    static const char place[] = "another one stands in its place", others[] = ", and so it may be";
    struct dp_samples *samples = open_labels("0555555555551");
    struct dp_sample_reader *reader = NULL;
    size_t skipped = 0;
    const char *last;
    float x;
    int32_t label;
    (void)state;

    stderr_begin();
    dp_log_set_level(DP_LOG_WARN);
    assert_int_equal(dp_sample_reader_create(samples, &reader), DP_OK);
    for (size_t i = 0; i < 20; i++) {
        assert_int_equal(
            dp_sample_reader_read_good(reader, DP_SET_TRAIN, 1 + i % 10, &x, &label, &skipped),
            DP_OK);
    }
    dp_sample_reader_destroy(reader);
    dp_samples_close(samples);
    dp_log_set_level(DP_LOG_NONE);
    stderr_end();
    assert_int_equal(skipped, 20);
    assert_int_equal(count_of(stderr_text, place), WARNED);
    assert_int_equal(count_of(stderr_text, others), 1);
    last = strstr(stderr_text, others);
    assert_null(strstr(last, place));
}

static void where_no_sample_is_good_the_last_one_is_named(void **state)
{
    struct dp_samples *samples = open_labels("555");
    struct dp_sample_reader *reader = NULL;
    struct dp_log_capture capture;
    size_t skipped = 0;
    float x;
    int32_t label;
    (void)state;

    assert_int_equal(dp_sample_reader_create(samples, &reader), DP_OK);
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    assert_int_equal(dp_sample_reader_read_good(reader, DP_SET_TRAIN, 1, &x, &label, &skipped),
                     DP_ERR_DATA);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    dp_sample_reader_destroy(reader);
    dp_samples_close(samples);
    assert_int_equal(skipped, 1);
    assert_non_null(strstr(dp_log_captured(&capture), "train.csv: line 2"));
    assert_non_null(strstr(dp_log_captured(&capture), "; and so are those after it"));
    assert_int_equal(dp_mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_next_good_sample_is_taken_round_and_round,
                                        scratch_create_fast, scratch_destroy),
        cmocka_unit_test_setup_teardown(one_warning_names_the_sample_and_its_fault,
                                        scratch_create_fast, scratch_destroy),
        cmocka_unit_test_setup_teardown(each_bad_sample_of_both_sets_is_named, scratch_create_fast,
                                        scratch_destroy),
        cmocka_unit_test_setup_teardown(
            after_a_few_warnings_there_are_no_more_and_the_last_one_says_so, scratch_create_fast,
            scratch_destroy),
        cmocka_unit_test_setup_teardown(where_no_sample_is_good_the_last_one_is_named,
                                        scratch_create_fast, scratch_destroy),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests_name("bad_samples", tests, NULL, NULL);
}
