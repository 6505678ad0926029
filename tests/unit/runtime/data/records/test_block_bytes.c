/*
 * test_block_bytes.c - what fits a block, what is compressed, and blocks whose samples do not end
 * where they can.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/records/block.h"

enum { MOST = 1001, LEAST_SAVING = 16 };

static const size_t full = DP_SHARD_BLOCK_SAMPLES; /* samples */

/* A block of one sample of `bytes`. */
static void begin_block(struct dp_block_builder *b, size_t label_numbers, size_t bytes)
{
    static const uint8_t data[MOST];
    static const double label[3];

    *b = (struct dp_block_builder){.form = {0, label_numbers}};
    assert_true(dp_block_fits(b, (size_t)2 * MOST, MOST)); /* an empty one takes any */
    assert_true(dp_block_add(b, data, bytes, label, MOST));
}

static void a_block_takes_what_fits_its_bytes(void **state)
{
    struct dp_block_builder b;
    (void)state;

    for (size_t numbers = 1; numbers <= 3; numbers++) {
        const size_t label = numbers > 1 ? numbers * 8 : 0; /* one number does not count */
        begin_block(&b, numbers, 300);
        assert_true(dp_block_fits(&b, MOST - 300 - 2 * label, MOST));
        assert_false(dp_block_fits(&b, MOST - 300 - 2 * label + 1, MOST));
        dp_block_builder_release(&b);

        begin_block(&b, numbers, MOST - label);
        assert_true(dp_block_fits(&b, 0, MOST) == (numbers == 1));
        assert_false(dp_block_fits(&b, 1, MOST));
        dp_block_builder_release(&b);
    }
}

static void a_block_has_4096_samples_at_most(void **state)
{
    static const double label = 7.0;
    struct dp_block_builder b = {.form = {0, 1}};
    size_t bytes;
    (void)state;

    for (size_t i = 0; i < full; i++) {
        const uint8_t byte = (uint8_t)i;
        assert_true(dp_block_fits(&b, 1, 2 * full));
        assert_true(dp_block_add(&b, &byte, i % 2, &label, 2 * full));
    }
    assert_int_equal(b.labels.room, dp_buffer_room(full * 8));
    assert_false(dp_block_fits(&b, 0, 2 * full));
    bytes = dp_block_finish(&b);
    assert_int_equal(bytes, full * 12 + full / 2);
    for (size_t i = 0; i < full / 2; i++) {
        const uint8_t *data = (const uint8_t *)b.payload.data + full * 12;
        assert_int_equal(data[i], (uint8_t)(2 * i + 1));
    }
    dp_block_builder_release(&b);
    assert_int_equal(dp_mem_live(), 0);
}

static void labels_of_several_numbers_have_room_for_a_blocks_bytes(void **state)
{
    struct dp_block_builder b;
    (void)state;

    begin_block(&b, 3, 10);
    assert_int_equal(b.labels.room, dp_buffer_room(MOST + 24));
    assert_int_equal(b.data.room, dp_buffer_room(MOST));
    dp_block_builder_release(&b);
}

static void a_block_without_memory_takes_nothing(void **state)
{
    static const double label;
    (void)state;

    for (int nth = 1; nth <= 2; nth++) {
        struct dp_block_builder b = {.form = {0, 1}};
        (void)dp_mem_fail_nth(nth);
        assert_false(dp_block_add(&b, "x", 1, &label, MOST));
        (void)dp_mem_fail_nth(0);
        dp_block_builder_release(&b);
    }
    assert_int_equal(dp_mem_live(), 0);
}

/* Random bytes, of which so many at the end are equal: each saves the better part of a byte. */
static size_t pack(struct dp_block_packer *packer, size_t bytes, size_t equal)
{
    static uint8_t raw[4096];
    struct dp_buffer out = {NULL, 0};
    size_t packed = 1;
    uint32_t word = 1;

    for (size_t i = 0; i < bytes; i++) {
        word = word * 1664525 + 1013904223;
        raw[i] = i < bytes - equal ? (uint8_t)(word >> 24) : 0;
    }
    assert_int_equal(dp_block_pack(packer, raw, bytes, &out, &packed), DP_OK);
    dp_buffer_release(&out);
    return packed;
}

static void what_saves_less_than_a_sixteenth_is_not_compressed(void **state)
{
    struct dp_block_packer *packer = NULL;
    int at_limit = 0;
    (void)state;

    assert_int_equal(dp_block_packer_create(3, &packer), DP_OK);
    assert_int_equal(pack(packer, 4096, 0), 0); /* it would be longer */
    for (size_t bytes = 1024; bytes < 1088; bytes++) {
        const size_t most = bytes - bytes / LEAST_SAVING;
        for (size_t equal = 0; equal < bytes / 8; equal++) {
            const size_t packed = pack(packer, bytes, equal);
            assert_in_range(packed, 0, most);
            at_limit += packed == most;
        }
    }
    assert_true(at_limit > 0);
    dp_block_packer_destroy(packer);
}

static void all_levels_of_zstd_can_be_asked_for(void **state)
{
    int least = -1, most = -1;
    (void)state;

    dp_block_levels(&least, &most);
    assert_int_equal(least, 1);
    assert_int_equal(most, 22);
}

static void a_packer_without_memory_is_reported(void **state)
{
    struct dp_block_packer *packer = NULL;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    (void)dp_mem_fail_nth(1);
    assert_int_equal(dp_block_packer_create(3, &packer), DP_ERR_NOMEM);
    (void)dp_mem_fail_nth(0);
    assert_null(packer);
    assert_int_equal(dp_mem_live(), 0);
}

/* Opens a block of samples with these ends, whose bytes are so many. */
static dp_status open_ends(const uint32_t *ends, uint32_t samples, uint32_t bytes,
                           struct dp_problem *problem)
{
    const struct dp_block_form form = {0, 1};
    const struct dp_shard_block block = {.raw = samples * 12 + bytes, .samples = samples};
    struct dp_block_view view;
    uint8_t raw[256] = {0};

    for (uint32_t i = 0; i < samples; i++) {
        dp_shard_put(raw + (size_t)samples * 8 + (size_t)4 * i, ends[i], 4);
    }
    return dp_block_open(&block, raw, &form, &view, problem);
}

static void samples_end_one_after_another_at_the_end_of_the_block(void **state)
{
    static const struct {
        uint32_t ends[3], bytes;
        const char *why; /* NULL: they do */
    } cases[] = {
        {{2, 5, 9}, 9, NULL},
        {{0, 0, 0}, 0, NULL},
        {{0, 5, 5}, 5, NULL}, /* samples of no bytes */
        {{0, 1, 2}, 2, NULL},
        {{10, 9, 9}, 9, "sample 0 of it"},
        {{2, 1, 9}, 9, "sample 1 of it"},
        {{2, 10, 9}, 9, "sample 1 of it"},
        {{2, 30, 9}, 9, "sample 1 of it"},
        {{2, 5, 8}, 9, "sample 2 of it"},
        {{2, 5, 10}, 9, "sample 2 of it"},
        {{2, 5, 4}, 9, "sample 2 of it"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct dp_problem problem = {""};
        assert_int_equal(open_ends(cases[i].ends, 3, cases[i].bytes, &problem),
                         cases[i].why == NULL ? DP_OK : DP_ERR_DATA);
        assert_true(cases[i].why == NULL || strstr(problem.text, cases[i].why) != NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_takes_what_fits_its_bytes),
        cmocka_unit_test(a_block_has_4096_samples_at_most),
        cmocka_unit_test(labels_of_several_numbers_have_room_for_a_blocks_bytes),
        cmocka_unit_test(a_block_without_memory_takes_nothing),
        cmocka_unit_test(what_saves_less_than_a_sixteenth_is_not_compressed),
        cmocka_unit_test(all_levels_of_zstd_can_be_asked_for),
        cmocka_unit_test(a_packer_without_memory_is_reported),
        cmocka_unit_test(samples_end_one_after_another_at_the_end_of_the_block),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
