/*
 * test_block_cache.c - the threads of a rank share blocks of records: each is read and decompressed
 * once a window, no more memory is taken than was allowed, and samples stay what they are.
 */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "runtime/data/loader.h"
#include "runtime/data/records/block_cache.h"
#include "runtime/data/records/pack.h"
#include "runtime/data/sample_reader.h"
#include "runtime/data/window.h"
#include "tests/support/files/array_files.h"
#include "tests/support/files/picture_files.h"
#include "tests/support/held_mutexes.h"

enum {
    ROWS = 700,
    FEATURES = 300,
    TEST = 20,
    BATCH = 50,
    EPOCHS = 2,
    IN_BLOCK = 54, /* rows of 300 float32 and a label in 64 KB */
    WINDOW = 200,
    SEED = 5
};

static const size_t piece = 4096; /* of the cache's room */

static char root[64], packed[80];

/* ---- the cache alone ---- */

static void take(struct dp_block_cache *c, size_t block, enum dp_block_place expected)
{
    uint8_t *data;

    assert_int_equal(dp_block_cache_take(c, block, piece, false, &data), expected);
    assert_true((data == NULL) == (expected == DP_BLOCK_ELSEWHERE));
    if (data == NULL) {
        return;
    }
    if (expected == DP_BLOCK_NEW) {
        memset(data, (int)block, piece);
        dp_block_cache_filled(c, block, true);
    } else {
        assert_int_equal(data[piece - 1], (uint8_t)block);
    }
}

static void take_and_give(struct dp_block_cache *c, size_t block, enum dp_block_place expected)
{
    take(c, block, expected);
    dp_block_cache_give(c, block);
}

static struct dp_block_cache *cache_of(size_t most, size_t bytes)
{
    struct dp_block_cache *c;

    assert_int_equal(dp_block_cache_create(9, most, bytes, &c), DP_OK);
    return c;
}

static void what_was_not_used_for_longest_makes_room(void **state)
{
    struct dp_block_cache *c = cache_of(9, 3 * piece + 100);
    (void)state;

    for (size_t block = 0; block < 3; block++) {
        take_and_give(c, block, DP_BLOCK_NEW);
    }
    take_and_give(c, 0, DP_BLOCK_KEPT);
    take_and_give(c, 3, DP_BLOCK_NEW);
    take_and_give(c, 0, DP_BLOCK_KEPT);
    take_and_give(c, 2, DP_BLOCK_KEPT);
    take_and_give(c, 1, DP_BLOCK_NEW);
    assert_int_equal(dp_mem_bytes(DP_MEM_KEPT), 3 * piece);
    dp_block_cache_destroy(c);
    assert_int_equal(dp_mem_live(), 0);
}

static void what_is_in_use_stays(void **state)
{
    struct dp_block_cache *c = cache_of(9, 2 * piece);
    (void)state;

    take(c, 0, DP_BLOCK_NEW);
    take(c, 1, DP_BLOCK_NEW);
    take(c, 1, DP_BLOCK_KEPT);
    take(c, 2, DP_BLOCK_ELSEWHERE);
    dp_block_cache_give(c, 1);
    take(c, 2, DP_BLOCK_ELSEWHERE);
    dp_block_cache_give(c, 1);
    take_and_give(c, 2, DP_BLOCK_NEW);
    take_and_give(c, 0, DP_BLOCK_KEPT);
    take_and_give(c, 1, DP_BLOCK_NEW);
    dp_block_cache_destroy(c);
}

static void blocks_of_other_sizes_take_no_more_room(void **state)
{
    struct dp_block_cache *c = cache_of(9, 5 * piece);
    uint8_t *data;
    (void)state;

    for (size_t block = 0; block < 5; block++) {
        take_and_give(c, block, DP_BLOCK_NEW);
    }
    assert_int_equal(dp_block_cache_take(c, 5, 2 * piece + 1, false, &data), DP_BLOCK_NEW);
    memset(data, 5, 2 * piece + 1);
    dp_block_cache_filled(c, 5, true);
    assert_int_equal(dp_mem_bytes(DP_MEM_KEPT), 5 * piece);
    take_and_give(c, 3, DP_BLOCK_KEPT);
    take_and_give(c, 4, DP_BLOCK_KEPT);
    take_and_give(c, 2, DP_BLOCK_NEW);
    assert_int_equal(dp_block_cache_take(c, 6, 5 * piece + 1, false, &data), DP_BLOCK_ELSEWHERE);
    take_and_give(c, 4, DP_BLOCK_KEPT);
    dp_block_cache_destroy(c);
    c = cache_of(2, 5 * piece); /* few slots are a limit, too */
    take_and_give(c, 0, DP_BLOCK_NEW);
    take_and_give(c, 1, DP_BLOCK_NEW);
    take_and_give(c, 2, DP_BLOCK_NEW);
    take_and_give(c, 0, DP_BLOCK_NEW);
    dp_block_cache_destroy(c);
}

static void what_passes_takes_only_free_room(void **state)
{
    struct dp_block_cache *c = cache_of(9, 2 * piece);
    uint8_t *data;
    (void)state;

    take_and_give(c, 0, DP_BLOCK_NEW);
    assert_int_equal(dp_block_cache_take(c, 1, piece, true, &data), DP_BLOCK_NEW);
    dp_block_cache_filled(c, 1, true);
    dp_block_cache_give(c, 1);
    assert_int_equal(dp_block_cache_take(c, 2, piece, true, &data), DP_BLOCK_ELSEWHERE);
    take_and_give(c, 3, DP_BLOCK_NEW); /* in the place of 1 */
    take_and_give(c, 0, DP_BLOCK_KEPT);
    dp_block_cache_destroy(c);
}

static void a_block_that_cannot_be_read_leaves_its_room(void **state)
{
    struct dp_block_cache *c = cache_of(2, piece);
    uint8_t *data;
    (void)state;

    for (int time = 0; time < 3; time++) {
        assert_int_equal(dp_block_cache_take(c, 7, piece, false, &data), DP_BLOCK_NEW);
        dp_block_cache_filled(c, 7, false);
    }
    take_and_give(c, 1, DP_BLOCK_NEW);
    dp_block_cache_destroy(c);
    assert_int_equal(dp_mem_live(), 0);
}

/* ---- samples ---- */

static int make_folder(void **state)
{
    static uint8_t labels[ROWS];
    static float numbers[ROWS * FEATURES];
    char arrays[80];
    (void)state;

    (void)snprintf(root, sizeof(root), "/tmp/test_block_cache.XXXXXX");
    if (mkdtemp(root) == NULL) {
        return 1;
    }
    (void)snprintf(arrays, sizeof(arrays), "%s/arrays", root);
    (void)snprintf(packed, sizeof(packed), "%s/packed", root);
    if (mkdir(arrays, 0700) != 0) {
        return 1;
    }
    for (int i = 0; i < ROWS * FEATURES; i++) {
        const int row = i / FEATURES;
        numbers[i] = (float)row;
    }
    for (int i = 0; i < ROWS; i++) {
        labels[i] = (uint8_t)(i % 7);
    }
    npy_file(arrays, "train_images.npy", "<f4", "(700, 300)", numbers, sizeof(numbers));
    npy_file(arrays, "train_labels.npy", "|u1", "(700,)", labels, ROWS);
    npy_file(arrays, "test_images.npy", "<f4", "(20, 300)", numbers,
             sizeof(float) * TEST * FEATURES);
    npy_file(arrays, "test_labels.npy", "|u1", "(20,)", labels, TEST);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    remove_tree(root);
    return 0;
}

static void pack(int zstd)
{
    char arrays[80];
    struct dp_pack_result result;

    (void)snprintf(arrays, sizeof(arrays), "%s/arrays", root);
    if (access(packed, F_OK) == 0) {
        remove_tree(packed);
    }
    assert_int_equal(
        dp_pack(
            &(struct dp_pack_options){
                .from = arrays, .to = packed, .shard_bytes = 100 << 20, .threads = 1, .zstd = zstd},
            &result),
        DP_OK);
}

static struct dp_samples *open_packed(void)
{
    const struct dp_source_config config = {
        .dir = packed, .input = {.count = FEATURES, .element = DP_ELEMENT_FLOAT}, .classes = 7};
    struct dp_samples *samples;

    assert_int_equal(dp_samples_open("records", &config, &samples), DP_OK);
    return samples;
}

/* The row at a place of all epochs, in windows. */
static uint64_t order_at(uint64_t at)
{
    struct dp_window_order order;

    dp_window_order_init(&order, SEED, (uint32_t)(at / ROWS), ROWS, WINDOW);
    return dp_window_order_at(&order, at % ROWS);
}

/* All rows of some epochs: they are the right ones. Returns how many blocks were expanded. */
static size_t expansions(struct dp_samples *samples, size_t window, int workers)
{
    const struct dp_loader_config config = {.samples = samples,
                                            .count = ROWS,
                                            .sample_bytes = FEATURES * sizeof(float),
                                            .global_batch = BATCH,
                                            .ranks = 1,
                                            .seed = SEED,
                                            .shuffle = true,
                                            .window = window,
                                            .total_steps = EPOCHS * ROWS / BATCH,
                                            .workers = workers};
    struct dp_loader_report report;
    struct dp_loader *loader;
    struct dp_batch batch;

    assert_int_equal(dp_loader_create(&config, &loader), DP_OK);
    for (uint64_t at = 0; at < (uint64_t)EPOCHS * ROWS; at++) {
        const size_t i = at % BATCH;
        float number;
        if (i == 0) {
            assert_int_equal(dp_loader_next(loader, &batch), DP_OK);
        }
        memcpy(&number, batch.images + i * config.sample_bytes, sizeof(number));
        if (window > 0) {
            assert_int_equal((uint64_t)number, order_at(at));
        }
        assert_int_equal(batch.labels[i], (int)number % 7);
    }
    dp_loader_report(loader, &report);
    dp_loader_destroy(loader);
    return (size_t)(report.stages.bytes[DP_STAGE_EXPAND] + 32767) / 65536;
}

/* In each window once, of one thread. */
static size_t blocks_of_windows(void)
{
    bool seen[ROWS / IN_BLOCK + 1];
    size_t count = 0;

    for (uint64_t at = 0; at < (uint64_t)EPOCHS * ROWS; at++) {
        const uint64_t block = order_at(at) / IN_BLOCK;
        if (at % ROWS % WINDOW == 0) {
            memset(seen, 0, sizeof(seen));
        }
        count += !seen[block];
        seen[block] = true;
    }
    return count;
}

static void blocks_of_a_window_are_expanded_once(void **state)
{
    const size_t once = blocks_of_windows();
    (void)state;

    for (int zstd = 0; zstd <= 1; zstd++) {
        struct dp_samples *samples;
        size_t bytes;
        pack(zstd);
        samples = open_packed();
        bytes = dp_samples_window_bytes(samples, WINDOW);
        /* 4 whole blocks and parts of 2, of 64 KB at most */
        assert_in_range(bytes, 4 << 16, 6 << 16);
        assert_int_equal(dp_samples_share(samples, WINDOW, bytes), DP_OK);
        assert_in_range(expansions(samples, WINDOW, 1), (size_t)EPOCHS * ROWS / IN_BLOCK - 8, once);
        assert_true(dp_mem_bytes(DP_MEM_KEPT) <= bytes);
        dp_samples_close(samples);
        samples = open_packed(); /* without a share each row expands its block */
        assert_true(expansions(samples, WINDOW, 1) > 10 * once);
        dp_samples_close(samples);
        assert_int_equal(dp_mem_live(), 0);
    }
}

static void what_fits_is_expanded_once_by_all_threads(void **state)
{
    struct dp_samples *samples;
    (void)state;

    pack(1);
    for (size_t window = 0; window <= WINDOW; window += WINDOW) {
        samples = open_packed();
        assert_int_equal(dp_samples_share(samples, ROWS, dp_samples_window_bytes(samples, ROWS)),
                         DP_OK);
        assert_int_equal(expansions(samples, window, 3), (ROWS + IN_BLOCK - 1) / IN_BLOCK);
        dp_samples_close(samples);
    }
    samples = open_packed(); /* half of it fits */
    assert_int_equal(dp_samples_share(samples, ROWS, dp_samples_window_bytes(samples, ROWS) / 2),
                     DP_OK);
    assert_in_range(expansions(samples, 0, 3), 100, (size_t)EPOCHS * ROWS * 3 / 4);
    dp_samples_close(samples);
    assert_int_equal(dp_mem_live(), 0);
}

/* ---- bad blocks ---- */

static void flip(long at)
{
    char path[112];
    FILE *file;
    int byte;

    (void)snprintf(path, sizeof(path), "%s/shard-00000.rec", packed);
    file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    byte = fgetc(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 4, file), byte ^ 4);
    assert_int_equal(fclose(file), 0);
}

static void a_bad_block_is_named_and_replaced_as_without_sharing(void **state)
{
    static float numbers[FEATURES];
    (void)state;

    pack(0);
    flip(5000);
    for (int shared = 0; shared <= 1; shared++) {
        struct dp_samples *samples = open_packed();
        struct dp_sample_reader *readers[2];
        struct dp_log_capture capture;
        size_t skipped = 0;
        int32_t label;
        if (shared == 1) {
            assert_int_equal(dp_samples_share(samples, ROWS, 4 << 16), DP_OK);
        }
        for (int i = 0; i < 2; i++) {
            assert_int_equal(dp_sample_reader_create(samples, &readers[i]), DP_OK);
        }
        for (int i = 0; i < 4; i++) {
            dp_log_capture_begin(&capture, DP_LOG_ERROR);
            assert_int_equal(
                dp_sample_reader_read(readers[i % 2], DP_SET_TRAIN, 3, numbers, &label),
                DP_ERR_DATA);
            dp_log_capture_end(&capture, DP_LOG_DROP);
            assert_non_null(strstr(dp_log_captured(&capture),
                                   "shard-00000.rec: block 0 (samples 0 to 53 of the training"));
        }
        assert_int_equal(
            dp_sample_reader_read_good(readers[0], DP_SET_TRAIN, 3, numbers, &label, &skipped),
            DP_OK);
        assert_int_equal((int)numbers[0], IN_BLOCK);
        assert_int_equal(skipped, 1);
        for (int i = 0; i < 2; i++) {
            dp_sample_reader_destroy(readers[i]);
        }
        dp_samples_close(samples);
    }
    assert_int_equal(dp_mem_live(), 0);
}

/* A sample is read at last, whatever allocation failed before. */
static void sharing_survives_every_failed_allocation(void **state)
{
    static float numbers[FEATURES];
    (void)state;

    pack(1);
    for (int nth = 1; nth < 12; nth++) {
        struct dp_samples *samples = open_packed();
        struct dp_sample_reader *reader;
        int32_t label;
        dp_status shared;
        assert_int_equal(dp_sample_reader_create(samples, &reader), DP_OK);
        dp_mem_fail_nth(nth);
        shared = dp_samples_share(samples, ROWS, 4 << 16);
        if (shared == DP_OK) {
            (void)!dp_sample_reader_read(reader, DP_SET_TRAIN, 3, numbers, &label);
        }
        dp_mem_fail_nth(0);
        assert_true(shared == DP_OK || shared == DP_ERR_NOMEM);
        assert_int_equal(dp_sample_reader_read(reader, DP_SET_TRAIN, 3, numbers, &label), DP_OK);
        assert_int_equal((int)numbers[FEATURES - 1], 3);
        dp_sample_reader_destroy(reader);
        dp_samples_close(samples);
        assert_int_equal(dp_mem_live(), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_not_used_for_longest_makes_room),
        cmocka_unit_test(what_is_in_use_stays),
        cmocka_unit_test(blocks_of_other_sizes_take_no_more_room),
        cmocka_unit_test(what_passes_takes_only_free_room),
        cmocka_unit_test(a_block_that_cannot_be_read_leaves_its_room),
        cmocka_unit_test(blocks_of_a_window_are_expanded_once),
        cmocka_unit_test(what_fits_is_expanded_once_by_all_threads),
        cmocka_unit_test(a_bad_block_is_named_and_replaced_as_without_sharing),
        cmocka_unit_test(sharing_survives_every_failed_allocation),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
