/* test_split.c - each sample is in one of both sets, and each stretch gives one to test with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/data/split.h"

enum { MOST = 2000 };

static void check(size_t count, double fraction, size_t expected)
{
    const struct dp_split split = dp_split_of(count, fraction);
    static uint8_t seen[MOST];
    size_t before = 0;

    assert_int_equal(split.count, count);
    assert_int_equal(split.test, expected);
    memset(seen, 0, sizeof(seen));
    for (size_t i = 0; i < split.test; i++) {
        const size_t row = dp_split_test_row(&split, i);
        assert_true(row < count && (i == 0 || row > before));
        seen[row]++;
        before = row;
    }
    for (size_t i = 0; i < count - split.test; i++) {
        const size_t row = dp_split_train_row(&split, i);
        assert_true(row < count && (i == 0 || row > before));
        seen[row]++;
        before = row;
    }
    for (size_t row = 0; row < count; row++) {
        assert_int_equal(seen[row], 1);
    }
}

static void each_sample_is_in_one_set(void **state)
{
    (void)state;

    check(2, 0.1, 1);
    check(2, 0.9, 1); /* one is left to train on */
    check(3, 0.0001, 1);
    check(10, 0.25, 3); /* rounded */
    check(1000, 0.1, 100);
    check(1999, 0.9, 1799);
    for (size_t count = 2; count < 60; count++) {
        const size_t half = (size_t)((double)count * 0.5 + 0.5);
        check(count, 0.5, half < count ? half : count - 1);
    }
}

/* Samples in the order of their classes: each class gives its share, give or take one. */
static void every_stretch_gives_one(void **state)
{
    const struct dp_split split = dp_split_of(1000, 0.2);
    size_t of_class[4] = {0};
    (void)state;

    for (size_t i = 0; i < split.test; i++) {
        const size_t row = dp_split_test_row(&split, i);
        assert_true(row / 5 == i);
        of_class[row / 250]++;
    }
    for (int k = 0; k < 4; k++) {
        assert_int_equal(of_class[k], 50);
    }
}

/* What ran before must be held out again, also in another version: these are the places. */
static void the_same_samples_are_held_out_for_ever(void **state)
{
    static const size_t rows[5] = {4, 28, 53, 65, 89};
    const struct dp_split split = dp_split_of(100, 0.05);
    (void)state;

    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(dp_split_test_row(&split, i), rows[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_sample_is_in_one_set),
        cmocka_unit_test(every_stretch_gives_one),
        cmocka_unit_test(the_same_samples_are_held_out_for_ever),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
