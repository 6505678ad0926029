/* test_source_npy.c - arrays are read as they are; what does not fit together says what would. */
#include <float.h>
#include <math.h>
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
#include "tests/support/files/array_files.h"
#include "tests/support/files/picture_files.h"
#include "tests/support/files/read_source.h"

enum { ROWS = 6, TEST_ROWS = 2, SIDE = 4, PIXELS = SIDE * SIDE * 3, FEATURES = 5 };

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/test_source_npy.XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    remove_tree(folder);
    return 0;
}

static void write_labels(const char *name, const char *shape, const int64_t *labels, size_t count)
{
    npy_file(folder, name, "<i8", shape, labels, count * sizeof(*labels));
}

/* Images of bytes, NHWC. */
static void write_images(void)
{
    static const int64_t labels[] = {0, 1, 2, 2, 1, 0};
    unsigned char bytes[ROWS * PIXELS];

    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (unsigned char)(i * 7);
    }
    npy_file(folder, "train_images.npy", "|u1", "(6, 4, 4, 3)", bytes, sizeof(bytes));
    npy_file(folder, "test_images.npy", "|u1", "(2, 4, 4, 3)", bytes + 1,
             (size_t)TEST_ROWS * PIXELS);
    write_labels("train_labels.npy", "(6,)", labels, ROWS);
    write_labels("test_labels.npy", "(2, 1)", labels + 1, TEST_ROWS);
}

/* Rows of features, of float32; no test set. */
static void write_features(float odd)
{
    static const int64_t labels[] = {0, 1, 2, 2, 1, 0};
    float numbers[ROWS * FEATURES];

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        numbers[i] = (float)i - 2.5f;
    }
    numbers[3 * FEATURES + 2] = odd; /* row 3, number 2 */
    npy_file(folder, "train_images.npy", "<f4", "(6, 5)", numbers, sizeof(numbers));
    write_labels("train_labels.npy", "(6,)", labels, ROWS);
    remove_file(folder, "test_images.npy");
    remove_file(folder, "test_labels.npy");
}

static struct dp_source_config of_images(void)
{
    return (struct dp_source_config){
        .dir = folder,
        .input = {.height = SIDE, .width = SIDE, .channels = 3, .count = PIXELS},
        .classes = 3};
}

static struct dp_source_config of_features(void)
{
    return (struct dp_source_config){
        .dir = folder, .input = {.count = FEATURES}, .classes = 3, .test_fraction = 0.3};
}

static void images_and_labels_are_read_as_they_are(void **state)
{
    const struct dp_source_config config = of_images();
    struct outcome o;
    (void)state;

    write_images();
    o = run_source_well("npy", &config);
    assert_int_equal(o.info.count[DP_SET_TRAIN], ROWS);
    assert_int_equal(o.info.count[DP_SET_TEST], TEST_ROWS);
    assert_int_equal(o.info.shape.element, DP_ELEMENT_BYTE);
    for (size_t i = 0; i < (size_t)ROWS * PIXELS; i++) {
        assert_int_equal(o.images[DP_SET_TRAIN][i], i * 7 % 256);
    }
    assert_int_equal(o.labels[DP_SET_TRAIN][3], 2);
    assert_int_equal(o.labels[DP_SET_TEST][0], 1);
    assert_int_equal(o.images[DP_SET_TEST][0], 7);
    outcome_free(&o);
}

/* One to train on, and one to test with; a single one cannot be both. */
static void two_samples_are_enough_to_hold_one_out(void **state)
{
    struct dp_source_config config = of_features();
    const float rows[2 * FEATURES] = {1};
    struct outcome o;
    (void)state;

    write_features(1.0f);
    npy_file(folder, "train_images.npy", "<f4", "(2, 5)", rows, sizeof(rows));
    npy_file(folder, "train_labels.npy", "|u1", "(2,)", "\1\2", 2);
    o = run_source_well("npy", &config);
    assert_int_equal(o.info.count[DP_SET_TRAIN], 1);
    assert_int_equal(o.info.count[DP_SET_TEST], 1);
    outcome_free(&o);
    npy_file(folder, "train_images.npy", "<f4", "(1, 5)", rows, sizeof(rows) / 2);
    npy_file(folder, "train_labels.npy", "|u1", "(1,)", "\1", 1);
    assert_source_refuses("npy", &config, DP_ERR_DATA, "one sample cannot be split");
}

static void images_get_another_size_where_that_is_wanted(void **state)
{
    struct dp_source_config config = of_images();
    struct outcome o;
    (void)state;

    write_images();
    config.input = (struct dp_sample_shape){.height = 2, .width = 3, .channels = 1, .count = 6};
    assert_source_refuses("npy", &config, DP_ERR_DATA, "change model.input to [4, 4, 3]");
    config.resize = DP_RESIZE_BILINEAR;
    o = run_source_well("npy", &config);
    assert_int_equal(o.bytes, 6);
    outcome_free(&o);
}

static void features_of_float32_are_held_out_by_stretches(void **state)
{
    const struct dp_source_config config = of_features();
    struct outcome o;
    size_t seen = 0;
    (void)state;

    write_features(FLT_MAX);
    o = run_source_well("npy", &config);
    assert_int_equal(o.info.count[DP_SET_TRAIN], 4);
    assert_int_equal(o.info.count[DP_SET_TEST], 2);
    assert_int_equal(o.bytes, FEATURES * sizeof(float));
    for (int set = 0; set < DP_SETS; set++) { /* all rows, each once */
        for (size_t i = 0; i < o.info.count[set]; i++) {
            float first;
            memcpy(&first, o.images[set] + i * o.bytes, sizeof(first));
            const size_t row = (size_t)((first + 2.5f) / FEATURES);
            assert_false(seen >> row & 1);
            seen |= (size_t)1 << row;
        }
    }
    assert_int_equal(seen, (1 << ROWS) - 1);
    outcome_free(&o);
}

static void a_number_that_is_none_is_named_with_its_row(void **state)
{
    const struct dp_source_config config = of_features();
    (void)state;

    write_features((float)NAN);
    assert_source_refuses("npy", &config, DP_ERR_DATA,
                          "train_images.npy: row 3 (counted from 0): number 2 (counted from 0) is "
                          "not a number");
    write_features(-(float)INFINITY);
    assert_source_refuses("npy", &config, DP_ERR_DATA, "is infinite");
    write_features(0);
    npy_file(folder, "train_images.npy", "<f4", "(6, 5)",
             (const float[ROWS * FEATURES]){[FEATURES - 1] = (float)NAN}, 4L * ROWS * FEATURES);
    assert_source_refuses("npy", &config, DP_ERR_DATA,
                          "row 0 (counted from 0): number 4 (counted from 0) is not a number");
}

static void labels_that_the_model_lacks_are_named_with_their_row(void **state)
{
    struct dp_source_config config = of_features();
    static const double labels[] = {0, 1, 2, 2, 1.5, 0};
    (void)state;

    write_features(0);
    config.classes = 2; /* of rows 2 and 3, which have that label, one is held out to test with */
    assert_source_refuses("npy", &config, DP_ERR_DATA,
                          "train_labels.npy: row 3 (counted from 0): label 2 is not one of 0 to 1");
    config.classes = 3;
    npy_file(folder, "train_labels.npy", "<f8", "(6,)", labels, sizeof(labels));
    assert_source_refuses("npy", &config, DP_ERR_DATA, "label 1.5 is not one of 0 to 2");
    write_labels("train_labels.npy", "(6,)", (const int64_t[]){0, -1, 0, 0, 0, 0}, ROWS);
    assert_source_refuses("npy", &config, DP_ERR_DATA, "label -1 is not one");
}

static void files_that_do_not_go_together_are_refused(void **state)
{
    struct dp_source_config config = of_images();
    (void)state;

    write_images();
    write_labels("train_labels.npy", "(5,)", (const int64_t[]){0, 1, 2, 0, 1}, 5);
    assert_source_refuses("npy", &config, DP_ERR_DATA, "has 5 labels, and ");
    write_labels("train_labels.npy", "(6, 2)", (const int64_t[12]){0}, 12);
    assert_source_refuses("npy", &config, DP_ERR_DATA, "argmax(1)");
    write_images();
    npy_file(folder, "test_images.npy", "|u1", "(2, 4, 3, 4)", (const char[96]){0}, 96);
    assert_source_refuses("npy", &config, DP_ERR_DATA, "save both alike");
    npy_file(folder, "test_images.npy", "<f4", "(2, 4, 4, 3)", (const float[96]){0}, 384);
    assert_source_refuses("npy", &config, DP_ERR_DATA, "save both alike");
    remove_file(folder, "test_images.npy");
    assert_source_refuses("npy", &config, DP_ERR_NOINPUT, "no test_images.npy: ");
    remove_file(folder, "test_labels.npy");
    assert_source_refuses("npy", &config, DP_ERR_DATA, "set data.test_fraction");
}

static void arrays_of_other_types_and_shapes_are_refused(void **state)
{
    struct dp_source_config config = of_images();
    (void)state;

    write_images();
    npy_file(folder, "train_images.npy", "<f8", "(6, 2)", (const double[12]){0}, 96);
    assert_source_refuses("npy", &config, DP_ERR_DATA, "holds float64: save it with astype");
    npy_file(folder, "train_images.npy", "|i1", "(6, 2)", (const char[12]){0}, 12);
    assert_source_refuses("npy", &config, DP_ERR_DATA, "holds int8: ");
    npy_file(folder, "train_images.npy", "|u1", "(6,)", (const char[6]){0}, 6);
    assert_source_refuses("npy", &config, DP_ERR_DATA, "has 1 dimension: save it as");
    npy_file(folder, "train_images.npy", "|u1", "(6, 0)", "", 0);
    assert_source_refuses("npy", &config, DP_ERR_DATA, "a dimension of 0");
    npy_file(folder, "train_images.npy", "|u1", "(0, 48)", "", 0);
    npy_file(folder, "train_labels.npy", "|u1", "(0,)", "", 0);
    assert_source_refuses("npy", &config, DP_ERR_DATA, "has no rows");
    write_images();
    config.input = (struct dp_sample_shape){.height = 4, .width = 3, .channels = 4, .count = 48};
    assert_source_refuses("npy", &config, DP_ERR_DATA, "transpose(0, 2, 3, 1)");
    write_bytes(folder, "train_images.npy", "no array", 8);
    assert_source_refuses("npy", &config, DP_ERR_DATA, "is no .npy file");
    config.dir = "";
    assert_source_refuses("npy", &config, DP_ERR_CONFIG, "data.dir: source npy needs");
}

/* Between open() and the last row. */
static void a_file_that_gets_shorter_is_refused(void **state)
{
    const struct dp_source_config config = of_images();
    struct dp_sample_reader *reader = NULL;
    struct dp_samples *samples = NULL;
    unsigned char out[PIXELS];
    char path[128];
    int32_t label;
    (void)state;

    write_images();
    (void)snprintf(path, sizeof(path), "%s/train_images.npy", folder);
    assert_int_equal(dp_samples_open("npy", &config, &samples), DP_OK);
    assert_int_equal(dp_sample_reader_create(samples, &reader), DP_OK);
    assert_int_equal(dp_sample_reader_read(reader, DP_SET_TRAIN, 5, out, &label), DP_OK);
    assert_int_equal(truncate(path, 200), 0);
    assert_int_equal(dp_sample_reader_read(reader, DP_SET_TRAIN, 5, out, &label), DP_ERR_DATA);
    dp_sample_reader_destroy(reader);
    dp_samples_close(samples);
    assert_int_equal(dp_mem_live(), 0);
}

static void labels_are_numbers_for_a_loss_that_compares_them(void **state)
{
    static const float labels[ROWS * 2] = {0.5f, 0, 0.25f, 1, 1, 0, 0, 0, 1, 1, 0.75f, 0.125f};
    struct dp_source_config config = of_features();
    struct outcome o;
    (void)state;

    write_features(0);
    npy_file(folder, "train_labels.npy", "<f4", "(6, 2)", labels, sizeof(labels));
    assert_source_refuses("npy", &config, DP_ERR_DATA, "has 2 numbers a row, a label is one");
    config.targets = 2;
    config.shares = true;
    o = run_source_well("npy", &config);
    assert_int_equal(o.info.targets, 2);
    assert_int_equal(o.info.count[DP_SET_TRAIN] + o.info.count[DP_SET_TEST], ROWS);
    for (size_t i = 0; i < o.info.count[DP_SET_TRAIN]; i++) { /* some rows are held out */
        float first;
        memcpy(&first, o.images[DP_SET_TRAIN] + i * o.bytes, sizeof(first));
        const size_t row = (size_t)(first + 2.5f) / FEATURES;
        assert_true(label_number(&o, DP_SET_TRAIN, i, 0) == labels[2 * row]);
        assert_true(label_number(&o, DP_SET_TRAIN, i, 1) == labels[2 * row + 1]);
    }
    outcome_free(&o);
    config.targets = 3;
    assert_source_refuses("npy", &config, DP_ERR_DATA,
                          "train_labels.npy: has 2 numbers a row, the model has 3 outputs: give "
                          "its last dense layer units: 2, or save labels as [rows, 3]");
    config.targets = 1;
    assert_source_refuses("npy", &config, DP_ERR_DATA, "the model has 1 output: give");
    config.input.count = 1; /* of the model; rows have five */
    assert_source_refuses("npy", &config, DP_ERR_DATA, "the model has 1 output: give");
    config.input.count = FEATURES;
    npy_file(folder, "train_labels.npy", "<f4", "(6,)", labels, ROWS * sizeof(*labels));
    o = run_source_well("npy", &config);
    assert_int_equal(o.info.targets, 1);
    assert_true(label_number(&o, DP_SET_TEST, 0, 0) <= 1.0f);
    outcome_free(&o);
    config.targets = 2; /* classes, where the file has one number a row */
    assert_source_refuses("npy", &config, DP_ERR_DATA, "label 0.5 is not one of 0 to 2");
}

static void labels_of_both_sets_have_as_many_numbers(void **state)
{
    static const float labels[ROWS * 2] = {0};
    struct dp_source_config config = of_images();
    (void)state;

    write_images();
    config.targets = 2;
    npy_file(folder, "train_labels.npy", "<f4", "(6, 2)", labels, sizeof(labels));
    assert_source_refuses("npy", &config, DP_ERR_DATA, "has 1 numbers a row, and ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_and_labels_are_read_as_they_are),
        cmocka_unit_test(two_samples_are_enough_to_hold_one_out),
        cmocka_unit_test(images_get_another_size_where_that_is_wanted),
        cmocka_unit_test(features_of_float32_are_held_out_by_stretches),
        cmocka_unit_test(a_number_that_is_none_is_named_with_its_row),
        cmocka_unit_test(labels_that_the_model_lacks_are_named_with_their_row),
        cmocka_unit_test(files_that_do_not_go_together_are_refused),
        cmocka_unit_test(arrays_of_other_types_and_shapes_are_refused),
        cmocka_unit_test(a_file_that_gets_shorter_is_refused),
        cmocka_unit_test(labels_are_numbers_for_a_loss_that_compares_them),
        cmocka_unit_test(labels_of_both_sets_have_as_many_numbers),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
