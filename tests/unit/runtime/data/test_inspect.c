/*
 * test_inspect.c - a folder of records is looked through: labels that cannot be trained on are
 * found, and what is read, in which time, is counted; by a clock that tests move.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/records/inspect.h"
#include "runtime/data/records/pack.h"
#include "tests/support/files/array_files.h"
#include "tests/support/files/picture_files.h"
#include "tests/support/scratch.h"

enum { ROWS = 300, FEATURES = 250, PICTURES = 7 };

/* Each look at the clock takes a millisecond. */
static const double look_s = 0.001;
static uint64_t looks;

int clock_gettime(clockid_t clock_id, struct timespec *tp)
{
    (void)clock_id;
    looks++;
    *tp = (struct timespec){(time_t)(looks / 1000), (long)(looks % 1000 * 1000000)};
    return 0;
}

static struct dp_records *pack_and_open(void)
{
    char from[512], to[512];
    const struct dp_pack_options options = {
        .from = from, .to = to, .shard_bytes = 150000, .threads = 1};
    struct dp_shard_store_config store = {.dir = to};
    struct dp_pack_result result;
    struct dp_records *records = NULL;

    (void)snprintf(from, sizeof(from), "%s", scratch_path("from"));
    (void)snprintf(to, sizeof(to), "%s", scratch_path("to"));
    assert_int_equal(dp_pack(&options, &result), DP_OK);
    assert_int_equal(dp_records_open(&store, &records), DP_OK);
    return records;
}

static struct dp_records *arrays_with_classes(void)
{
    static float numbers[ROWS * FEATURES];
    uint8_t labels[ROWS];

    (void)mkdir(scratch_path("from"), 0700);
    for (int i = 0; i < ROWS * FEATURES; i++) {
        numbers[i] = (float)i;
    }
    for (int i = 0; i < ROWS; i++) {
        labels[i] = (uint8_t)(i % 7);
    }
    npy_file(scratch_path("from"), "train_images.npy", "<f4", "(300, 250)", numbers,
             sizeof(numbers));
    npy_file(scratch_path("from"), "train_labels.npy", "|u1", "(300,)", labels, ROWS);
    npy_file(scratch_path("from"), "test_images.npy", "<f4", "(1, 250)", numbers,
             sizeof(float) * FEATURES);
    npy_file(scratch_path("from"), "test_labels.npy", "|u1", "(1,)", labels, 1);
    return pack_and_open();
}

/* Sizes that all differ. */
static struct dp_records *pictures(void)
{
    char name[64];

    (void)mkdir(scratch_path("from"), 0700);
    for (int i = 0; i < PICTURES; i++) {
        (void)snprintf(name, sizeof(name), "train/%c/%d.%s", "ab"[i % 2], i, i < 4 ? "png" : "jpg");
        picture_file(scratch_path("from"), name, 20 + 40 * i, 30, 3, 1);
    }
    picture_file(scratch_path("from"), "test/a/0.png", 4, 4, 3, 1);
    return pack_and_open();
}

/* ---- what was read ---- */

struct sums {
    uint64_t samples, stored, bytes;
    uint64_t stored_of_samples; /* each block as often as it has samples */
};

static struct sums sums_of(const struct dp_records *records, size_t blocks)
{
    struct dp_buffer stored = {0}, memory = {0};
    struct sums sums = {0};

    for (size_t i = 0; i < blocks; i++) {
        const struct dp_records_block *block = dp_records_block(records, DP_SET_TRAIN, i);
        struct dp_block_view view;
        assert_int_equal(dp_records_read(records, block, &stored, &memory, &view), DP_OK);
        sums.samples += view.samples;
        sums.stored += block->block.stored;
        sums.stored_of_samples += (uint64_t)view.samples * block->block.stored;
        for (uint32_t k = 0; k < view.samples; k++) {
            struct dp_raw raw;
            assert_int_equal(dp_records_sample(records, block, &view, block->first + k, &raw),
                             DP_OK);
            sums.bytes += raw.bytes;
        }
    }
    dp_buffer_release(&stored);
    dp_buffer_release(&memory);
    return sums;
}

static void assert_looks(double seconds, uint64_t expected)
{
    assert_int_equal((uint64_t)(seconds / look_s + 0.5), expected);
}

/* The times of so many blocks and samples; `ends`: the clock was looked at once more, to stop. */
static void assert_times(const struct dp_records_timing *t, uint64_t blocks, uint64_t decoded,
                         bool ends)
{
    assert_looks(t->take_s, blocks);
    assert_looks(t->check_s, blocks);
    assert_looks(t->expand_s, blocks);
    assert_looks(t->decode_s, decoded);
    assert_looks(t->seconds, 5 * blocks + t->samples + decoded + 1 + ends);
}

/* In order each block is taken once, shuffled once for each of its samples. */
static void assert_timing(struct dp_records *records, bool decodes)
{
    const size_t blocks = dp_records_blocks(records, DP_SET_TRAIN);
    const struct sums all = sums_of(records, blocks), first = sums_of(records, 1);
    struct dp_records_timing t;

    assert_int_equal(dp_records_time(records, false, 1e6, &t), DP_OK);
    assert_int_equal(t.samples, all.samples);
    assert_int_equal(t.stored_bytes, all.stored);
    assert_int_equal(t.sample_bytes, all.bytes);
    assert_times(&t, blocks, decodes ? all.samples : 0, false);
    assert_int_equal(dp_records_time(records, true, 1e6, &t), DP_OK);
    assert_int_equal(t.samples, all.samples);
    assert_int_equal(t.stored_bytes, all.stored_of_samples);
    assert_int_equal(t.sample_bytes, all.bytes);
    assert_times(&t, all.samples, decodes ? all.samples : 0, false);

    assert_int_equal(dp_records_time(records, false, 1.5 * look_s, &t), DP_OK);
    assert_int_equal(t.samples, first.samples);
    assert_int_equal(t.stored_bytes, first.stored);
    assert_times(&t, 1, decodes ? first.samples : 0, blocks > 1);
    assert_int_equal(dp_records_time(records, true, 1.5 * look_s, &t), DP_OK);
    assert_int_equal(t.samples, 1);
    assert_times(&t, 1, decodes, true);
    for (int shuffled = 0; shuffled < 2; shuffled++) {
        assert_int_equal(dp_records_time(records, shuffled == 1, look_s, &t), DP_OK);
        assert_int_equal(t.samples, 0); /* the time is over where it is reached */
        assert_times(&t, 0, 0, true);
    }
}

static void arrays_are_read_in_order_and_shuffled(void **state)
{
    struct dp_records *records = arrays_with_classes();
    (void)state;

    assert_true(dp_records_blocks(records, DP_SET_TRAIN) > 4);
    assert_timing(records, false);
    dp_records_close(records);
    assert_int_equal(dp_mem_live(), 0);
}

static void pictures_are_decoded_too(void **state)
{
    struct dp_records *records = pictures();
    (void)state;

    assert_timing(records, true);
    dp_records_close(records);
    assert_int_equal(dp_mem_live(), 0);
}

/* ---- labels ---- */

static void assert_verified(struct dp_records *records, const char *words)
{
    struct dp_log_capture capture;
    dp_status status;

    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = dp_records_verify(records);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    dp_records_close(records);
    assert_int_equal(status, words == NULL ? DP_OK : DP_ERR_DATA);
    if (words != NULL && strstr(dp_log_captured(&capture), words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", dp_log_captured(&capture), words);
    }
    assert_int_equal(dp_mem_live(), 0);
}

/* Packed are 0 to 6. */
static void labels_that_are_no_class_are_found(void **state)
{
    struct dp_records *records = arrays_with_classes();
    (void)state;

    assert_verified(records, NULL);
    for (int classes = 5; classes <= 8; classes++) {
        const struct dp_shard_store_config store = {.dir = scratch_path("to")};
        struct dp_records_index_file file;
        char words[64];
        assert_int_equal(dp_records_index_read(store.dir, &file), DP_OK);
        file.index.classes = classes;
        assert_int_equal(dp_records_index_save(&file.index, store.dir), DP_OK);
        dp_records_index_release(&file);
        (void)snprintf(words, sizeof(words), ": label %d is not one of 0 to %d", classes,
                       classes - 1);
        assert_int_equal(dp_records_open(&store, &records), DP_OK);
        assert_verified(records, classes < 7 ? words : NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(arrays_are_read_in_order_and_shuffled, scratch_create_fast,
                                        scratch_destroy),
        cmocka_unit_test_setup_teardown(pictures_are_decoded_too, scratch_create_fast,
                                        scratch_destroy),
        cmocka_unit_test_setup_teardown(labels_that_are_no_class_are_found, scratch_create_fast,
                                        scratch_destroy),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests_name("inspect", tests, NULL, NULL);
}
