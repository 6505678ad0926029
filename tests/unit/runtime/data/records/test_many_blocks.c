/*
 * test_many_blocks.c - records of many blocks in one shard or in many, read or kept.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/records/pack.h"
#include "runtime/data/records/records.h"
#include "runtime/data/sample_reader.h"
#include "tests/support/files/array_files.h"
#include "tests/support/scratch.h"

/* So large that each sample is a block of its own. */
enum { ROWS = 300, BYTES = 66000 };

static uint8_t value_of(size_t row, size_t i)
{
    return (uint8_t)(row * 7 + i % 251);
}

static void write_arrays(void)
{
    static uint8_t numbers[ROWS * BYTES], labels[ROWS];
    const char *folder = scratch_path("arrays");

    for (size_t row = 0; row < ROWS; row++) {
        for (size_t i = 0; i < BYTES; i++) {
            numbers[row * BYTES + i] = value_of(row, i);
        }
        labels[row] = (uint8_t)(row % 10);
    }
    assert_int_equal(mkdir(folder, 0700), 0);
    npy_file(folder, "train_images.npy", "|u1", "(300, 66000)", numbers, sizeof(numbers));
    npy_file(folder, "train_labels.npy", "|u1", "(300,)", labels, ROWS);
    npy_file(folder, "test_images.npy", "|u1", "(1, 66000)", numbers, BYTES);
    npy_file(folder, "test_labels.npy", "|u1", "(1,)", labels, 1);
}

static struct dp_samples *open_packed(void)
{
    const struct dp_source_config config = {.dir = scratch_path("packed")};
    struct dp_samples *samples = NULL;

    assert_int_equal(dp_samples_open("records", &config, &samples), DP_OK);
    assert_int_equal(dp_samples_info(samples)->count[DP_SET_TRAIN], ROWS);
    return samples;
}

static void check_samples(struct dp_samples *samples)
{
    struct dp_sample_reader *reader = NULL;
    struct dp_raw raw;

    assert_int_equal(dp_sample_reader_create(samples, &reader), DP_OK);
    for (size_t i = 0; i <= ROWS; i++) {
        const enum dp_set set = i < ROWS ? DP_SET_TRAIN : DP_SET_TEST;
        const size_t row = i < ROWS ? i : 0;
        int32_t label = -1;
        assert_int_equal(dp_sample_reader_label(reader, set, row, &raw, &label), DP_OK);
        assert_int_equal(raw.bytes, BYTES);
        assert_int_equal(((const uint8_t *)raw.data)[0], value_of(row, 0));
        assert_int_equal(((const uint8_t *)raw.data)[BYTES - 1], value_of(row, BYTES - 1));
        assert_int_equal(label, row % 10);
    }
    dp_sample_reader_destroy(reader);
}

/* All in one shard, or each in one of its own. */
static void samples_are_found_in_any_number_of_blocks_and_shards(void **state)
{
    static const size_t shard_bytes[] = {(size_t)1 << 30, 1 << 16};
    (void)state;

    write_arrays();
    for (int i = 0; i < 2; i++) {
        const struct dp_pack_options options = {.from = scratch_path("arrays"),
                                                .to = scratch_path("packed"),
                                                .shard_bytes = shard_bytes[i],
                                                .threads = 1};
        struct dp_records_index_file file;
        struct dp_pack_result result;
        struct dp_samples *samples;
        assert_int_equal(dp_pack(&options, &result), DP_OK);
        assert_int_equal(dp_records_index_read(scratch_path("packed"), &file), DP_OK);
        assert_int_equal(file.index.shard_count, i == 0 ? 2 : ROWS + 1);
        dp_records_index_release(&file);
        samples = open_packed();
        check_samples(samples);
        dp_samples_close(samples);
        scratch_remove(scratch_path("packed"));
    }
    assert_int_equal(dp_mem_live(), 0);
}

/* Every second one; the others are read. */
static void units_that_are_kept_are_blocks(void **state)
{
    const struct dp_pack_options options = {.from = scratch_path("arrays"),
                                            .to = scratch_path("packed"),
                                            .shard_bytes = 1 << 20,
                                            .threads = 1};
    static uint64_t at[ROWS + 1];
    static uint8_t there[ROWS + 1];
    struct dp_pack_result result;
    struct dp_samples *samples;
    uint8_t *bytes;
    size_t used = 0;
    (void)state;

    write_arrays();
    assert_int_equal(dp_pack(&options, &result), DP_OK);
    samples = open_packed();
    assert_int_equal(dp_samples_info(samples)->units, ROWS + 1);
    bytes = dp_zalloc((size_t)ROWS * 2, BYTES);
    assert_non_null(bytes);
    for (size_t u = 0; u <= ROWS; u += 2) {
        const size_t count = dp_samples_unit_bytes(samples, u);
        assert_in_range(count, BYTES, 2 * BYTES);
        assert_int_equal(dp_samples_read_unit(samples, u, count, bytes + used), DP_OK);
        there[u] = 1;
        at[u] = used;
        used += count;
    }
    dp_samples_keep(samples, bytes, at, there);
    check_samples(samples);
    dp_samples_close(samples);
    dp_free(bytes);
    assert_int_equal(dp_mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(samples_are_found_in_any_number_of_blocks_and_shards,
                                        scratch_create_fast, scratch_destroy),
        cmocka_unit_test_setup_teardown(units_that_are_kept_are_blocks, scratch_create_fast,
                                        scratch_destroy),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests_name("many_blocks", tests, NULL, NULL);
}
