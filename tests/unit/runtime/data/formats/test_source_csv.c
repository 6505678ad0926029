/* test_source_csv.c - lines become samples; one that cannot be read is named by its number. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "tests/support/files/picture_files.h"
#include "tests/support/files/read_source.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/test_source_csv.XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    remove_tree(folder);
    return 0;
}

static void write_text(const char *name, const char *text)
{
    write_bytes(folder, name, text, strlen(text));
}

static struct dp_source_config usual(void)
{
    return (struct dp_source_config){.dir = folder, .input = {.count = 2}, .classes = 3};
}

static void assert_numbers(const struct outcome *o, enum dp_set set, size_t row, float a, float b,
                           int label)
{
    float numbers[2];

    memcpy(numbers, o->images[set] + row * o->bytes, sizeof(numbers));
    assert_true(numbers[0] == a && numbers[1] == b);
    assert_int_equal(o->labels[set][row], label);
}

static void lines_are_samples_with_a_header_or_without(void **state)
{
    struct dp_source_config config = usual();
    struct outcome o;
    (void)state;

    write_text("train.csv", "\xef\xbb\xbf"
                            "1,2,3\r\n0,4,5\r\n2.0,6,7\r\n\r\n");
    write_text("test.csv", "label,x,y\n1,8,9");
    o = run_source_well("csv", &config);
    assert_int_equal(o.info.count[DP_SET_TRAIN], 3);
    assert_int_equal(o.info.count[DP_SET_TEST], 1);
    assert_numbers(&o, DP_SET_TRAIN, 0, 2, 3, 1);
    assert_numbers(&o, DP_SET_TRAIN, 2, 6, 7, 2);
    assert_numbers(&o, DP_SET_TEST, 0, 8, 9, 1);
    outcome_free(&o);
    write_text("test.csv", "\xef\xbb\xbf"
                           "1,8,9"); /* one line without an end */
    o = run_source_well("csv", &config);
    assert_int_equal(o.info.count[DP_SET_TEST], 1);
    assert_numbers(&o, DP_SET_TEST, 0, 8, 9, 1);
    outcome_free(&o);
    write_text("train.csv", "x;y;label\n2;3;1\n");
    write_text("test.csv", "4,5,0\n");
    config.label_last = true;
    o = run_source_well("csv", &config);
    assert_numbers(&o, DP_SET_TRAIN, 0, 2, 3, 1);
    assert_numbers(&o, DP_SET_TEST, 0, 4, 5, 0);
    outcome_free(&o);
}

static void bad_lines_are_named_by_their_number(void **state)
{
    const struct dp_source_config config = usual();
    (void)state;

    write_text("test.csv", "1,8,9\n");
    write_text("train.csv", "y,a,b\n1,2,3\n1,2\n");
    assert_source_refuses("csv", &config, DP_ERR_DATA,
                          "train.csv: line 3: has 2 fields, the first line has 3");
    write_text("train.csv", "1,2,3\n1,2,x\n");
    assert_source_refuses("csv", &config, DP_ERR_DATA, "line 2: field 3 is no number: 'x'");
    write_text("train.csv", "1,2,3\n3,2,1\n");
    assert_source_refuses("csv", &config, DP_ERR_DATA, "line 2: label 3 is not one of 0 to 2");
    write_text("train.csv", "1,2,3\n0.5,2,1\n");
    assert_source_refuses("csv", &config, DP_ERR_DATA, "line 2: label 0.5 is not one of");
    write_text("train.csv", "1,2,3\n\n1,2,3\n");
    assert_source_refuses("csv", &config, DP_ERR_DATA, "train.csv: line 2 is empty");
    write_text("train.csv", "y,a,b\ncat,2,3\n");
    assert_source_refuses("csv", &config, DP_ERR_DATA,
                          "line 2: field 1 is no number: 'cat': the label is a number, of classes "
                          "from 0 up");
    write_text("train.csv", "1;2,5;3,5\n");
    write_text("test.csv", "1;8;9\n");
    assert_source_refuses("csv", &config, DP_ERR_DATA,
                          "line 1: field 2 is no number: '2,5': write decimals with a point");
}

/* Each says what to do about it. */
static void usual_mistakes_of_tables_are_explained(void **state)
{
    static const struct {
        const char *train, *words;
    } cases[] = {
        {"y,a,b\n1,2,3,\n", "line 2: has 4 fields, the first line has 3: take out the separator"},
        {"1,2,3,\n0,4,5,\n", "train.csv: line 1: ends with a separator, so that field 4 is empty"},
        {"y,a,b,\n0,4,5,\n", "train.csv: line 1: ends with a separator, so that field 4 is empty"},
        {"y,a,b\n1,2,\n", "line 2: field 3 is empty: fill it in, or take the line out (pandas: "
                          "fillna, dropna); where every line ends so, take that separator out"},
        {"y,a,b\n1,,3\n", "line 2: field 2 is empty: fill it in, or take the line out"},
        {"y,a,b\n1,NaN,3\n", "line 2: field 2 is no number: 'NaN': fill it in, or take the line"},
        {"y,a,b\n1,\"1,234\",3\n", "field 2 is no number: '1,234': write decimals with a point"},
        {"a,b,y\n1,2,cat\n", "field 3 is no number: 'cat': if it is the label, set data.label to "
                             "last, and write a number for each class"},
        {",y,a,b\n0,1,2,3\n", "its first column has no name, as row numbers of pandas and R: leave "
                              "them out (index=False, "},
        {"y,a,b\n3,2,3\n", "label 3 is not one of 0 to 2, for which the model has outputs: classes "
                           "count from 0: give the model one more, or subtract 1"},
        {"y,a,b\n0.5,2,3\n", "label 0.5 is not one of 0 to 2, for which the model has outputs: "
                             "classes are whole numbers"},
        {"1990,1991,1992\n1,2,3\n", "line 1 (no header, since it has numbers): label 1990 is not "},
    };
    const struct dp_source_config config = usual();
    (void)state;

    write_text("test.csv", "1,8,9\n");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_text("train.csv", cases[i].train);
        assert_source_refuses("csv", &config, DP_ERR_DATA, cases[i].words);
    }
}

static void numbers_have_no_size_to_change(void **state)
{
    struct dp_source_config config = usual();
    (void)state;

    config.resize = DP_RESIZE_CROP;
    write_text("train.csv", "1,2,3\n");
    write_text("test.csv", "1,8,9\n");
    assert_source_refuses("csv", &config, DP_ERR_CONFIG,
                          "data.resize: samples of /tmp/test_source_csv.");
}

static void what_is_no_text_of_lines_is_refused(void **state)
{
    const struct dp_source_config config = usual();
    (void)state;

    write_bytes(folder, "train.csv",
                "\xff\xfe"
                "1\0,\0002\0\n\0",
                10);
    assert_source_refuses("csv", &config, DP_ERR_DATA, "train.csv: is no text, or one in UTF-16");
    write_text("train.csv", "1,2,3\r0,4,5\r");
    assert_source_refuses("csv", &config, DP_ERR_DATA, "train.csv: its lines end with CR alone");
    remove_file(folder, "train.csv");
    write_text("train.csv.gz", "");
    assert_source_refuses("csv", &config, DP_ERR_NOINPUT,
                          "no train.csv: unpack train.csv.gz there");
    remove_file(folder, "train.csv.gz");
}

/* pandas writes it, where nobody says header=False. */
static void a_header_that_looks_like_a_row_is_a_warning(void **state)
{
    const struct dp_source_config config = usual();
    struct dp_samples *samples = NULL;
    (void)state;

    write_text("test.csv", "1,8,9\n");
    for (int i = 0; i < 3; i++) {
        write_text("train.csv", i == 0 ? "0,1,2\n1,4,5\n" : "0,1,3\n1,4,5\n");
        write_text("test.csv", i == 1 ? "2,0,1\n1,4,5\n" : "0,1,3\n1,4,5\n");
        assert_int_equal(dp_samples_open("csv", &config, &samples), DP_OK);
        assert_int_equal(strstr(dp_samples_info(samples)->note, "header=False") != NULL, i < 2);
        assert_int_equal(strstr(dp_samples_info(samples)->note, "test.csv") != NULL, i == 1);
        dp_samples_close(samples);
    }
}

static void a_folder_that_is_none_is_reported(void **state)
{
    static const char *const sources[] = {"csv", "npy", "cifar10", "records", "idx", "folder"};
    struct dp_source_config config = {.classes = 3};
    char path[128];
    (void)state;

    write_text("data.zip", "PK");
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s/data.zip", folder);
        config.dir = path;
        assert_source_refuses(sources[i], &config, DP_ERR_NOINPUT, "unpack an archive");
        (void)snprintf(path, sizeof(path), "%s/nowhere", folder);
        assert_source_refuses(sources[i], &config, DP_ERR_NOINPUT,
                              strcmp(sources[i], "folder") == 0 ? "nowhere: No such file"
                                                                : ", nor such a folder: ");
    }
    remove_file(folder, "data.zip");
}

static void files_that_do_not_fit_are_refused(void **state)
{
    struct dp_source_config config = usual();
    (void)state;

    write_text("train.csv", "");
    assert_source_refuses("csv", &config, DP_ERR_DATA, "train.csv: is empty");
    write_text("train.csv", "label,x,y\n");
    assert_source_refuses("csv", &config, DP_ERR_DATA, "train.csv: has no rows");
    write_text("train.csv", "1\n2\n");
    assert_source_refuses("csv", &config, DP_ERR_DATA, "one field: a label and numbers are wanted");
    write_text("train.csv", "1,2,3\n");
    write_text("test.csv", "1,2,3,4\n");
    assert_source_refuses("csv", &config, DP_ERR_DATA, "has 4 fields a line, and ");
    write_text("test.csv", "1,2,3\n");
    config.input.count = 784;
    assert_source_refuses("csv", &config, DP_ERR_DATA,
                          "rows of 2 numbers do not fit model.input of 784: change "
                          "model.input to [2]");
    remove_file(folder, "test.csv");
    config = usual();
    assert_source_refuses("csv", &config, DP_ERR_DATA, "set data.test_fraction");
    remove_file(folder, "train.csv");
    assert_source_refuses("csv", &config, DP_ERR_NOINPUT, "no train.csv: put it there");
    config.dir = NULL;
    assert_source_refuses("csv", &config, DP_ERR_CONFIG, "data.dir: source csv needs");
}

static void labels_are_numbers_for_a_loss_that_compares_them(void **state)
{
    struct dp_source_config config = usual();
    struct outcome o;
    (void)state;

    config.classes = 0;
    config.targets = 1;
    write_text("train.csv", "-0.25,2,3\n1e3,4,5\n");
    write_text("test.csv", "7,8,9\n");
    o = run_source_well("csv", &config);
    assert_int_equal(o.info.targets, 1);
    assert_true(label_number(&o, DP_SET_TRAIN, 0, 0) == -0.25f);
    assert_true(label_number(&o, DP_SET_TRAIN, 1, 0) == 1000.0f);
    assert_true(label_number(&o, DP_SET_TEST, 0, 0) == 7.0f);
    outcome_free(&o);
    config.shares = true;
    assert_source_refuses("csv", &config, DP_ERR_DATA,
                          "train.csv: line 1 (no header, since it has numbers): number 0 of its "
                          "label (counted from 0) is -0.25: "
                          "train.loss binary_cross_entropy needs 0 to 1");
    config.shares = false;
    write_text("train.csv", "1e39,2,3\n");
    assert_source_refuses("csv", &config, DP_ERR_DATA, "is 1e+39: numbers of float32 are wanted");
}

static void a_label_may_have_a_number_for_each_output(void **state)
{
    static const float first[] = {0.5f, -1, 7};
    struct dp_source_config config = usual();
    struct outcome o;
    float numbers[2];
    (void)state;

    config.targets = 3;
    config.label_last = true;
    write_text("train.csv", "x,y,a,b,c\n1,2,0.5,-1,7\n3,4,1,0,0\n");
    write_text("test.csv", "5,6,8,9,10\n");
    o = run_source_well("csv", &config);
    assert_int_equal(o.info.targets, 3);
    assert_int_equal(o.bytes, sizeof(numbers));
    memcpy(numbers, o.images[DP_SET_TRAIN] + o.bytes, sizeof(numbers));
    assert_true(numbers[0] == 3 && numbers[1] == 4);
    for (size_t k = 0; k < 3; k++) {
        assert_true(label_number(&o, DP_SET_TRAIN, 0, k) == first[k]);
        assert_true(label_number(&o, DP_SET_TRAIN, 1, k) == (k == 0 ? 1.0f : 0.0f));
        assert_true(label_number(&o, DP_SET_TEST, 0, k) == 8.0f + (float)k);
    }
    outcome_free(&o);
    config.label_last = false;
    o = run_source_well("csv", &config);
    assert_true(label_number(&o, DP_SET_TEST, 0, 2) == 8.0f);
    outcome_free(&o);
    write_text("train.csv", "2,3,4\n1,5,6\n"); /* one field more than inputs: a class */
    write_text("test.csv", "0,8,9\n");
    o = run_source_well("csv", &config);
    assert_int_equal(o.info.targets, 0);
    assert_numbers(&o, DP_SET_TRAIN, 0, 3, 4, 2);
    outcome_free(&o);
    write_text("train.csv", "3,3,4\n");
    assert_source_refuses("csv", &config, DP_ERR_DATA, ": label 3 is not one of 0 to 2");
    write_text("train.csv", "1,2,3,4\n");
    assert_source_refuses("csv", &config, DP_ERR_DATA,
                          "train.csv: has 4 fields a line: for 2 inputs and 3 outputs of the model "
                          "write 5, or 3 with a class as the label");
    write_text("train.csv", "1,2,3,4,5,\n");
    assert_source_refuses("csv", &config, DP_ERR_DATA,
                          "train.csv: line 1: ends with a separator, so that field 6 is empty");
}

enum { LINES = 70000 }; /* in several blocks, and pieces of a MiB */

/* Line i has i % 3, i + first, and -i - 1/2. The last one has an end or none. */
static void write_long(const char *name, int first, bool ends)
{
    char *text = malloc((size_t)LINES * 32);
    size_t used = 0;

    if (text == NULL) {
        abort();
    }
    for (int i = 0; i < LINES; i++) {
        used += (size_t)snprintf(text + used, 32, "%d,%d,-%d.5\n", i % 3, i + first, i);
    }
    write_bytes(folder, name, text, ends ? used : used - 1);
    free(text);
}

static void assert_line(struct dp_sample_reader *reader, enum dp_set set, int i, int first)
{
    float numbers[2];
    int32_t label;

    assert_int_equal(dp_sample_reader_read(reader, set, (size_t)i, numbers, &label), DP_OK);
    assert_int_equal(label, i % 3);
    assert_true(numbers[0] == (float)(i + first) && numbers[1] == (float)-i - 0.5f);
}

/* Blocks are read by several threads, in any order: a reader may begin with any of any set. */
static void lines_of_all_blocks_are_read_in_any_order(void **state)
{
    enum { FAR = 1000000 };
    struct dp_source_config config = usual();
    struct dp_samples *samples = NULL;
    struct dp_sample_reader *reader = NULL;
    (void)state;

    write_long("train.csv", 0, true);
    write_long("test.csv", FAR, true);
    assert_int_equal(dp_samples_open("csv", &config, &samples), DP_OK);
    assert_int_equal(dp_sample_reader_create(samples, &reader), DP_OK);
    for (int k = 0; k < LINES; k += 7) {
        assert_line(reader, DP_SET_TRAIN, k * 7919 % LINES, 0);
        if (k % 5 == 0) {
            assert_line(reader, DP_SET_TEST, k, FAR);
        }
    }
    dp_sample_reader_destroy(reader);
    for (int i = 0; i < LINES; i += 1000) {
        for (int set = 0; set < DP_SETS; set++) {
            assert_int_equal(dp_sample_reader_create(samples, &reader), DP_OK);
            assert_line(reader, (enum dp_set)set, i, set == DP_SET_TRAIN ? 0 : FAR);
            dp_sample_reader_destroy(reader);
        }
    }
    dp_samples_close(samples);
    assert_int_equal(dp_mem_live(), 0);
}

/* Behind it lies what is left of a longer block. */
static void a_last_line_without_end_ends_with_the_file(void **state)
{
    struct dp_source_config config = usual();
    struct dp_samples *samples = NULL;
    struct dp_sample_reader *reader = NULL;
    (void)state;

    write_long("train.csv", 0, false);
    write_long("test.csv", 0, true);
    assert_int_equal(dp_samples_open("csv", &config, &samples), DP_OK);
    assert_int_equal(dp_sample_reader_create(samples, &reader), DP_OK);
    for (int i = 0; i < LINES; i += 5000) {
        assert_line(reader, DP_SET_TRAIN, i, 0);
        assert_line(reader, DP_SET_TRAIN, LINES - 1, 0);
    }
    dp_sample_reader_destroy(reader);
    dp_samples_close(samples);
}

/* Which a file that has changed meanwhile shows. */
static void a_block_is_read_once_for_all_lines_that_are_asked_for_in_turn(void **state)
{
    struct dp_source_config config = usual();
    struct dp_samples *samples = NULL;
    struct dp_sample_reader *reader = NULL;
    char path[96];
    (void)state;

    write_long("train.csv", 0, true);
    write_long("test.csv", 0, true);
    assert_int_equal(dp_samples_open("csv", &config, &samples), DP_OK);
    assert_int_equal(dp_sample_reader_create(samples, &reader), DP_OK);
    assert_line(reader, DP_SET_TRAIN, 0, 0);
    (void)snprintf(path, sizeof(path), "%s/train.csv", folder);
    assert_int_equal(truncate(path, 0), 0);
    for (int i = 0; i < 100; i++) {
        assert_line(reader, DP_SET_TRAIN, i, 0);
    }
    dp_sample_reader_destroy(reader);
    dp_samples_close(samples);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_samples_with_a_header_or_without),
        cmocka_unit_test(bad_lines_are_named_by_their_number),
        cmocka_unit_test(usual_mistakes_of_tables_are_explained),
        cmocka_unit_test(numbers_have_no_size_to_change),
        cmocka_unit_test(what_is_no_text_of_lines_is_refused),
        cmocka_unit_test(a_header_that_looks_like_a_row_is_a_warning),
        cmocka_unit_test(a_folder_that_is_none_is_reported),
        cmocka_unit_test(files_that_do_not_fit_are_refused),
        cmocka_unit_test(labels_are_numbers_for_a_loss_that_compares_them),
        cmocka_unit_test(a_label_may_have_a_number_for_each_output),
        cmocka_unit_test(lines_of_all_blocks_are_read_in_any_order),
        cmocka_unit_test(a_last_line_without_end_ends_with_the_file),
        cmocka_unit_test(a_block_is_read_once_for_all_lines_that_are_asked_for_in_turn),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
