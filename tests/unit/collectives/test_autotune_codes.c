/* test_autotune_codes.c - what autotuning sums through a compressor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "collectives/exchange/autotune_codes.h"

enum { SMALL = DP_BLOCK, LARGE = 2 * DP_BLOCK };

/* Of none a part is summed in its place. */
static void a_size_that_no_bucket_has_is_refused(void **state)
{
    static struct dp_bucket buckets[] = {{.range = {SMALL, LARGE}, .tensor_count = 1},
                                         {.range = {0, SMALL}, .tensor_count = 1}};
    static const struct dp_bucket_plan plan = {.buckets = buckets, .count = 2, .largest = LARGE};
    const size_t least = SMALL * sizeof(float);
    struct dp_autotune_codes *codes = NULL;
    float data[1] = {0};
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(dp_autotune_codes_create("int8", &plan, 2 * least, &codes), DP_OK);
    assert_int_equal(dp_autotune_codes_sum(codes, NULL, data, 3 * least), DP_ERR_ARG);
    dp_autotune_codes_destroy(codes);
    assert_int_equal(dp_autotune_codes_create("int8", &plan, least, &codes), DP_OK);
    assert_int_equal(dp_autotune_codes_sum(codes, NULL, data, 0), DP_ERR_ARG);
    dp_autotune_codes_destroy(codes);
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(dp_mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_size_that_no_bucket_has_is_refused),
    };

    return cmocka_run_group_tests_name("autotune_codes", tests, NULL, NULL);
}
