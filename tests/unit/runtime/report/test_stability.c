/* test_stability.c - how steady a rate is, in few windows, and why it is not. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/report/resources/stability.h"

enum { STEP_NS = 10000000, ROWS = 20 };

/* Steps of 10 ms of a run of 20 s, whose rate change(part of the run) changes. */
static void run(struct dp_stability *s, double (*change)(double part))
{
    for (int i = 0; i < 2000; i++) {
        dp_stability_add(s, (uint64_t)(STEP_NS / change(i / 2000.0)), ROWS);
        if (i % 100 == 99) {
            dp_stability_note(s, &(struct dp_stability_causes){.ghz_sum = 3.0 * change(i / 2000.0),
                                                               .looks = 1,
                                                               .over_ns = 1});
        }
    }
}

static double steady(double part)
{
    (void)part;
    return 1.0;
}

static double falling(double part)
{
    return part < 0.5 ? 1.0 : 0.8;
}

static double uneven(double part)
{
    return fmod(part * 2000, 400) < 200 ? 1.0 : 0.5;
}

static void windows_are_joined_and_lose_nothing(void **state)
{
    struct dp_stability s = {0};
    double samples = 0.0;
    (void)state;

    run(&s, steady);
    assert_true(s.count >= DP_STABILITY_WINDOWS / 2 && s.count < DP_STABILITY_WINDOWS);
    for (int i = 0; i < s.count; i++) {
        assert_float_equal(dp_stability_rate(&s, i), 2000.0, 1e-6);
        samples += (double)s.windows[i].samples;
    }
    assert_true(samples + (double)s.open.samples == 2000.0 * ROWS);
    const struct dp_stability_found found = dp_stability_find(&s);
    assert_float_equal(found.window_s, 0.4, 0.05);
    assert_float_equal(found.cv, 0.0, 1e-9);
    assert_float_equal(found.drift, 0.0, 1e-9);
    assert_false(found.drifts);
}

static void a_rate_that_falls_drifts(void **state)
{
    struct dp_stability s = {0};
    char cause[256];
    (void)state;

    run(&s, falling);
    assert_float_equal(dp_stability_find(&s).drift, -0.2, 1e-6);
    assert_true(dp_stability_find(&s).drifts);
    dp_stability_cause(&s, cause, sizeof(cause));
    assert_string_equal(cause, "the clock went from 3.00 to 2.40 GHz");
}

static void a_rate_that_varies_all_the_time_does_not(void **state)
{
    struct dp_stability s = {0};
    (void)state;

    run(&s, uneven);
    assert_true(dp_stability_find(&s).cv > 0.2);
    assert_false(dp_stability_find(&s).drifts);
}

static void a_short_run_says_nothing(void **state)
{
    struct dp_stability s = {0};
    (void)state;

    assert_int_equal(dp_stability_find(&s).count, 0);
    assert_true(isnan(dp_stability_find(&s).window_s));
    for (int i = 0; i < 100; i++) {
        dp_stability_add(&s, i < 50 ? STEP_NS : 2 * STEP_NS, ROWS);
    }
    assert_true(dp_stability_find(&s).drift < -0.3);
    assert_false(dp_stability_find(&s).drifts); /* in 1.5 s */
}

/* Windows of one step each: steady, then with what `late` says. */
static const char *cause_of(const struct dp_stability_causes *late)
{
    static char cause[256];
    struct dp_stability s = {0};

    for (int i = 0; i < 40; i++) {
        const struct dp_stability_causes quiet = {3.0, 1, 1000000000, 10000000, 0, 0};
        dp_stability_note(&s, i < 20 ? &quiet : late);
        dp_stability_add(&s, i < 20 ? 1000000000 : 1250000000, ROWS);
    }
    assert_true(dp_stability_find(&s).drifts);
    dp_stability_cause(&s, cause, sizeof(cause));
    return cause;
}

static void the_likely_cause_is_named(void **state)
{
    (void)state;

    assert_string_equal(
        cause_of(&(struct dp_stability_causes){3.0, 1, 1000000000, 200000000, 0, 0}),
        "other load: this rank waited for a core 20 % of the time, 1 % before");
    assert_string_equal(
        cause_of(&(struct dp_stability_causes){2.9, 1, 1000000000, 10000000, 150000000, 0}),
        "other load: this rank waited for a core 16 % of the time, 1 % before");
    assert_string_equal(cause_of(&(struct dp_stability_causes){2.4, 1, 1000000000, 10000000, 0, 0}),
                        "the clock went from 3.00 to 2.40 GHz");
    assert_string_equal(
        cause_of(&(struct dp_stability_causes){3.0, 1, 1000000000, 10000000, 0, 900}),
        "memory pressure: 900 pages a second came from a disk, 0 before");
    assert_string_equal(
        cause_of(&(struct dp_stability_causes){3.0, 1, 1000000000, 10000000, 0, 0}),
        "none that this rank can see: neither its clock, nor other load of its core, nor "
        "memory pressure");
    /* A clock that nobody could read is no cause. */
    assert_string_equal(
        cause_of(&(struct dp_stability_causes){0.0, 0, 1000000000, 10000000, 0, 0}),
        "none that this rank can see: neither its clock, nor other load of its core, nor "
        "memory pressure");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_are_joined_and_lose_nothing),
        cmocka_unit_test(a_rate_that_falls_drifts),
        cmocka_unit_test(a_rate_that_varies_all_the_time_does_not),
        cmocka_unit_test(a_short_run_says_nothing),
        cmocka_unit_test(the_likely_cause_is_named),
    };
    return cmocka_run_group_tests_name("stability", tests, NULL, NULL);
}
