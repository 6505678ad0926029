/*
 * test_ssp_clock.c - which trainers wait, and how stale gradients are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "collectives/async/ssp_clock.h"

static void begin(struct dp_ssp_clock *c, int count, uint64_t bound, uint64_t step)
{
    assert_int_equal(dp_ssp_clock_open(c, count, bound), DP_OK);
    dp_ssp_clock_begin(c, step);
}

/* Applied, and answered if that may be. */
static bool goes(struct dp_ssp_clock *c, int i)
{
    dp_ssp_clock_apply(c, i, false);
    if (!dp_ssp_clock_may_go(c, i)) {
        return false;
    }
    dp_ssp_clock_go(c, i);
    return true;
}

static void a_trainer_too_far_ahead_waits_for_the_slowest(void **state)
{
    struct dp_ssp_clock c;
    (void)state;

    begin(&c, 3, 2, 7);
    assert_false(dp_ssp_clock_may_go(&c, 0)); /* it has weights */
    assert_true(goes(&c, 0));
    assert_true(goes(&c, 0));
    assert_false(goes(&c, 0)); /* step 10, when others have done 7 */
    assert_true(goes(&c, 1));
    assert_false(dp_ssp_clock_may_go(&c, 0));
    assert_int_equal(dp_ssp_clock_slowest(&c), 7);
    assert_true(goes(&c, 2));
    assert_int_equal(dp_ssp_clock_slowest(&c), 8);
    assert_true(dp_ssp_clock_may_go(&c, 0));
    dp_ssp_clock_close(&c);
}

static void the_histogram_counts_gradients_of_others_since_the_weights(void **state)
{
    struct dp_ssp_clock c;
    (void)state;

    begin(&c, 2, 1, 0);
    assert_true(goes(&c, 0));  /* nothing since it got its weights */
    assert_true(goes(&c, 1));  /* one of trainer 0 */
    assert_true(goes(&c, 1));  /* none */
    assert_false(goes(&c, 1)); /* none */
    assert_true(goes(&c, 0));  /* three of trainer 1 */
    assert_int_equal(c.bins, 4);
    assert_int_equal(c.histogram[0], 3);
    assert_int_equal(c.histogram[1], 1);
    assert_int_equal(c.histogram[2], 0);
    assert_int_equal(c.histogram[3], 1);
    dp_ssp_clock_begin(&c, 3); /* a meeting: all have the newest weights */
    assert_true(goes(&c, 1));
    assert_int_equal(c.histogram[0], 4);
    dp_ssp_clock_close(&c);
}

/* A trainer that learns of the end with its next weights must have a gradient left to send. */
static void the_soonest_end_can_still_be_announced_to_all(void **state)
{
    struct dp_ssp_clock c;
    (void)state;

    begin(&c, 3, 1, 4);
    assert_int_equal(dp_ssp_clock_soonest(&c), 6); /* all compute step 4 */
    assert_true(goes(&c, 0));
    assert_int_equal(dp_ssp_clock_soonest(&c), 7); /* trainer 0 computes step 5 */
    assert_false(goes(&c, 0));
    assert_int_equal(dp_ssp_clock_soonest(&c), 7); /* it waits for weights to compute step 6 */
    dp_ssp_clock_apply(&c, 1, true);
    dp_ssp_clock_apply(&c, 2, true);
    assert_int_equal(c.ended, 2);
    assert_int_equal(dp_ssp_clock_soonest(&c), 7);
    dp_ssp_clock_close(&c);
}

static bool some_computes_when_all_go_that_may(struct dp_ssp_clock *c)
{
    bool computes = false;

    for (int i = 0; i < c->count; i++) {
        if (dp_ssp_clock_may_go(c, i)) {
            dp_ssp_clock_go(c, i);
        }
        computes = computes || c->ssp_clock[i].state == DP_SSP_COMPUTES;
        assert_true(c->ssp_clock[i].step <= dp_ssp_clock_slowest(c) + c->bound + 1);
    }
    return computes;
}

/* One trainer does many steps in a row, so that it reaches the bound. */
static void any_order(struct dp_ssp_clock *c, uint32_t seed)
{
    enum { TURNS = 4000 };

    for (uint64_t turn = 0; turn < TURNS; turn++) {
        const uint32_t bits = dp_random_u32(5, DP_RANDOM_TEST, seed, turn);
        const int i = (int)((turn / 16 + bits % 3 / 2) % (uint64_t)c->count);
        if (c->ssp_clock[i].state == DP_SSP_COMPUTES) {
            dp_ssp_clock_apply(c, i, false);
        }
        assert_true(some_computes_when_all_go_that_may(c));
    }
}

/* No trainer is too far ahead, none waits for ever, and the delays match the histogram. */
static void the_bound_holds_in_any_order(void **state)
{
    (void)state;

    for (int count = 1; count <= 4; count++) {
        for (uint32_t bound = 1; bound <= 4; bound++) {
            struct dp_ssp_clock c;
            uint64_t sum = 0;
            begin(&c, count, bound, 0);
            any_order(&c, bound);
            for (size_t b = 0; b < c.bins; b++) {
                sum += c.histogram[b];
            }
            assert_int_equal(sum, c.applied);
            dp_ssp_clock_close(&c);
        }
    }
}

static void a_failed_allocation_leaves_nothing(void **state)
{
    struct dp_ssp_clock c;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; nth <= 2; nth++) {
        dp_mem_fail_nth(nth);
        assert_int_equal(dp_ssp_clock_open(&c, 3, 2), DP_ERR_NOMEM);
    }
    dp_mem_fail_nth(0);
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(dp_mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trainer_too_far_ahead_waits_for_the_slowest),
        cmocka_unit_test(the_histogram_counts_gradients_of_others_since_the_weights),
        cmocka_unit_test(the_soonest_end_can_still_be_announced_to_all),
        cmocka_unit_test(the_bound_holds_in_any_order),
        cmocka_unit_test(a_failed_allocation_leaves_nothing),
    };

    return cmocka_run_group_tests_name("ssp_clock", tests, NULL, NULL);
}
