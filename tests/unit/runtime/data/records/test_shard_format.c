/*
 * test_shard_format.c - the numbers of a shard's head, table and foot: each is written in its
 * place, whole and nowhere else, and read whole; what cannot be is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/data/records/shard_format.h"

enum {
    LARGEST = DP_SHARD_SAMPLE_BYTES + 16 * DP_SHARD_BLOCK_SAMPLES, /* block, before compression */
    FAR_AT = 64
};

static struct dp_problem problem;

/* What is written after all bytes are set is what is written after all are zero: no byte is left,
 * and none after them is touched. */
static void heads_are_written_whole(void **state)
{
    static const uint8_t wanted[DP_SHARD_HEAD] = {
        'L', 'S', 'R', 'E', 'C', '\r', '\n', 26, 2, 0, 0, 0, 0x04, 0x03, 0x02, 0x81, DP_SET_TEST};
    uint8_t head[DP_SHARD_HEAD + 1];
    (void)state;

    memset(head, 0xff, sizeof(head));
    dp_shard_head_write(head, 0x81020304, DP_SET_TEST);
    assert_memory_equal(head, wanted, DP_SHARD_HEAD);
    assert_int_equal(head[DP_SHARD_HEAD], 0xff);
}

static void heads_of_other_shards_and_versions_are_refused(void **state)
{
    static const struct {
        int at;
        uint8_t value;
        const char *why; /* NULL: it is read */
    } cases[] = {
        {8, 2, NULL},
        {8, 1, NULL},
        {8, 0, "has version 0,"},
        {8, 3, "has version 3,"},
        {11, 1, "has version 16777218,"},
        {0, 'M', "is no shard"},
        {7, 0, "is no shard"},
        {12, 8, "another shard"},
        {15, 1, "another shard"},
        {16, 1, "another shard"},
        {19, 1, "another shard"},
        {31, 1, "another shard"},
    };
    uint8_t head[DP_SHARD_HEAD];
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        dp_shard_head_write(head, 7, DP_SET_TRAIN);
        head[cases[i].at] = cases[i].value;
        assert_int_equal(dp_shard_head_check(head, 7, DP_SET_TRAIN, &problem),
                         cases[i].why == NULL ? DP_OK : DP_ERR_DATA);
        assert_true(cases[i].why == NULL || strstr(problem.text, cases[i].why) != NULL);
    }
}

static void feet_are_written_whole_and_read_so(void **state)
{
    static const uint64_t blocks = 5, samples = 0x8877665544332211, hash = 0x99aabbccddeeff00;
    const uint64_t at = 0x0102030405060708, file = at + blocks * DP_SHARD_ROW + DP_SHARD_FOOT;
    const struct dp_shard_foot foot = {at, blocks, samples, hash};
    struct dp_shard_foot got;
    uint8_t out[DP_SHARD_FOOT + 1];
    (void)state;

    memset(out, 0xff, sizeof(out));
    dp_shard_foot_write(out, &foot);
    assert_int_equal(out[DP_SHARD_FOOT], 0xff);
    assert_int_equal(dp_shard_foot_read(out, file, &got, &problem), DP_OK);
    assert_memory_equal(&got, &foot, sizeof(foot));
}

static void feet_that_do_not_fit_their_file_are_refused(void **state)
{
    const uint64_t table = (uint64_t)6 * DP_SHARD_ROW, at = 1000;
    const uint64_t file = at + table + DP_SHARD_FOOT;
    const struct {
        struct dp_shard_foot foot;
        bool fits;
    } cases[] = {
        {{at, 6, 1, 1}, true},
        {{at, 7, 1, 1}, false},
        {{at + 1, 6, 1, 1}, false},
        {{at + table, 0, 1, 1}, false}, /* no block */
        {{DP_SHARD_HEAD, 30, 1, 1}, false},
        {{0, 31, 1, 1}, false},                       /* a table that begins before the blocks */
        {{at, 6 + ((uint64_t)1 << 61), 1, 1}, false}, /* whose bytes wrap around */
        {{at, 6 + ((uint64_t)1 << 56), 1, 1}, false},
        {{at + ((uint64_t)1 << 56), 6, 1, 1}, false},
    };
    uint8_t out[DP_SHARD_FOOT];
    struct dp_shard_foot got;
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        dp_shard_foot_write(out, &cases[i].foot);
        assert_int_equal(dp_shard_foot_read(out, file, &got, &problem),
                         cases[i].fits ? DP_OK : DP_ERR_DATA);
    }
    dp_shard_foot_write(out, &cases[0].foot);
    out[0] = 'M';
    dp_shard_put(out + 40, dp_shard_hash(out, 40), 8);
    assert_int_equal(dp_shard_foot_read(out, file, &got, &problem), DP_ERR_DATA);
}

static void rows_are_written_whole(void **state)
{
    static const struct dp_shard_block block = {.at = 0x8102030405060708,
                                                .hash = 0x9122334455667788,
                                                .stored = 0xa1b2c3d4,
                                                .raw = 0xb1b2b3b4,
                                                .samples = 0xc1c2c3c4,
                                                .zstd = true};
    static const uint8_t wanted[DP_SHARD_ROW] = {
        8,    7,    6,    5,    4,    3,    2,    0x81, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22,
        0x91, 0xd4, 0xc3, 0xb2, 0xa1, 0xb4, 0xb3, 0xb2, 0xb1, 0xc4, 0xc3, 0xc2, 0xc1, 1};
    uint8_t row[DP_SHARD_ROW + 1];
    (void)state;

    memset(row, 0xff, sizeof(row));
    dp_shard_row_write(row, &block);
    assert_memory_equal(row, wanted, DP_SHARD_ROW);
    assert_int_equal(row[DP_SHARD_ROW], 0xff);
}

/* Reads a table of blocks whose bytes are `row` [count]. */
static dp_status read_rows(const uint8_t *rows, uint64_t count, uint64_t table_at, uint64_t samples,
                           struct dp_shard_block *out)
{
    const struct dp_shard_foot foot = {table_at, count, samples,
                                       dp_shard_hash(rows, (size_t)count * DP_SHARD_ROW)};

    return dp_shard_table_read(rows, &foot, out, &problem);
}

static void a_block_has_what_a_block_can_have(void **state)
{
    static const struct {
        struct dp_shard_block block;
        bool possible;
    } cases[] = {
        {{FAR_AT, 1, 5, 5, 1, false}, true},
        {{FAR_AT, 1, 1, 1, 1, false}, true},
        {{FAR_AT, 1, 5, 7, 1, true}, true},
        {{FAR_AT, 1, 5, 7, 1, false}, false}, /* not compressed, but shorter */
        {{FAR_AT, 1, 0, 0, 1, false}, false},
        {{FAR_AT, 1, 0, 5, 1, true}, false},
        {{FAR_AT, 1, 5, 0, 1, true}, false},
        {{FAR_AT, 1, LARGEST, LARGEST, 4096, false}, true},
        {{FAR_AT, 1, LARGEST + 1, LARGEST, 1, true}, false},
        {{FAR_AT, 1, LARGEST, LARGEST + 1, 1, true}, false},
        {{FAR_AT, 1, 5, 5, 0, false}, false},
        {{FAR_AT, 1, 5, 5, 4097, false}, false},
        {{FAR_AT, 1, 5, 5, 4096 + (1 << 24), false}, false},
        {{FAR_AT + 1, 1, 5, 5, 1, false}, false},
        {{FAR_AT + ((uint64_t)1 << 56), 1, 5, 5, 1, false}, false},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct dp_shard_block *b = &cases[i].block;
        struct dp_shard_block out;
        uint8_t row[DP_SHARD_ROW];
        dp_shard_row_write(row, b);
        assert_int_equal(read_rows(row, 1, FAR_AT + b->stored, b->samples & 0xffffff, &out),
                         cases[i].possible ? DP_OK : DP_ERR_DATA);
        if (cases[i].possible) {
            assert_true(out.at == b->at && out.hash == b->hash && out.stored == b->stored &&
                        out.raw == b->raw && out.samples == b->samples && out.zstd == b->zstd);
        }
    }
}

/* Of the word that says how it is compressed, and the one after it, which is 0. */
static void every_bit_of_a_rows_last_words_counts(void **state)
{
    static const struct dp_shard_block block = {FAR_AT, 1, 5, 5, 1, false};
    struct dp_shard_block out;
    uint8_t row[DP_SHARD_ROW];
    (void)state;

    for (int bit = 0; bit < 12 * 8; bit++) {
        dp_shard_row_write(row, &block);
        row[28 + bit / 8] |= (uint8_t)(1 << bit % 8);
        assert_int_equal(read_rows(row, 1, FAR_AT + 5, 1, &out), bit == 0 ? DP_OK : DP_ERR_DATA);
    }
}

static void blocks_fill_what_is_before_their_table(void **state)
{
    static const struct dp_shard_block blocks[] = {{FAR_AT, 1, 70, 70, 3, false},
                                                   {FAR_AT + 128, 1, 9, 9, 4, false}};
    const uint64_t end = FAR_AT + 128 + 9;
    static const struct {
        int more_bytes, more_samples;
        const char *why;
    } wrong[] = {{1, 0, "contradicts its end"},         {-1, 0, "block 1 (counted from 0)"},
                 {-9, 0, "block 1 (counted from 0)"},   {-10, 0, "block 1 (counted from 0)"},
                 {-138, 0, "block 0 (counted from 0)"}, {0, 1, "contradicts its end"},
                 {0, -1, "contradicts its end"},        {64, 0, "contradicts its end"}};
    struct dp_shard_block out[2];
    uint8_t rows[2 * DP_SHARD_ROW];
    (void)state;

    dp_shard_row_write(rows, &blocks[0]);
    dp_shard_row_write(rows + DP_SHARD_ROW, &blocks[1]);
    assert_int_equal(read_rows(rows, 2, end, 7, out), DP_OK);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(read_rows(rows, 2, end + (uint64_t)(int64_t)wrong[i].more_bytes,
                                   7 + (uint64_t)(int64_t)wrong[i].more_samples, out),
                         DP_ERR_DATA);
        assert_non_null(strstr(problem.text, wrong[i].why));
    }
    for (int byte = 0; byte < 8; byte++) { /* of where the second block lies */
        dp_shard_row_write(rows + DP_SHARD_ROW, &blocks[1]);
        rows[DP_SHARD_ROW + byte]++;
        assert_int_equal(read_rows(rows, 2, end, 7, out), DP_ERR_DATA);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_are_written_whole),
        cmocka_unit_test(heads_of_other_shards_and_versions_are_refused),
        cmocka_unit_test(feet_are_written_whole_and_read_so),
        cmocka_unit_test(feet_that_do_not_fit_their_file_are_refused),
        cmocka_unit_test(rows_are_written_whole),
        cmocka_unit_test(a_block_has_what_a_block_can_have),
        cmocka_unit_test(every_bit_of_a_rows_last_words_counts),
        cmocka_unit_test(blocks_fill_what_is_before_their_table),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
