/*
 * test_bench_stats.c - ddp_bench's statistics of times and errors, against values computed by hand.
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/statistics.h"
#include "launch/bench/stats.h"

static void assert_near(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-12 * fabs(expected))) {
        fail_msg("%.17g, not %.17g", found, expected);
    }
}

/* Of 20 values the 6th and the 15th; of few the least and the largest; of two nothing is known. */
static void a_median_has_a_range_that_more_values_narrow(void **state)
{
    struct dp_stats_range range;
    double values[20];
    (void)state;

    for (int i = 0; i < 20; i++) {
        values[i] = i + 1.0;
    }
    range = dp_stats_median_range(values, 20);
    assert_true(range.low == 6.0 && range.high == 15.0);
    range = dp_stats_median_range(values, 9);
    assert_true(range.low == 2.0 && range.high == 8.0);
    range = dp_stats_median_range(values, DP_STATS_FEWEST);
    assert_true(range.low == 1.0 && range.high == 3.0);
    range = dp_stats_median_range(values, DP_STATS_FEWEST - 1);
    assert_true(isnan(range.low) && isnan(range.high));
}

/* A machine of two speeds, 45 and 50: medians of both sides would be 5 apart. */
static void differences_are_those_of_pairs(void **state)
{
    const double less[] = {45.0, 50.0, 45.0, 50.0, 45.0}, more[] = {46.0, 50.5, 45.25, 50.0, 50.0};
    double out[5];
    (void)state;

    dp_stats_differences(less, more, 5, out);
    assert_true(out[0] == 0.0 && out[1] == 0.25 && out[2] == 0.5 && out[3] == 1.0 && out[4] == 5.0);
    assert_near(dp_median(out, 5), 0.5);
}

/* 1 GB in 0.5 s is 2 GB/s; of 4 ranks a ring link carries 1.5 times that, of 2 as much, of 1
 * none. */
static void bandwidths_are_those_of_nccl_tests(void **state)
{
    (void)state;
    assert_near(dp_stats_algbw(1e9, 5e5), 2.0);
    assert_near(dp_stats_busbw(1e9, 5e5, 4), 3.0);
    assert_near(dp_stats_busbw(1e9, 5e5, 2), 2.0);
    assert_true(dp_stats_busbw(1e9, 5e5, 1) == 0.0);
    assert_true(dp_stats_algbw(1e9, 0.0) == 0.0);
}

/* From 1 to 2 a unit is 2^-23; from 0.5 to 1 half of that. */
static void ulps_are_units_of_the_magnitude(void **state)
{
    const double unit = ldexp(1.0, -23);
    (void)state;

    assert_near(dp_stats_ulps(1.0f + (float)unit, 1.0, 1.0), 1.0);
    assert_near(dp_stats_ulps(1.0f, 1.0 + unit / 4.0, 1.5), 0.25);
    assert_near(dp_stats_ulps(0.75f, 0.75 + unit / 2.0, 0.75), 1.0);
    assert_true(dp_stats_ulps(0.1f, (double)0.1f, 0.3) == 0.0);
    /* 1 - 1 computed as 2^-23: one unit of what was added, not of the result. */
    assert_near(dp_stats_ulps((float)unit, 0.0, 2.0), 0.5);
    /* Below the normal numbers the unit stays that of the smallest one. */
    assert_near(dp_stats_ulps(0.0f, (double)FLT_MIN, 0.0), ldexp(1.0, 23));
}

static void the_relative_error_is_a_ratio_of_lengths(void **state)
{
    (void)state;
    assert_near(dp_stats_relative(0.04, 4.0), 0.1);
    assert_true(dp_stats_relative(0.0, 4.0) == 0.0);
    assert_true(dp_stats_relative(0.0, 0.0) == 0.0);
    assert_true(isinf(dp_stats_relative(1.0, 0.0)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_median_has_a_range_that_more_values_narrow),
        cmocka_unit_test(differences_are_those_of_pairs),
        cmocka_unit_test(bandwidths_are_those_of_nccl_tests),
        cmocka_unit_test(ulps_are_units_of_the_magnitude),
        cmocka_unit_test(the_relative_error_is_a_ratio_of_lengths),
    };
    return cmocka_run_group_tests_name("bench_stats", tests, NULL, NULL);
}
