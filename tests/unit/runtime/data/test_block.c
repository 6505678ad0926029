/* test_block.c - blocks of records: what decompressing one takes. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <zstd.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/records/block.h"

enum { BYTES = 100003, MOST = 1 << 18 /* that zstd works with */ };

static uint8_t raw[BYTES];

static bool refuses; /* zstd has no memory for its level */
static int contexts; /* that were released */

/* The linker takes these, and not the library's. */
size_t ZSTD_CCtx_setParameter(ZSTD_CCtx *cctx, ZSTD_cParameter param, int value)
{
    size_t (*of_library)(ZSTD_CCtx *, ZSTD_cParameter, int) = NULL;

    *(void **)&of_library = dlsym(RTLD_NEXT, "ZSTD_CCtx_setParameter");
    assert_non_null(of_library);
    return refuses ? (size_t)-1 : of_library(cctx, param, value);
}

size_t ZSTD_freeCCtx(ZSTD_CCtx *cctx)
{
    size_t (*of_library)(ZSTD_CCtx *) = NULL;

    *(void **)&of_library = dlsym(RTLD_NEXT, "ZSTD_freeCCtx");
    assert_non_null(of_library);
    contexts += cctx != NULL;
    return of_library(cctx);
}

/* Packs a block that compresses well. */
static struct dp_shard_block packed_block(struct dp_buffer *stored)
{
    struct dp_block_packer *packer = NULL;
    size_t bytes = 0;

    for (size_t i = 0; i < BYTES; i++) {
        raw[i] = (uint8_t)(i / 100);
    }
    assert_int_equal(dp_block_packer_create(3, &packer), DP_OK);
    assert_int_equal(dp_block_pack(packer, raw, BYTES, stored, &bytes), DP_OK);
    dp_block_packer_destroy(packer);
    assert_in_range(bytes, 1, BYTES / 2);
    return (struct dp_shard_block){
        .stored = (uint32_t)bytes, .raw = BYTES, .samples = 1, .zstd = true};
}

static void decompressing_takes_little_memory_beside_the_block(void **state)
{
    static uint8_t out[BYTES];
    struct dp_buffer stored = {NULL, 0}, beside = {NULL, 0}, both = {NULL, 0};
    const struct dp_shard_block block = packed_block(&stored);
    struct dp_problem problem;
    const uint8_t *within = NULL;
    (void)state;

    assert_int_equal(dp_block_unpack_to(&block, stored.data, &beside, out, &problem), DP_OK);
    assert_memory_equal(out, raw, BYTES);
    assert_int_equal(dp_block_unpack(&block, stored.data, &both, &within, &problem), DP_OK);
    assert_memory_equal(within, raw, BYTES);
    assert_true(beside.room <= dp_buffer_room(MOST));
    assert_true(both.room <= dp_buffer_room(MOST + BYTES));
    dp_buffer_release(&stored);
    dp_buffer_release(&beside);
    dp_buffer_release(&both);
    assert_int_equal(dp_mem_live(), 0);
}

static void a_packer_that_cannot_be_made_leaves_nothing(void **state)
{
    struct dp_block_packer *packer = NULL;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    contexts = 0;
    refuses = true;
    assert_int_equal(dp_block_packer_create(3, &packer), DP_ERR_NOMEM);
    refuses = false;
    assert_int_equal(contexts, 1);
    dp_mem_fail_nth(1);
    assert_int_equal(dp_block_packer_create(3, &packer), DP_ERR_NOMEM);
    dp_mem_fail_nth(0);
    dp_log_set_level(DP_LOG_INFO);
    assert_null(packer);
    assert_int_equal(dp_mem_live(), 0);
}

static void a_block_that_ends_early_or_late_is_refused(void **state)
{
    static const struct {
        uint32_t raw;
        const char *why;
    } cases[] = {{BYTES + 1, "too short"}, {BYTES - 1, "Destination buffer is too small"}};
    struct dp_buffer stored = {NULL, 0}, memory = {NULL, 0};
    struct dp_shard_block block = packed_block(&stored);
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct dp_problem problem;
        const uint8_t *within = NULL;
        block.raw = cases[i].raw;
        assert_int_equal(dp_block_unpack(&block, stored.data, &memory, &within, &problem),
                         DP_ERR_DATA);
        assert_non_null(strstr(problem.text, cases[i].why));
    }
    dp_buffer_release(&stored);
    dp_buffer_release(&memory);
}

/* Also where a sample is a byte. */
static void a_block_has_as_many_bytes_as_its_samples(void **state)
{
    enum { SAMPLES = 10, LABEL = 8 };
    (void)state;

    for (size_t sample = 1; sample <= 3; sample++) {
        const struct dp_block_form form = {sample, 1};
        const uint32_t right = (uint32_t)(SAMPLES * (LABEL + sample));
        for (uint32_t bytes = 0; bytes <= right + SAMPLES; bytes++) {
            const struct dp_shard_block block = {.raw = bytes, .samples = SAMPLES};
            struct dp_block_view view;
            struct dp_problem problem;
            assert_int_equal(dp_block_open(&block, raw, &form, &view, &problem),
                             bytes == right ? DP_OK : DP_ERR_DATA);
        }
    }
}

/* A picture's pixels as they are stored: 3 rows, 2 columns, and their bytes. */
static void pixels_have_the_bytes_that_their_head_says(void **state)
{
    static const struct {
        int channels, more;
        bool good;
    } cases[] = {
        {1, 0, true},   {3, 0, true},  {1, 1, false}, {1, -1, false},
        {3, -1, false}, {2, 0, false}, {0, 0, false}, {4, 0, false},
    };
    uint8_t sample[DP_BLOCK_PIXELS_HEAD + 1] = {0};
    struct dp_sample_shape shape;
    struct dp_problem problem;
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const int pixels = 3 * 2 * cases[i].channels;
        const size_t bytes = DP_BLOCK_PIXELS_HEAD + (size_t)(pixels + cases[i].more);
        memset(sample, 0xff, sizeof(sample));
        dp_block_pixels_head(sample, 3, 2, cases[i].channels);
        assert_int_equal(sample[DP_BLOCK_PIXELS_HEAD], 0xff);
        assert_int_equal(dp_block_pixels(sample, bytes, &shape, &problem),
                         cases[i].good ? DP_OK : DP_ERR_DATA);
        if (cases[i].good) {
            assert_true(shape.height == 3 && shape.width == 2 &&
                        shape.channels == cases[i].channels && shape.count == (size_t)pixels &&
                        shape.element == DP_ELEMENT_BYTE);
        }
    }
    dp_block_pixels_head(sample, 16384, 257, 3);
    assert_int_equal(
        dp_block_pixels(sample, DP_BLOCK_PIXELS_HEAD + (size_t)16384 * 257 * 3, &shape, &problem),
        DP_OK);
    assert_true(shape.height == 16384 && shape.width == 257);
    assert_int_equal(dp_block_pixels(sample, DP_BLOCK_PIXELS_HEAD - 1, &shape, &problem),
                     DP_ERR_DATA);
    assert_non_null(strstr(problem.text, "is shorter than a picture can be"));
    dp_block_pixels_head(sample, 0, 2, 1);
    assert_int_equal(dp_block_pixels(sample, DP_BLOCK_PIXELS_HEAD, &shape, &problem), DP_ERR_DATA);
    assert_null(strstr(problem.text, "is shorter"));
    for (int last = 3; last < DP_BLOCK_PIXELS_HEAD; last += 4) { /* byte of a number */
        dp_block_pixels_head(sample, 3, 2, 1);
        sample[last] = 1;
        assert_int_equal(dp_block_pixels(sample, DP_BLOCK_PIXELS_HEAD + 6, &shape, &problem),
                         DP_ERR_DATA);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decompressing_takes_little_memory_beside_the_block),
        cmocka_unit_test(a_packer_that_cannot_be_made_leaves_nothing),
        cmocka_unit_test(a_block_that_ends_early_or_late_is_refused),
        cmocka_unit_test(pixels_have_the_bytes_that_their_head_says),
        cmocka_unit_test(a_block_has_as_many_bytes_as_its_samples),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
