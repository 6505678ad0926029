/* test_compression_sizes.c - what a compressor keeps, allocates and codes, by its name alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "collectives/compressors/compression.h"

enum { TRAINED = 1000, RANKS = 3 };

static void residuals_are_as_long_as_the_weights(void **state)
{
    static const struct {
        const char *compressor;
        size_t arrays;
    } cases[] = {{"none", 0},    {"fp16", 0},     {"bf16", 0},
                 {"onebit", 2},  {"topk", 1},     {"topk:ratio=0.1,momentum=0.9", 2},
                 {"randomk", 1}, {"powersgd", 1}, {"no compressor", 0}};
    static const struct dp_tensor tensor = {.begin = 0};
    const size_t live = dp_mem_live();
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct dp_compression_size size =
            dp_compression_measure(cases[i].compressor, &tensor, 1, TRAINED);
        assert_int_equal(size.residuals, cases[i].arrays * TRAINED);
    }
    assert_int_equal(dp_mem_live(), live);
}

static size_t codes_of(const char *compressor, size_t largest)
{
    const struct dp_bucket_plan plan = {.largest = largest};

    return dp_compression_codes(compressor, &plan, RANKS);
}

/* Pairs of a number and its place: this rank's twice, and those of all ranks; at least
 * one pair, unless there is nothing. */
static void codes_of_topk_are_pairs(void **state)
{
    const size_t slots = 2 + RANKS, pair = 8;
    (void)state;

    assert_int_equal(codes_of("topk:ratio=0.25", 4096), slots * 1024 * pair);
    assert_int_equal(codes_of("topk:ratio=0.25,momentum=0.5", 4096),
                     slots * 1024 * pair + 1024 * sizeof(float));
    assert_int_equal(codes_of("topk:ratio=0.25", 3), slots * DP_MEM_ALIGN);
    assert_int_equal(codes_of("topk:ratio=0.25", 1), slots * DP_MEM_ALIGN);
    assert_int_equal(codes_of("topk:ratio=0.25", 0), 0);
    assert_int_equal(codes_of("none", 4096), 0);
    assert_int_equal(codes_of("no compressor", 4096), 0);
}

static void check_work(const char *compressor, int ranks, double encodes, double decodes)
{
    const struct dp_coding_work work = dp_compression_work(compressor, ranks);

    assert_float_equal(work.encodes, encodes, 1e-12);
    assert_float_equal(work.decodes, decodes, 1e-12);
}

/* Each rank encodes its own and the sum of its part, and decodes as much as there is of both; or
 * what all ranks have sent. */
static void what_is_coded_depends_on_ranks_as_the_method_says(void **state)
{
    (void)state;

    check_work("none", 4, 1.0, 1.0);
    check_work("fp16", 4, 1.25, 2.0);
    check_work("int8", 2, 1.5, 2.0);
    check_work("topk", 4, 1.0, 4.0);
    check_work("no compressor", 4, 1.0, 1.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(residuals_are_as_long_as_the_weights),
        cmocka_unit_test(codes_of_topk_are_pairs),
        cmocka_unit_test(what_is_coded_depends_on_ranks_as_the_method_says),
    };

    return cmocka_run_group_tests_name("compression_sizes", tests, NULL, NULL);
}
