/*
 * test_idx_bytes.c - what is read of IDX files that are longer than what is buffered, where their
 * ends fall between buffers, and what is said of the bytes that were read so far.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/formats/idx.h"
#include "tests/support/scratch.h"

enum {
    PIECE = 1 << 16, /* bytes that are read at a time */
    HEAD = 8,
    ROWS = 3 * PIECE + 17,
    APART = 30000, /* the bytes repeat so far apart: within zlib's window, but no smaller one */
    LARGEST_RATIO = 1032 /* the most bytes that one of gzip stands for */
};

static uint8_t plain[HEAD + ROWS], packed[2 * (HEAD + ROWS)];
static size_t packed_bytes;

static size_t pack(uint8_t *bytes, size_t count)
{
    z_stream z = {0};

    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 9, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = bytes;
    z.avail_in = (unsigned)count;
    z.next_out = packed;
    z.avail_out = sizeof(packed);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    assert_int_equal(deflateEnd(&z), Z_OK);
    return sizeof(packed) - z.avail_out;
}

static void put_number(uint8_t *out, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        out[i] = (uint8_t)(value >> (24 - 8 * i));
    }
}

static int make_bytes(void **state)
{
    uint32_t word = 1;

    put_number(plain, 0x801);
    put_number(plain + 4, ROWS);
    for (size_t i = HEAD; i < sizeof(plain); i++) {
        word = word * 1664525 + 1013904223;
        plain[i] = i < HEAD + APART ? (uint8_t)(word >> 24) : plain[i - APART];
    }
    for (size_t i = HEAD + (size_t)2 * APART; i < sizeof(plain); i += 3) { /* hard to compress */
        word = word * 1664525 + 1013904223;
        plain[i] = (uint8_t)(word >> 24);
    }
    packed_bytes = pack(plain, sizeof(plain));
    assert_true(packed_bytes > PIECE + PIECE / 2);
    dp_log_set_level(DP_LOG_NONE);
    return scratch_create_fast(state);
}

static struct dp_idx *open_bytes(const uint8_t *bytes, size_t count, bool in_file)
{
    struct dp_idx *idx = NULL;

    if (in_file) {
        const char *path = scratch_path("bytes");
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(bytes, 1, count, file), count);
        assert_int_equal(fclose(file), 0);
        assert_int_equal(dp_idx_create(path, &idx), DP_OK);
    } else {
        assert_int_equal(dp_idx_create_memory(bytes, count, "m", &idx), DP_OK);
    }
    return idx;
}

/* Reads all rows, as many at first; what lies after their place stays as it was. */
static void assert_read(struct dp_idx *idx, size_t first)
{
    static uint8_t rows[2 * ROWS + PIECE];

    memset(rows, 0x5a, sizeof(rows));
    assert_int_equal(dp_idx_header(idx)->rows, ROWS);
    assert_int_equal(dp_idx_read(idx, rows, first), DP_OK);
    for (size_t i = first; i < sizeof(rows); i++) {
        assert_int_equal(rows[i], 0x5a);
    }
    assert_int_equal(dp_idx_read(idx, rows + first, ROWS - first), DP_OK);
    assert_memory_equal(rows, plain + HEAD, ROWS);
    for (size_t i = ROWS; i < sizeof(rows); i++) {
        assert_int_equal(rows[i], 0x5a);
    }
    assert_int_equal(dp_idx_finish(idx), DP_OK);
    dp_idx_destroy(idx);
    assert_int_equal(dp_mem_live(), 0);
}

static void rows_are_read_whole_wherever_a_read_ends(void **state)
{
    static const size_t firsts[] = {0,
                                    1,
                                    PIECE - HEAD - 1, /* a byte is left of what was read */
                                    PIECE - HEAD,
                                    PIECE - HEAD + 1,
                                    (size_t)2 * PIECE,
                                    ROWS};
    (void)state;

    for (size_t i = 0; i < sizeof(firsts) / sizeof(firsts[0]); i++) {
        for (int in_file = 0; in_file < 2; in_file++) {
            assert_read(open_bytes(plain, sizeof(plain), in_file != 0), firsts[i]);
            assert_read(open_bytes(packed, packed_bytes, in_file != 0), firsts[i]);
        }
    }
}

/* Reads all rows, then looks for the end: one of both fails, and says that. */
static void assert_fails(struct dp_idx *idx, const char *words)
{
    static uint8_t rows[ROWS];
    struct dp_log_capture capture;
    dp_status status;

    dp_log_set_level(DP_LOG_ERROR);
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = dp_idx_read(idx, rows, dp_idx_header(idx)->rows);
    if (status == DP_OK) {
        status = dp_idx_finish(idx);
    }
    assert_int_equal(status, DP_ERR_DATA);
    if (strstr(dp_log_captured(&capture), words) == NULL) {
        fail_msg("%s\nis not in\n%s", words, dp_log_captured(&capture));
    }
    dp_log_capture_end(&capture, DP_LOG_DROP);
    dp_log_set_level(DP_LOG_NONE);
    dp_idx_destroy(idx);
}

static void what_is_wrong_is_said_with_its_place(void **state)
{
    static uint8_t longer[sizeof(plain) + 2];
    const size_t cut = packed_bytes - 1000;
    char words[160];
    (void)state;

    for (int in_file = 0; in_file < 2; in_file++) {
        (void)snprintf(words, sizeof(words), "ends after %zu bytes in the middle of", cut);
        assert_fails(open_bytes(packed, cut, in_file != 0), words);
        packed[packed_bytes - 8] ^= 1; /* of the checksum, after which is the length */
        (void)snprintf(words, sizeof(words),
                       "damaged before byte %zu of the file (zlib: incorrect data check)",
                       packed_bytes - 4);
        assert_fails(open_bytes(packed, packed_bytes, in_file != 0), words);
        packed[packed_bytes - 8] ^= 1;
    }
    memcpy(longer, plain, sizeof(plain));
    packed_bytes = pack(longer, sizeof(longer));
    (void)snprintf(words, sizeof(words), "goes on after the %zu bytes its header", sizeof(plain));
    assert_fails(open_bytes(packed, packed_bytes, true), words);
    packed_bytes = pack(plain, sizeof(plain) - 40);
    (void)snprintf(words, sizeof(words), "ends after %zu bytes of plain data, 40 too early",
                   sizeof(plain) - 40);
    assert_fails(open_bytes(packed, packed_bytes, true), words);
    packed_bytes = pack(plain, sizeof(plain));
}

static void the_first_bytes_tell_what_a_file_is(void **state)
{
    static const struct {
        uint8_t bytes[9];
        size_t count;
        const char *words;
    } cases[] = {
        {{0}, 0, "is empty"},
        {{0x1f, 0x8b}, 1, "ends after 1 bytes, 3 too early"},
        {{0x1f, 0x8b}, 2, "in the middle of the compressed data"},
        {{0x1f, 0, 8, 1}, 4, "begins with 0x1f000801"},
        {{0, 0x8b, 8, 1}, 4, "begins with 0x008b0801"},
        {{1, 0, 8, 1}, 4, "begins with 0x01000801"},
        {{0, 0, 0, 1}, 4, "begins with 0x00000001"},
        {{0, 0, 9, 1}, 4, "begins with 0x00000901"},
        {{0, 0, 8, 0}, 4, "begins with 0x00000800"},
        {{0, 0, 8, 5}, 4, "begins with 0x00000805"},
        {{0, 0, 8, 1, 0, 0, 0, 1}, 8, "has 8 bytes, but its header speaks of 9"},
        {{0, 0, 8, 1, 0, 0, 0, 0, 1}, 9, "has 9 bytes, but its header speaks of 8"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct dp_log_capture capture;
        struct dp_idx *idx = NULL;
        dp_log_set_level(DP_LOG_ERROR);
        dp_log_capture_begin(&capture, DP_LOG_ERROR);
        assert_int_equal(dp_idx_create_memory(cases[i].bytes, cases[i].count, "m", &idx),
                         DP_ERR_DATA);
        if (strstr(dp_log_captured(&capture), cases[i].words) == NULL) {
            fail_msg("%s\nis not in\n%s", cases[i].words, dp_log_captured(&capture));
        }
        dp_log_capture_end(&capture, DP_LOG_DROP);
        dp_log_set_level(DP_LOG_NONE);
        assert_null(idx);
    }
}

/* Opens a header of these dimensions, without rows. */
static dp_status open_header(const uint32_t dims[4], size_t *row_bytes)
{
    struct dp_idx *idx = NULL;
    uint8_t header[20];
    dp_status status;

    put_number(header, 0x804);
    for (int i = 0; i < 4; i++) {
        put_number(header + 4 + (size_t)4 * i, dims[i]);
    }
    status = dp_idx_create_memory(header, sizeof(header), "m", &idx);
    if (status == DP_OK) {
        *row_bytes = dp_idx_header(idx)->row_bytes;
    }
    dp_idx_destroy(idx);
    return status;
}

static void sizes_that_wrap_around_are_impossible(void **state)
{
    static const uint32_t wraps[] = {1, 1u << 31, 1u << 31, 4},
                          most[] = {0, 65537u * 641, 65535, 6700417}; /* 2^64 - 1 */
    size_t row_bytes = 0;
    (void)state;

    assert_int_equal(open_header(wraps, &row_bytes), DP_ERR_DATA);
    assert_int_equal(open_header(most, &row_bytes), DP_OK);
    assert_true(row_bytes == SIZE_MAX);
}

/* The last rows are not there: only a file that could not have them is refused at once. */
static void a_gzip_file_may_be_as_short_as_gzip_can_be(void **state)
{
    int at_limit = 0, below = 0;
    (void)state;

    for (uint32_t rows = 24 * LARGEST_RATIO; rows < 36 * LARGEST_RATIO; rows += 7) {
        const size_t longest = (HEAD + rows) / LARGEST_RATIO;
        struct dp_idx *idx = NULL;
        uint8_t header[HEAD];
        size_t bytes;
        put_number(header, 0x801);
        put_number(header + 4, rows);
        bytes = pack(header, HEAD);
        assert_int_equal(dp_idx_create_memory(packed, bytes, "m", &idx),
                         bytes < longest ? DP_ERR_DATA : DP_OK);
        at_limit += bytes == longest;
        below += bytes + 1 == longest;
        dp_idx_destroy(idx);
    }
    assert_true(at_limit > 5 && below > 5);
    packed_bytes = pack(plain, sizeof(plain));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_read_whole_wherever_a_read_ends),
        cmocka_unit_test(what_is_wrong_is_said_with_its_place),
        cmocka_unit_test(the_first_bytes_tell_what_a_file_is),
        cmocka_unit_test(sizes_that_wrap_around_are_impossible),
        cmocka_unit_test(a_gzip_file_may_be_as_short_as_gzip_can_be),
    };

    return cmocka_run_group_tests(tests, make_bytes, scratch_destroy);
}
