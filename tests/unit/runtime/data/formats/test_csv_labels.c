/* test_csv_labels.c - which fields of a line are the label, and which files are no tables of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/files/picture_files.h"
#include "tests/support/files/read_source.h"
#include "tests/support/scratch.h"

struct row {
    size_t input, targets; /* that the model has; input 0: whatever there is */
    const char *text;      /* of both files */
    const char *words;     /* NULL: it is taken */
    size_t labels, count;  /* numbers of the label, 0: a class; and of the sample */
};

static struct dp_source_config config_of(const struct row *row)
{
    return (struct dp_source_config){.dir = scratch_folder,
                                     .input = {.count = row->input},
                                     .targets = row->targets,
                                     .label_last = true};
}

static void write_both(const char *text)
{
    write_bytes(scratch_folder, "train.csv", text, strlen(text));
    write_bytes(scratch_folder, "test.csv", text, strlen(text));
}

/* Of lines that are 1, 2, 3 ... */
static void assert_taken(const struct row *row)
{
    const struct dp_source_config config = config_of(row);
    struct outcome o = run_source_well("csv", &config);

    assert_int_equal(o.info.targets, row->labels);
    assert_int_equal(o.info.shape.count, row->count);
    assert_int_equal(o.info.classes, 0); /* is not known */
    for (size_t k = 0; k < row->labels; k++) {
        assert_true(label_number(&o, DP_SET_TRAIN, 0, k) == (float)(row->count + k + 1));
    }
    if (row->labels == 0) {
        assert_int_equal(o.labels[DP_SET_TRAIN][0], row->count + 1);
    }
    outcome_free(&o);
}

static void a_label_has_as_many_fields_as_the_model_compares(void **state)
{
    static const struct row rows[] = {
        {2, 0, "1,2,3\n", NULL, 0, 2},
        {2, 1, "1,2,3\n", NULL, 1, 2},
        {2, 1, "1,2,3,4\n", "rows of 3 numbers do not fit model.input of 2", 0, 0},
        {2, 2, "1,2,3\n", NULL, 0, 2}, /* a class */
        {2, 2, "1,2,3,4\n", NULL, 2, 2},
        {2, 2, "1,2,3,4,\n1,2,3,4,\n", "line 1: ends with a separator, so that field 5 is empty", 0,
         0},
        {2, 2, "1,2,\n1,2,\n", "line 2: field 3 is empty", 0, 0},
        {2, 3, "1,2,3,4,5\n", NULL, 3, 2},
        {2, 3, "1,2,3,4\n", "for 2 inputs and 3 outputs of the model write 5, or 3 with", 0, 0},
        {3, 2, "1,2\n", "for 3 inputs and 2 outputs of the model write 5, or 4 with", 0, 0},
        {1, 2, "1,2\n", NULL, 0, 1},
        {1, 2, "1,2,3\n", NULL, 2, 1},
        {1, 2, "1,2,3,4\n", "for 1 inputs and 2 outputs of the model write 3, or 2 with", 0, 0},
        {1, 0, "1,2,\n1,2,\n", "line 1: ends with a separator, so that field 3 is empty", 0, 0},
        {0, 0, "1,2,3\n", NULL, 0, 2},
        {0, 2, "1,2,3\n", NULL, 2, 1},
        {0, 2, "1,2\n", "has 2 fields a line, of which 2 were to be the label", 0, 0},
        {0, 3, "1,2\n", "has 2 fields a line, of which 3 were to be the label", 0, 0},
        {0, 0, "1,\n1,\n", "line 2: field 2 is empty", 0, 0},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        write_both(rows[i].text);
        if (rows[i].words == NULL) {
            assert_taken(&rows[i]);
        } else {
            const struct dp_source_config config = config_of(&rows[i]);
            assert_source_refuses("csv", &config, DP_ERR_DATA, rows[i].words);
        }
    }
}

/* A byte order mark is three bytes; other characters begin as it does. */
static void a_first_line_is_what_follows_the_mark(void **state)
{
    const struct row two = {.input = 2};
    struct dp_source_config config = config_of(&two);
    struct outcome o;
    (void)state;

    config.label_last = false;
    write_both("\xef\xbb\xa9,x,y\n1,2,3\n"); /* a header of three names */
    o = run_source_well("csv", &config);
    assert_int_equal(o.info.count[DP_SET_TRAIN], 1);
    outcome_free(&o);
    write_both("\xef\xbb\xbf\n1,2,3\r\n");
    assert_source_refuses("csv", &config, DP_ERR_DATA, "its first line has one field");
}

static void a_folder_may_have_a_name_of_one_character(void **state)
{
    const struct dp_source_config config = {.dir = "/", .input = {.count = 2}};
    (void)state;

    assert_source_refuses("csv", &config, DP_ERR_NOINPUT, "/: no train.csv: put it there");
}

/* The lines of a block that could not be read are not those of the one before. */
static void after_an_error_a_block_is_read_again(void **state)
{
    enum { LINES = 20000, EACH = 8 }; /* two blocks at least */
    const struct row two = {.input = 2};
    const struct dp_source_config config = config_of(&two);
    static char text[LINES * EACH + 1];
    struct dp_samples *samples = NULL;
    struct dp_sample_reader *reader = NULL;
    char path[96];
    float numbers[2];
    int32_t label;
    (void)state;

    for (size_t i = 0; i < LINES; i++) {
        (void)snprintf(text + i * EACH, EACH + 1, "%05zu,%d\n", i, 1);
    }
    for (size_t i = 0; i < LINES; i++) { /* "12,34,1" */
        text[i * EACH + 2] = ',';
    }
    write_both(text);
    assert_int_equal(dp_samples_open("csv", &config, &samples), DP_OK);
    assert_int_equal(dp_sample_reader_create(samples, &reader), DP_OK);
    assert_int_equal(dp_sample_reader_read(reader, DP_SET_TRAIN, 3, numbers, &label), DP_OK);
    assert_true(numbers[0] == 0 && numbers[1] == 3);
    (void)snprintf(path, sizeof(path), "%s/train.csv", scratch_folder);
    assert_int_equal(truncate(path, (off_t)(LINES - 10) * EACH), 0);
    assert_int_equal(dp_sample_reader_read(reader, DP_SET_TRAIN, LINES - 1, numbers, &label),
                     DP_ERR_DATA);
    assert_int_equal(dp_sample_reader_read(reader, DP_SET_TRAIN, 3, numbers, &label), DP_OK);
    assert_true(numbers[0] == 0 && numbers[1] == 3);
    dp_sample_reader_destroy(reader);
    dp_samples_close(samples);
    assert_int_equal(dp_mem_live(), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_create_fast, scratch_destroy)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_label_has_as_many_fields_as_the_model_compares),
        TEST(a_first_line_is_what_follows_the_mark),
        TEST(a_folder_may_have_a_name_of_one_character),
        TEST(after_an_error_a_block_is_read_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
