/* test_efficiency.c - the factors of scaling efficiency multiply to it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/report/efficiency.h"

static struct dp_run_rank ranks[2];

/* Two ranks whose step takes 20 ms, where one rank alone needs 12, of which it computes 11. */
static struct dp_run_summary slowed(void)
{
    struct dp_run_summary s = {.scaling_efficiency = 0.6, .ranks = ranks, .rank_count = 2};

    for (int i = 0; i < 2; i++) {
        double *ms = ranks[i].step_ms;
        ms[DP_PART_INPUT] = 1.0;
        ms[DP_PART_COPY] = 0.5;
        ms[DP_PART_FORWARD] = 4.0 + i;
        ms[DP_PART_BACKWARD] = 7.5;
        ms[DP_PART_EXPOSED] = 5.0 - i;
        ms[DP_PART_OPTIMIZER] = 1.0;
        ms[DP_PART_OTHER] = 1.0;
    }
    return s;
}

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-9;
}

static void each_cause_has_its_factor(void **state)
{
    struct dp_run_summary s = slowed();
    (void)state;

    dp_efficiency_split(&s, 11.0, 3.0);
    assert_true(near(s.efficiency_contention, 12.0 / 14.5));
    assert_true(near(s.efficiency_input, 14.5 / 15.5));
    assert_true(near(s.efficiency_exposed, 15.5 / 17.0));
    assert_true(near(s.efficiency_waiting, 17.0 / 20.0));
    assert_true(near(s.efficiency_other, 1.0));
    assert_true(near(s.efficiency_contention * s.efficiency_input * s.efficiency_exposed *
                         s.efficiency_waiting * s.efficiency_other,
                     0.6));
}

static void what_is_not_known_counts_among_the_rest(void **state)
{
    struct dp_run_summary s = slowed();
    (void)state;

    dp_efficiency_split(&s, (double)NAN, (double)NAN);
    assert_true(isnan(s.efficiency_contention) && isnan(s.efficiency_waiting));
    assert_true(near(s.efficiency_exposed, 13.0 / 17.5));
    assert_true(near(s.efficiency_input * s.efficiency_exposed * s.efficiency_other, 0.6));
}

static void waiting_is_no_more_than_what_is_exposed(void **state)
{
    struct dp_run_summary s = slowed();
    (void)state;

    dp_efficiency_split(&s, 11.0, 1e6);
    assert_true(near(s.efficiency_exposed, 1.0));
    assert_true(near(s.efficiency_waiting, 15.5 / 20.0));
}

static void one_rank_loses_nothing_and_without_a_rate_nothing_is_known(void **state)
{
    struct dp_run_summary s = slowed();
    (void)state;

    s.rank_count = 1;
    s.scaling_efficiency = 1.0;
    dp_efficiency_split(&s, 11.0, 3.0);
    assert_true(s.efficiency_contention == 1.0 && s.efficiency_other == 1.0);
    s = slowed();
    s.scaling_efficiency = (double)NAN;
    dp_efficiency_split(&s, 11.0, 3.0);
    assert_true(isnan(s.efficiency_contention) && isnan(s.efficiency_other));
    s = slowed();
    s.rank_count = 0;
    dp_efficiency_split(&s, 11.0, 3.0);
    assert_true(isnan(s.efficiency_exposed));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_cause_has_its_factor),
        cmocka_unit_test(what_is_not_known_counts_among_the_rest),
        cmocka_unit_test(waiting_is_no_more_than_what_is_exposed),
        cmocka_unit_test(one_rank_loses_nothing_and_without_a_rate_nothing_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
