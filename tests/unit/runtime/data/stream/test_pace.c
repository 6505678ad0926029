/*
 * test_pace.c - as many threads prepare batches as keep up with the steps, and no more.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/data/stream/pace.h"

enum { BATCHES = 64 };

static const uint64_t ms = 1000000;

/* What the number settles at where a batch is `work` of a thread, and a step computes for `step`:
 * with n threads the step waits for what is left of work / n. */
static int settled(int most, uint64_t work, uint64_t step)
{
    struct dp_pace pace = {.most = most, .active = 1};

    for (int i = 0; i < BATCHES; i++) {
        const uint64_t each = work / (uint64_t)pace.active;
        (void)dp_pace_note(&pace, each > step ? each - step : 0, step, work);
        assert_in_range(pace.active, 1, most);
    }
    return pace.active;
}

static void as_many_work_as_are_needed(void **state)
{
    (void)state;
    assert_int_equal(settled(16, 1 * ms, 10 * ms), 1);
    assert_int_equal(settled(16, 35 * ms, 10 * ms), 4);
    assert_int_equal(settled(16, 100 * ms, 10 * ms), 10);
}

static void no_more_work_than_there_are(void **state)
{
    (void)state;
    assert_int_equal(settled(2, 100 * ms, 10 * ms), 2);
    assert_int_equal(settled(1, 100 * ms, 10 * ms), 1);
    assert_int_equal(settled(3, 100 * ms, 0), 3);
}

/* What was prepared before gives batches for a while. */
static void one_is_left_where_there_is_no_work(void **state)
{
    struct dp_pace pace = {.most = 4, .active = 4};
    (void)state;

    for (int i = 0; i < BATCHES; i++) {
        (void)dp_pace_note(&pace, 0, 10 * ms, 0);
    }
    assert_int_equal(pace.active, 1);
}

static void fewer_work_when_steps_become_slower(void **state)
{
    struct dp_pace pace = {.most = 8, .active = 8};
    (void)state;

    for (int i = 0; i < BATCHES; i++) {
        (void)dp_pace_note(&pace, 0, 100 * ms, 150 * ms);
    }
    assert_int_equal(pace.active, 2);
}

/* Work may take longer beside other work: where steps wait although enough seem to work, one more
 * does, then another. */
static void one_more_works_where_steps_still_wait(void **state)
{
    struct dp_pace pace = {.most = 8, .active = 2};
    int before = pace.active, changes = 0;
    (void)state;

    for (int i = 0; i < BATCHES && pace.active < pace.most; i++) {
        const int active = dp_pace_note(&pace, 10 * ms, 100 * ms, 150 * ms);
        assert_in_range(active, before, before + 1);
        changes += active > before;
        before = active;
    }
    assert_true(changes > 1);
}

/* A short wait is chance. */
static void a_number_that_fits_stays(void **state)
{
    struct dp_pace pace = {.most = 8, .active = 3};
    (void)state;

    for (int i = 0; i < BATCHES; i++) {
        (void)dp_pace_note(&pace, i % 8 == 0 ? ms : 0, 100 * ms, 250 * ms);
        assert_int_equal(pace.active, 3);
    }
}

/* Of the time of eight batches more than 20 thousandths are many, less than 5 are few. */
static void the_number_changes_after_eight_batches_at_its_limits(void **state)
{
    static const struct {
        uint64_t waits, work;
        int active;
    } cases[] = {{20000, 9000000, 3}, {20001, 100, 4},    {5000, 100, 3},
                 {4999, 100, 2},      {4999, 1990003, 3}, {4999, 1990002, 2}};
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct dp_pace pace = {.most = 8, .active = 3};
        for (int round = 1; round <= 2; round++) {
            for (int batch = 1; batch < 8; batch++) {
                assert_int_equal(
                    dp_pace_note(&pace, cases[i].waits, ms - cases[i].waits, cases[i].work), 3);
            }
            assert_int_equal(
                dp_pace_note(&pace, cases[i].waits, ms - cases[i].waits, cases[i].work),
                cases[i].active);
            pace.active = 3;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_work_as_are_needed),
        cmocka_unit_test(no_more_work_than_there_are),
        cmocka_unit_test(one_is_left_where_there_is_no_work),
        cmocka_unit_test(fewer_work_when_steps_become_slower),
        cmocka_unit_test(one_more_works_where_steps_still_wait),
        cmocka_unit_test(a_number_that_fits_stays),
        cmocka_unit_test(the_number_changes_after_eight_batches_at_its_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
