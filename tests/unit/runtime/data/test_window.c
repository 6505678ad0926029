/*
 * test_window.c - rows shuffled within windows: each at exactly one position, near its neighbours,
 * and in another order in each epoch.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/data/window.h"

enum { MOST = 300 };

static void every_row_is_at_exactly_one_position(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= MOST; n += n < 20 ? 1 : 7) {
        for (uint64_t window = 1; window <= n + 5; window += window < 20 ? 1 : 11) {
            uint8_t seen[MOST] = {0};
            struct dp_window_order order;
            dp_window_order_init(&order, 3, (uint32_t)window, n, window);
            for (uint64_t i = 0; i < n; i++) {
                const uint64_t row = dp_window_order_at(&order, i);
                assert_true(row < n);
                assert_int_equal(seen[row]++, 0);
            }
        }
    }
}

/* How far apart, around the end, the rows at positions [begin, begin + count) lie at most. */
static uint64_t spread(const struct dp_window_order *order, uint64_t begin, uint64_t count)
{
    uint8_t there[MOST] = {0};
    uint64_t gap = 0, widest = 0;

    for (uint64_t i = begin; i < begin + count; i++) {
        there[dp_window_order_at(order, i)] = 1;
    }
    for (uint64_t i = 0; i < 2 * order->n; i++) {
        gap = there[i % order->n] != 0 ? 0 : gap + 1;
        widest = gap > widest ? gap : widest;
    }
    return order->n - widest;
}

static void rows_of_a_window_lie_together(void **state)
{
    struct dp_window_order order;
    (void)state;

    for (uint32_t epoch = 0; epoch < 20; epoch++) {
        dp_window_order_init(&order, 5, epoch, 290, 40);
        for (uint64_t window = 0; window < 7; window++) {
            assert_int_equal(spread(&order, window * 40, 40), 40);
        }
        assert_int_equal(spread(&order, 280, 10), 10);
    }
}

static void seeds_and_epochs_have_orders_of_their_own(void **state)
{
    static const uint64_t seeds[] = {1, 2, 1};
    static const uint32_t epochs[] = {0, 0, 1};
    struct dp_window_order first, other;
    (void)state;

    dp_window_order_init(&first, 1, 0, 290, 40);
    for (int k = 0; k < 3; k++) {
        int same = 0;
        dp_window_order_init(&other, seeds[k], epochs[k], 290, 40);
        for (uint64_t i = 0; i < 290; i++) {
            same += dp_window_order_at(&first, i) == dp_window_order_at(&other, i);
        }
        assert_true(k == 0 ? same == 290 : same < 20);
    }
}

/* Windows are not cut at the same rows in every epoch, and rows of a window are not in order. */
static void windows_change_with_the_epoch(void **state)
{
    int in_order = 0, cuts = 0;
    (void)state;

    for (uint32_t epoch = 0; epoch < 20; epoch++) {
        struct dp_window_order order;
        dp_window_order_init(&order, 9, epoch, 290, 40);
        cuts += order.first % 40 == 0;
        for (uint64_t i = 1; i < 40; i++) {
            in_order += dp_window_order_at(&order, i) == dp_window_order_at(&order, i - 1) + 1;
        }
    }
    assert_true(cuts < 10);
    assert_true(in_order < 20 * 39 / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_at_exactly_one_position),
        cmocka_unit_test(rows_of_a_window_lie_together),
        cmocka_unit_test(seeds_and_epochs_have_orders_of_their_own),
        cmocka_unit_test(windows_change_with_the_epoch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
