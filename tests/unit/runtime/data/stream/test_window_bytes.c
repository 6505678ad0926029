/*
 * test_window_bytes.c - the memory that blocks of records take which a window of rows lies in: no
 * less, and no more, than of the worst window, where blocks have other numbers of samples.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/records/block_cache.h"
#include "runtime/data/records/pack.h"
#include "runtime/data/records/records.h"
#include "runtime/data/sample_reader.h"
#include "runtime/data/samples.h"
#include "tests/support/files/picture_files.h"
#include "tests/support/scratch.h"

enum { ROWS = 60, BLOCKS_LEAST = 9, MOST_BYTES = 80000 };

/* Pictures of few pixels in files of up to 40 KB, two or more to a block but for large ones. */
static void make_pictures(void)
{
    static struct picture_bytes png;
    static uint8_t unused[MOST_BYTES];
    char name[64];

    for (int i = 0; i < ROWS; i++) {
        const struct picture_spec spec = {.width = 4, .height = 4, .channels = 3};
        const size_t bytes = i % 15 == 8 ? MOST_BYTES : (size_t)(i * i * 97 % 19000);
        picture_png(&spec, &png);
        picture_add_chunk(&png, "IDAT", "prVt", unused, bytes);
        (void)snprintf(name, sizeof(name), "train/a/%02d.png", i);
        write_bytes(scratch_path("pictures"), name, png.bytes, png.count);
        if (i == 0) {
            write_bytes(scratch_path("pictures"), "test/a/0.png", png.bytes, png.count);
        }
    }
}

static void pack_pictures(int zstd)
{
    struct dp_pack_result result;

    assert_int_equal(mkdir(scratch_path("pictures"), 0700), 0);
    make_pictures();
    const struct dp_pack_options options = {.from = scratch_path("pictures"),
                                            .to = scratch_path("packed"),
                                            .shard_bytes = 200000,
                                            .threads = 1,
                                            .zstd = zstd};
    assert_int_equal(dp_pack(&options, &result), DP_OK);
}

/* Of the blocks of some rows; after the last one comes the first. Blocks of one sample are shared
 * where all rows are. */
static size_t room_of_rows(const struct dp_records *records, size_t first, size_t rows)
{
    bool seen[ROWS] = {false};
    size_t sum = 0;

    for (size_t i = 0; i < rows; i++) {
        const size_t at = dp_records_find(records, DP_SET_TRAIN, (first + i) % ROWS);
        const struct dp_shard_block *block = &dp_records_block(records, DP_SET_TRAIN, at)->block;
        if (!seen[at] && (block->samples > 1 || rows == ROWS)) {
            sum += dp_block_cache_room(block->raw);
        }
        seen[at] = true;
    }
    return sum;
}

static void a_window_takes_what_its_worst_place_does(void **state)
{
    struct dp_shard_store_config store;
    struct dp_source_config config;
    struct dp_records *records = NULL;
    struct dp_samples *samples = NULL;
    (void)state;

    pack_pictures(0);
    store = (struct dp_shard_store_config){.dir = scratch_path("packed")};
    config = (struct dp_source_config){.dir = store.dir};
    assert_int_equal(dp_records_open(&store, &records), DP_OK);
    assert_int_equal(dp_samples_open("records", &config, &samples), DP_OK);
    assert_true(dp_records_blocks(records, DP_SET_TRAIN) >= BLOCKS_LEAST);
    for (size_t rows = 1; rows <= ROWS; rows++) {
        size_t most = 0;
        for (size_t first = 0; first < ROWS; first++) {
            const size_t room = room_of_rows(records, first, rows);
            most = room > most ? room : most;
        }
        assert_int_equal(dp_samples_window_bytes(samples, rows), most);
    }
    dp_samples_close(samples);
    dp_records_close(records);
    assert_int_equal(dp_mem_live(), 0);
}

/* What is kept of blocks after the rows of a window were read, with so much room for them. */
static size_t kept_of_window(size_t first, size_t rows, size_t bytes)
{
    const struct dp_source_config config = {.dir = scratch_path("packed")};
    struct dp_samples *samples = NULL;
    struct dp_sample_reader *reader = NULL;
    struct dp_raw raw;
    size_t kept;

    assert_int_equal(dp_samples_open("records", &config, &samples), DP_OK);
    assert_int_equal(dp_samples_share(samples, rows, bytes), DP_OK);
    assert_int_equal(dp_sample_reader_create(samples, &reader), DP_OK);
    for (size_t i = 0; i < rows; i++) {
        assert_int_equal(dp_sample_reader_raw(reader, DP_SET_TRAIN, (first + i) % ROWS, &raw),
                         DP_OK);
    }
    kept = dp_mem_bytes(DP_MEM_KEPT);
    dp_sample_reader_destroy(reader);
    dp_samples_close(samples);
    return kept;
}

/* Small blocks as well as large ones. */
static void a_window_that_fits_is_kept(void **state)
{
    struct dp_shard_store_config store;
    struct dp_records *records = NULL;
    size_t several = 0;
    (void)state;

    pack_pictures(0);
    store = (struct dp_shard_store_config){.dir = scratch_path("packed")};
    assert_int_equal(dp_records_open(&store, &records), DP_OK);
    for (size_t rows = 1; rows <= ROWS; rows += rows < 20 ? 1 : 8) {
        for (size_t first = 0; first < ROWS; first++) {
            const size_t room = room_of_rows(records, first, rows);
            several += room > 0;
            assert_int_equal(room > 0 ? kept_of_window(first, rows, room) : 0, room);
        }
    }
    assert_true(several > 1000);
    dp_records_close(records);
    assert_int_equal(dp_mem_live(), 0);
}

/* The largest block as it is stored and, where blocks are compressed, the largest of those as it
 * was, and what zstd works in. */
static void a_reader_takes_what_its_largest_block_does(void **state)
{
    (void)state;

    for (int zstd = 0; zstd <= 3; zstd += 3) {
        struct dp_shard_store_config store;
        struct dp_source_config config;
        struct dp_records *records = NULL;
        struct dp_samples *samples = NULL;
        size_t stored = 0, raw = 0;
        pack_pictures(zstd);
        store = (struct dp_shard_store_config){.dir = scratch_path("packed")};
        config = (struct dp_source_config){.dir = store.dir};
        assert_int_equal(dp_records_open(&store, &records), DP_OK);
        assert_int_equal(dp_samples_open("records", &config, &samples), DP_OK);
        for (size_t at = 0; at < dp_records_blocks(records, DP_SET_TRAIN); at++) {
            const struct dp_shard_block *block =
                &dp_records_block(records, DP_SET_TRAIN, at)->block;
            stored = block->stored > stored ? block->stored : stored;
            raw = block->zstd && block->raw > raw ? block->raw : raw;
        }
        assert_true((raw > 0) == (zstd > 0));
        assert_int_equal(dp_samples_fetcher_bytes(samples),
                         dp_buffer_room(stored) +
                             (zstd > 0 ? dp_buffer_room(dp_block_work_bytes() + raw) : 0));
        dp_samples_close(samples);
        dp_records_close(records);
        scratch_remove(scratch_path("packed"));
        scratch_remove(scratch_path("pictures"));
    }
    assert_int_equal(dp_mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_window_takes_what_its_worst_place_does,
                                        scratch_create_fast, scratch_destroy),
        cmocka_unit_test_setup_teardown(a_window_that_fits_is_kept, scratch_create_fast,
                                        scratch_destroy),
        cmocka_unit_test_setup_teardown(a_reader_takes_what_its_largest_block_does,
                                        scratch_create_fast, scratch_destroy),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests_name("window_bytes", tests, NULL, NULL);
}
