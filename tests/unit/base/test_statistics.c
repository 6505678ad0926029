/* test_statistics.c - medians and quantiles, against values by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/statistics.h"

static void the_median_is_the_middle_or_the_mean_of_two(void **state)
{
    double odd[] = {5.0, 1.0, 9.0}, even[] = {4.0, 1.0, 10.0, 2.0}, one[] = {7.0};
    (void)state;

    dp_sort(odd, 3);
    dp_sort(even, 4);
    assert_true(odd[0] == 1.0 && odd[1] == 5.0 && odd[2] == 9.0);
    assert_true(dp_median(odd, 3) == 5.0);
    assert_true(dp_median(even, 4) == 3.0);
    assert_true(dp_median(one, 1) == 7.0);
}

static void a_quantile_is_the_nearest_rank(void **state)
{
    double values[200];
    (void)state;

    for (int i = 0; i < 200; i++) {
        values[i] = i + 1; /* the k-th smallest is k */
    }
    assert_true(dp_quantile(values, 200, 0.99) == 198.0);
    assert_true(dp_quantile(values, 100, 0.99) == 99.0);
    assert_true(dp_quantile(values, 99, 0.99) == 99.0);
    assert_true(dp_quantile(values, 20, 0.99) == 20.0);
    assert_true(dp_quantile(values, 20, 0.5) == 10.0);
    assert_true(dp_quantile(values, 20, 0.0) == 1.0);
    assert_true(dp_quantile(values, 1, 0.99) == 1.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_median_is_the_middle_or_the_mean_of_two),
        cmocka_unit_test(a_quantile_is_the_nearest_rank),
    };
    return cmocka_run_group_tests_name("statistics", tests, NULL, NULL);
}
