/*
 * test_sample_names.c - messages name a sample by the file and the place where it lies, whatever
 * the source, and however samples are counted by those who train.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/records/pack.h"
#include "runtime/data/samples.h"
#include "runtime/data/split.h"
#include "tests/support/files/array_files.h"
#include "tests/support/scratch.h"

/* More than a block has: of 4 KB each. */
enum { ROWS = 20, FEATURES = 1000 };

struct named {
    enum dp_set set;
    size_t i;
    const char *name, *label; /* after the folder; label NULL: as the name */
};

static void assert_named(struct dp_samples *samples, const struct named *n, const char *before)
{
    char text[600], expected[600];

    dp_samples_name(samples, n->set, n->i, text, sizeof(text));
    (void)snprintf(expected, sizeof(expected), "%s%s", before, n->name);
    assert_string_equal(text, expected);
    dp_samples_name_label(samples, n->set, n->i, text, sizeof(text));
    (void)snprintf(expected, sizeof(expected), "%s%s", before,
                   n->label != NULL ? n->label : n->name);
    assert_string_equal(text, expected);
}

static void assert_all_named(const char *source, struct dp_source_config config,
                             const struct named *names, size_t count)
{
    struct dp_samples *samples = NULL;
    char dir[512];

    (void)snprintf(dir, sizeof(dir), "%s", config.dir == NULL ? scratch_folder : config.dir);
    config.dir = dir;
    assert_int_equal(dp_samples_open(source, &config, &samples), DP_OK);
    for (size_t i = 0; i < count; i++) {
        assert_named(samples, &names[i], dir);
    }
    dp_samples_close(samples);
    assert_int_equal(dp_mem_live(), 0);
}

static void write_text(const char *name, const char *text)
{
    scratch_write(scratch_path(name), text, strlen(text));
}

static void write_arrays(void)
{
    static float numbers[ROWS * FEATURES];
    static const uint8_t labels[ROWS];

    npy_file(scratch_folder, "train_images.npy", "<f4", "(20, 1000)", numbers, sizeof(numbers));
    npy_file(scratch_folder, "train_labels.npy", "|u1", "(20,)", labels, ROWS);
    npy_file(scratch_folder, "test_images.npy", "<f4", "(2, 1000)", numbers,
             2 * sizeof(float) * FEATURES);
    npy_file(scratch_folder, "test_labels.npy", "|u1", "(2,)", labels, 2);
}

/* With a header, and without one. */
static void rows_of_csv_are_lines_counted_from_1(void **state)
{
    static const struct named names[] = {
        {DP_SET_TRAIN, 0, "/train.csv: line 2", NULL},
        {DP_SET_TRAIN, 2, "/train.csv: line 4", NULL},
        {DP_SET_TEST, 0, "/test.csv: line 1",
         "/test.csv: line 1 (no header, since it has numbers)"},
        {DP_SET_TEST, 1, "/test.csv: line 2", NULL},
    };
    (void)state;

    write_text("train.csv", "label,x\n0,1\n1,2\n0,3\n");
    write_text("test.csv", "1,4\n0,5\n");
    assert_all_named("csv", (struct dp_source_config){0}, names, sizeof(names) / sizeof(names[0]));
}

static void rows_of_cifar10_are_images_of_a_batch(void **state)
{
    static const struct named names[] = {
        {DP_SET_TRAIN, 2, "/data_batch_1.bin: image 2 (counted from 0)", NULL},
        {DP_SET_TRAIN, 3, "/data_batch_2.bin: image 0 (counted from 0)", NULL},
        {DP_SET_TRAIN, 4, "/data_batch_2.bin: image 1 (counted from 0)", NULL},
        {DP_SET_TEST, 0, "/test_batch.bin: image 0 (counted from 0)", NULL},
    };
    (void)state;

    cifar10_file(scratch_folder, "data_batch_1.bin", 3, 0);
    cifar10_file(scratch_folder, "data_batch_2.bin", 2, 3);
    cifar10_file(scratch_folder, "test_batch.bin", 1, 5);
    assert_all_named("cifar10", (struct dp_source_config){0}, names,
                     sizeof(names) / sizeof(names[0]));
}

static void rows_of_arrays_and_their_labels_have_files_of_their_own(void **state)
{
    static const struct named names[] = {
        {DP_SET_TRAIN, 19, "/train_images.npy: row 19 (counted from 0)",
         "/train_labels.npy: row 19 (counted from 0)"},
        {DP_SET_TEST, 1, "/test_images.npy: row 1 (counted from 0)",
         "/test_labels.npy: row 1 (counted from 0)"},
    };
    (void)state;

    write_arrays();
    assert_all_named("npy", (struct dp_source_config){0}, names, sizeof(names) / sizeof(names[0]));
}

/* A block has 16 of them, and a shard two. */
static void samples_of_records_have_a_shard_and_a_block(void **state)
{
    static const struct named names[] = {
        {DP_SET_TRAIN, 15,
         "/shard-00000.rec: block 0, sample 15 of it (sample 15 of the training set, counted from "
         "0)",
         NULL},
        {DP_SET_TRAIN, 18,
         "/shard-00000.rec: block 1, sample 2 of it (sample 18 of the training set, counted from "
         "0)",
         NULL},
        {DP_SET_TEST, 1,
         "/shard-00001.rec: block 0, sample 1 of it (sample 1 of the test set, counted from 0)",
         NULL},
    };
    char to[512];
    const struct dp_pack_options options = {
        .from = scratch_folder, .to = to, .shard_bytes = 1 << 20, .threads = 1};
    struct dp_pack_result result;
    (void)state;

    (void)snprintf(to, sizeof(to), "%s", scratch_path("packed"));
    write_arrays();
    assert_int_equal(dp_pack(&options, &result), DP_OK);
    assert_all_named("records", (struct dp_source_config){.dir = to}, names,
                     sizeof(names) / sizeof(names[0]));
}

/* One of five is; the others move up. */
static void samples_that_are_held_out_are_named_by_their_rows(void **state)
{
    const struct dp_source_config config = {.dir = scratch_folder, .test_fraction = 0.2};
    const struct dp_split split = dp_split_of(5, 0.2);
    struct dp_samples *samples = NULL;
    char name[64];
    (void)state;

    write_text("train.csv", "label,x\n0,1\n1,2\n0,3\n1,4\n0,5\n");
    assert_int_equal(dp_samples_open("csv", &config, &samples), DP_OK);
    (void)snprintf(name, sizeof(name), "/train.csv: line %zu", dp_split_test_row(&split, 0) + 2);
    assert_named(samples, &(struct named){DP_SET_TEST, 0, name, NULL}, scratch_folder);
    for (size_t i = 0; i < 4; i++) {
        (void)snprintf(name, sizeof(name), "/train.csv: line %zu",
                       dp_split_train_row(&split, i) + 2);
        assert_named(samples, &(struct named){DP_SET_TRAIN, i, name, NULL}, scratch_folder);
    }
    dp_samples_close(samples);
}

static void samples_without_files_are_counted(void **state)
{
    static const struct named names[] = {
        {DP_SET_TRAIN, 3, ": sample 3 (counted from 0) of the training set", NULL},
        {DP_SET_TEST, 0, ": sample 0 (counted from 0) of the test set", NULL},
    };
    struct dp_source_config config = {
        .input = {.count = 4}, .classes = 2, .samples = 4, .test_samples = 1};
    struct dp_samples *samples = NULL;
    (void)state;

    for (int i = 0; i < 2; i++) {
        config.dir = i == 0 ? NULL : "";
        assert_int_equal(dp_samples_open("synthetic", &config, &samples), DP_OK);
        assert_named(samples, &names[i], "synthetic");
        dp_samples_close(samples);
    }
    config.dir = "any";
    assert_int_equal(dp_samples_open("synthetic", &config, &samples), DP_OK);
    assert_named(samples, &names[0], "any");
    dp_samples_close(samples);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rows_of_csv_are_lines_counted_from_1, scratch_create_fast,
                                        scratch_destroy),
        cmocka_unit_test_setup_teardown(rows_of_cifar10_are_images_of_a_batch, scratch_create_fast,
                                        scratch_destroy),
        cmocka_unit_test_setup_teardown(rows_of_arrays_and_their_labels_have_files_of_their_own,
                                        scratch_create_fast, scratch_destroy),
        cmocka_unit_test_setup_teardown(samples_of_records_have_a_shard_and_a_block,
                                        scratch_create_fast, scratch_destroy),
        cmocka_unit_test_setup_teardown(samples_that_are_held_out_are_named_by_their_rows,
                                        scratch_create_fast, scratch_destroy),
        cmocka_unit_test(samples_without_files_are_counted),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests_name("sample_names", tests, NULL, NULL);
}
