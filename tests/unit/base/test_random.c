/*
 * test_random.c - the generator is Philox4x32-10, and a number depends on its key and index alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random.h"

/* The known answers that its authors publish with their library (Random123, kat_vectors). */
static void known_answers_of_the_authors(void **state)
{
    static const struct {
        uint64_t seed;
        uint32_t what, step;
        uint64_t block;
        uint32_t out[4];
    } cases[] = {
        {0, 0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX,
         UINT32_MAX,
         UINT32_MAX,
         UINT64_MAX,
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822,
         0x03707344,
         0x13198a2e,
         0x85a308d3243f6a88,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint32_t out[4];
        dp_random_block(cases[i].seed, cases[i].what, cases[i].step, cases[i].block, out);
        for (int word = 0; word < 4; word++) {
            assert_int_equal(out[word], cases[i].out[word]);
        }
    }
}

static void an_element_is_a_word_of_its_block(void **state)
{
    uint32_t out[4];
    (void)state;

    for (uint64_t index = 0; index < 1000; index++) {
        const uint64_t far = index + (UINT64_C(3) << 40);
        dp_random_block(7, DP_RANDOM_TEST, 5, far / 4, out);
        assert_int_equal(dp_random_u32(7, DP_RANDOM_TEST, 5, far), out[far % 4]);
    }
}

static void units_are_exact_and_below_one(void **state)
{
    (void)state;
    assert_true(dp_random_unit(0) == 0.0f);
    assert_true(dp_random_unit(255) == 0.0f); /* the lower eight bits are not used */
    assert_true(dp_random_unit(0x80000000u) == 0.5f);
    assert_true(dp_random_unit(UINT32_MAX) == 1.0f - 1.0f / 16777216.0f);
}

/* 65,536 numbers in 16 equal bins: 4,096 expected, standard deviation 62. Six deviations are
 * exceeded by chance once in 500 million; the numbers are the same in every run. */
static void numbers_are_spread_evenly(void **state)
{
    int bins[16] = {0};
    (void)state;

    for (uint64_t i = 0; i < 65536; i++) {
        bins[(int)(dp_random_unit(dp_random_u32(1, DP_RANDOM_TEST, 0, i)) * 16)]++;
    }
    for (int bin = 0; bin < 16; bin++) {
        assert_in_range(bins[bin], 4096 - 372, 4096 + 372);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers_of_the_authors),
        cmocka_unit_test(an_element_is_a_word_of_its_block),
        cmocka_unit_test(units_are_exact_and_below_one),
        cmocka_unit_test(numbers_are_spread_evenly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
