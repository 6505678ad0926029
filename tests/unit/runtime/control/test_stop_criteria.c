/* test_stop_criteria.c - when a run ends by itself: decisions on sequences of numbers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/random.h"
#include "runtime/control/stop_criteria.h"

/* ---- early stopping ---- */

/* The evaluation (from 1) after which training stops; 0: none. */
static int stops_at(int metric, int patience, double min_delta, const double *values, int count)
{
    const struct dp_early_stop_config config = {metric, patience, min_delta};
    struct dp_improvement improvement = {0};

    for (int i = 0; i < count; i++) {
        dp_improvement_add(&improvement, &config, values[i]);
        if (dp_improvement_ended(&improvement, &config)) {
            return i + 1;
        }
    }
    return 0;
}

static void training_stops_after_patience_evaluations_without_improvement(void **state)
{
    static const double accuracy[] = {0.5, 0.7, 0.69, 0.71, 0.71, 0.70, 0.70, 0.72};
    static const double loss[] = {2.0, 1.0, 1.1, 0.9, 0.9, 0.95, 0.91, 0.5};
    (void)state;

    assert_int_equal(stops_at(DP_METRIC_TEST_ACCURACY, 1, 0, accuracy, 8), 3);
    assert_int_equal(stops_at(DP_METRIC_TEST_ACCURACY, 2, 0, accuracy, 8), 6);
    assert_int_equal(stops_at(DP_METRIC_TEST_ACCURACY, 3, 0, accuracy, 8), 7);
    assert_int_equal(stops_at(DP_METRIC_TEST_ACCURACY, 4, 0, accuracy, 8), 0);
    assert_int_equal(stops_at(DP_METRIC_TEST_ACCURACY, 0, 0, accuracy, 8), 0);
    assert_int_equal(stops_at(DP_METRIC_TEST_LOSS, 2, 0, loss, 8), 6);
    assert_int_equal(stops_at(DP_METRIC_TRAIN_LOSS, 2, 0, loss, 8), 6);
    assert_int_equal(stops_at(DP_METRIC_TRAIN_LOSS, 4, 0, loss, 8), 0);
}

static void changes_up_to_min_delta_do_not_count_as_improvement(void **state)
{
    static const double up[] = {0.5, 0.5625, 0.59375, 0.625}; /* exact in binary */
    static const double down[] = {1.0, 0.9375, 0.90625, 0.875};
    (void)state;

    assert_int_equal(stops_at(DP_METRIC_TEST_ACCURACY, 1, 0.0625, up, 4), 2);
    assert_int_equal(stops_at(DP_METRIC_TEST_LOSS, 1, 0.0625, down, 4), 2);
    /* The best value does not change, so small steps add up: the third one is an improvement. */
    assert_int_equal(stops_at(DP_METRIC_TEST_ACCURACY, 2, 0.0625, up, 4), 0);
    assert_int_equal(stops_at(DP_METRIC_TEST_LOSS, 2, 0.0625, down, 4), 0);
    assert_int_equal(stops_at(DP_METRIC_TEST_ACCURACY, 2, 0.125, up, 4), 3);
    assert_int_equal(stops_at(DP_METRIC_TEST_LOSS, 2, 0.125, down, 4), 3);
}

static void a_metric_that_is_nan_does_not_improve(void **state)
{
    const double nans[] = {(double)NAN, (double)NAN, (double)NAN};
    const double first[] = {(double)NAN, 3.0, (double)INFINITY, 2.0, (double)NAN, (double)NAN};
    (void)state;

    assert_int_equal(stops_at(DP_METRIC_TEST_LOSS, 3, 0, nans, 3), 3);
    assert_int_equal(stops_at(DP_METRIC_TEST_LOSS, 2, 0, first, 6), 6);
}

/* ---- spikes ---- */

static double noise(size_t i)
{
    return (double)dp_random_u32(3, DP_RANDOM_TEST, 0, i) / 4294967296.0 - 0.5;
}

/* The loss (from 1) after which training stops; 0: none. */
static int spikes_at(double sigma, int window, const double *losses, int count)
{
    const struct dp_failure_stop_config config = {.spike_sigma = sigma, .spike_window = window};
    struct dp_spike spike = {0};

    for (int i = 0; i < count; i++) {
        if (dp_spike_add(&spike, &config, losses[i])) {
            return i + 1;
        }
    }
    return 0;
}

static void a_loss_far_above_its_mean_is_a_spike(void **state)
{
    double losses[200];
    (void)state;

    for (int i = 0; i < 200; i++) { /* falls, with noise of deviation 0.29 * 0.2 */
        losses[i] = 2.0 - 0.005 * i + 0.2 * noise((size_t)i);
    }
    assert_int_equal(spikes_at(5.0, 20, losses, 200), 0);
    losses[150] += 3.0;
    assert_int_equal(spikes_at(5.0, 20, losses, 200), 151);
    assert_int_equal(spikes_at(0.0, 20, losses, 200), 0);  /* off */
    assert_int_equal(spikes_at(5.0, 151, losses, 200), 0); /* within the warm-up */
    assert_int_equal(spikes_at(5.0, 150, losses, 200), 151);
    losses[150] -= 6.0; /* far below is no spike */
    assert_int_equal(spikes_at(5.0, 20, losses, 200), 0);
}

static void the_first_losses_weigh_alike_and_later_ones_less(void **state)
{
    const struct dp_failure_stop_config config = {.spike_window = 9};
    struct dp_spike spike = {0};
    double mean = 0.0, square = 0.0, variance;
    (void)state;

    for (int i = 0; i < 5; i++) {
        const double x = noise((size_t)i);
        mean += x / 5;
        square += x * x / 5;
        (void)dp_spike_add(&spike, &config, x);
    }
    assert_true(fabs(spike.mean - mean) < 1e-15);
    assert_true(fabs(spike.variance - (square - mean * mean)) < 1e-15);
    mean = spike.mean;
    variance = spike.variance;
    (void)dp_spike_add(&spike, &config, 3.0); /* the sixth weighs 2 / (9 + 1), not 1 / 6 */
    assert_true(fabs(spike.mean - (0.8 * mean + 0.2 * 3.0)) < 1e-15);
    assert_true(fabs(spike.variance - (0.8 * variance + 0.8 * 0.2 * (3.0 - mean) * (3.0 - mean))) <
                1e-14);
    assert_int_equal(spike.count, 6);
}

static void a_loss_that_stands_still_may_change_in_its_last_digits(void **state)
{
    double losses[100];
    (void)state;

    for (int i = 0; i < 100; i++) {
        losses[i] = 0.125;
    }
    losses[99] = 0.1255;
    assert_int_equal(spikes_at(5.0, 20, losses, 100), 0);
    losses[99] = 0.1257;
    assert_int_equal(spikes_at(5.0, 20, losses, 100), 100);
}

/* ---- all failures of a step ---- */

static const struct dp_failure_stop_config all_on = {
    .nan = true, .spike_sigma = 5.0, .spike_window = 10, .chance_steps = 0};

static void learning_differs_from_guessing_by_two_standard_errors(void **state)
{
    (void)state;
    /* p = 0.1, 10,000 rows: the standard error is 0.003. */
    assert_true(dp_is_chance(1000, 10000, 10));
    assert_true(dp_is_chance(1060, 10000, 10));
    assert_false(dp_is_chance(1061, 10000, 10));
    assert_true(dp_is_chance(0, 10000, 10));
    assert_true(dp_is_chance(15, 100, 10)); /* few rows prove little */
    assert_false(dp_is_chance(17, 100, 10));
    assert_true(dp_is_chance(60, 100, 2));
    assert_false(dp_is_chance(61, 100, 2));
}

/* The step after which it fails if steps 1 ... `until` answer at random and later ones
 * correctly. */
static int stuck_at(int chance_steps, int until, int count, char *reason, size_t size)
{
    const struct dp_failure_stop_config config = {.chance_steps = chance_steps};
    struct dp_stop_criteria stop_criteria = {0};

    for (int i = 1; i <= count; i++) {
        const struct dp_stop_criteria_step step = {.step = (uint64_t)i,
                                                   .loss = 2.3,
                                                   .correct = i <= until ? 10 : 50,
                                                   .rows = 100,
                                                   .whole = true,
                                                   .classes = 10};
        if (dp_stop_criteria_failed(&stop_criteria, &config, &step, reason, size)) {
            return i;
        }
    }
    return 0;
}

static void no_progress_is_judged_once_over_the_second_half(void **state)
{
    char reason[512] = "";
    (void)state;

    assert_int_equal(stuck_at(20, 20, 30, reason, sizeof(reason)), 20);
    assert_string_equal(reason,
                        "step 20: no progress: 10.00 % of 1000 training answers were right, by "
                        "chance alone it is 10.00 % (failure_stop.chance_steps); look at the "
                        "labels, or try another optimizer.lr");
    assert_int_equal(stuck_at(20, 10, 30, reason, sizeof(reason)), 0);
    assert_int_equal(stuck_at(20, 19, 30, reason, sizeof(reason)), 0); /* 14 % of 1000 */
    assert_int_equal(stuck_at(1, 1, 5, reason, sizeof(reason)), 1);
    assert_int_equal(stuck_at(0, 30, 30, reason, sizeof(reason)), 0);
    assert_int_equal(stuck_at(40, 30, 30, reason, sizeof(reason)), 0); /* the run was shorter */
}

/* Steps skipped in fp16, and losses that are NaN where that is allowed, are not counted. */
static void a_skipped_step_keeps_the_counts_to_be_judged(void **state)
{
    const struct dp_failure_stop_config config = {.chance_steps = 20};
    struct dp_stop_criteria_step step = {.correct = 10, .rows = 100, .whole = true, .classes = 10};
    struct dp_stop_criteria stop_criteria = {0};
    char reason[512];
    (void)state;

    for (step.step = 1; step.step < 23; step.step++) {
        step.loss = step.step == 20 ? (double)NAN : 2.3;
        assert_false(
            step.step != 21 && step.step != 22 &&
            dp_stop_criteria_failed(&stop_criteria, &config, &step, reason, sizeof(reason)));
    }
    assert_true(dp_stop_criteria_failed(&stop_criteria, &config, &step, reason, sizeof(reason)));
    assert_non_null(strstr(reason, "step 23: no progress: 10.00 % of 900 training answers"));
}

static void a_loss_that_is_nan_fails_unless_allowed(void **state)
{
    struct dp_failure_stop_config config = all_on;
    const double losses[] = {(double)NAN, (double)INFINITY, (double)-INFINITY};
    char reason[512];
    (void)state;

    for (int i = 0; i < 3; i++) {
        struct dp_stop_criteria_step step = {
            .step = 7, .loss = losses[i], .whole = true, .classes = 10};
        struct dp_stop_criteria stop_criteria = {0};
        config.nan = true;
        assert_true(
            dp_stop_criteria_failed(&stop_criteria, &config, &step, reason, sizeof(reason)));
        assert_memory_equal(reason, "step 7: the loss is not a number; try a lower", 45);
        config.nan = false;
        assert_false(
            dp_stop_criteria_failed(&stop_criteria, &config, &step, reason, sizeof(reason)));
        assert_int_equal(stop_criteria.spike.count, 0); /* nor does it spoil the mean */
    }
}

static void spikes_name_loss_and_mean_and_short_batches_do_not_count(void **state)
{
    struct dp_stop_criteria stop_criteria = {0};
    struct dp_stop_criteria_step step = {.rows = 100, .whole = true, .classes = 10};
    char reason[512];
    (void)state;

    for (step.step = 1; step.step <= 20; step.step++) {
        step.loss = 1.0 + 0.01 * (double)(step.step % 2);
        assert_false(
            dp_stop_criteria_failed(&stop_criteria, &all_on, &step, reason, sizeof(reason)));
    }
    step.loss = 4.5;
    step.whole = false;
    assert_false(dp_stop_criteria_failed(&stop_criteria, &all_on, &step, reason, sizeof(reason)));
    assert_int_equal(stop_criteria.spike.count, 20);
    step.whole = true;
    assert_true(dp_stop_criteria_failed(&stop_criteria, &all_on, &step, reason, sizeof(reason)));
    assert_memory_equal(reason, "step 21: the loss of 4.5 is more than 5 deviations of ", 54);
    assert_non_null(strstr(reason, "(failure_stop.spike_sigma); try a lower optimizer.lr"));
}

static void one_nan_is_found_among_many_numbers(void **state)
{
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    float data[1003];
    (void)state;

    for (size_t i = 0; i < 1003; i++) {
        data[i] = (i % 2 == 0 ? 1.0f : -1.0f) * (i % 3 == 0 ? 3.4e38f : 1e-45f);
    }
    assert_true(dp_all_finite(data, 1003));
    assert_true(dp_all_finite(data, 0));
    for (size_t k = 0; k < 4; k++) {
        for (size_t i = 0; i < 1003; i += 167) {
            const float kept = data[i];
            data[i] = bad[k];
            assert_false(dp_all_finite(data, 1003));
            data[i] = kept;
        }
    }
}

/* ---- what is kept ---- */

enum { KEPT_ROWS = 9, NONE = -1 };

static void keep_but(struct dp_stop_criteria *stop_criteria, int lost, struct dp_state_dict *list)
{
    *list = (struct dp_state_dict){.count = 0};
    dp_stop_criteria_add_state(stop_criteria, list);
    assert_int_equal(list->count, KEPT_ROWS);
    if (lost != NONE) {
        list->rows[lost] = list->rows[--list->count];
    }
}

/* Continues in another process: all rows of state but one are written, and read into zeros. */
static void move(struct dp_stop_criteria *stop_criteria, int lost)
{
    struct dp_json *object = dp_json_create();
    struct dp_state_dict from, to;
    struct dp_stop_criteria fresh = {0};

    keep_but(stop_criteria, lost, &from);
    keep_but(&fresh, lost, &to);
    assert_int_equal(dp_state_dict_write(&from, object), DP_OK);
    assert_int_equal(dp_state_dict_read(&to, object, "state.json"), DP_OK);
    dp_json_destroy(object);
    *stop_criteria = fresh;
}

/* Evaluates after every fourth step, unless it was done. */
static void evaluate_due(struct dp_stop_criteria *stop_criteria,
                         const struct dp_early_stop_config *config, uint64_t step)
{
    if (step % 4 == 0 && stop_criteria->evaluated_at != step) {
        dp_improvement_add(&stop_criteria->improvement, config, 2.0 + noise(step + 200));
        stop_criteria->evaluated_at = step;
    }
}

/* Runs 60 noisy steps, and evaluations; `cut`: the step after which it is
 * interrupted, and loses that row. `text`: every decision, and the numbers after the last one. */
static void decide(uint64_t cut, int lost, char *text, size_t size)
{
    static const struct dp_early_stop_config early = {DP_METRIC_TEST_LOSS, 4, 0.125};
    const struct dp_failure_stop_config config = {
        .nan = true, .spike_sigma = 1.5, .spike_window = 10, .chance_steps = 30};
    struct dp_stop_criteria stop_criteria = {0};
    char reason[512];
    size_t length = 0;

    for (uint64_t i = 1; i <= 60; i++) {
        const struct dp_stop_criteria_step step = {.step = i,
                                                   .loss = 2.0 + noise(i),
                                                   .correct = 10.0 + 4.0 * noise(i + 100),
                                                   .rows = 100.0,
                                                   .whole = true,
                                                   .classes = 10};
        const bool failed =
            dp_stop_criteria_failed(&stop_criteria, &config, &step, reason, sizeof(reason));
        evaluate_due(&stop_criteria, &early, i);
        text[length] = '.';
        if (failed) {
            text[length] = reason[9];
        } else if (dp_improvement_ended(&stop_criteria.improvement, &early)) {
            text[length] = 'E';
        }
        length++;
        if (i == cut) {
            move(&stop_criteria, lost);
            evaluate_due(&stop_criteria, &early, i); /* makes up for one that was not made */
        }
    }
    (void)snprintf(text + length, size - length, " %a %a %a %a %a %llu %llu %llu %llu",
                   stop_criteria.spike.mean, stop_criteria.spike.variance,
                   stop_criteria.improvement.best, stop_criteria.chance.correct,
                   stop_criteria.chance.rows, (unsigned long long)stop_criteria.spike.count,
                   (unsigned long long)stop_criteria.improvement.seen,
                   (unsigned long long)stop_criteria.improvement.waited,
                   (unsigned long long)stop_criteria.evaluated_at);
}

static void an_interrupted_run_decides_like_an_uninterrupted_one(void **state)
{
    char whole[512], moved[512];
    (void)state;

    decide(0, NONE, whole, sizeof(whole));
    assert_non_null(strchr(whole, 'E'));
    assert_true(strcspn(whole, "tn") < 60); /* a spike ("the loss"), or no progress */
    for (uint64_t cut = 1; cut <= 60; cut++) {
        decide(cut, NONE, moved, sizeof(moved));
        assert_string_equal(moved, whole);
    }
    for (int lost = 0; lost < KEPT_ROWS; lost++) { /* and each row is needed */
        decide(28, lost, moved, sizeof(moved));
        assert_string_not_equal(moved, whole);
    }
}

/* ---- speed ---- */

static void a_rate_below_the_limit_is_reported_once(void **state)
{
    struct dp_throughput pace = {0};
    (void)state;

    /* Steps of 0.25 s with 100 samples: the window is full after the tenth, which is past 2 s. */
    for (int i = 1; i <= 30; i++) {
        assert_int_equal(dp_throughput_add(&pace, 401.0, 250000000u, 100), i % 10 == 0);
    }
    assert_true(pace.rate == 400.0);
    for (int i = 1; i <= 30; i++) { /* the floor itself is fast enough */
        assert_false(dp_throughput_add(&pace, 400.0, 250000000u, 100));
    }
    /* Steps of 1 ms: full when 2 s are over. */
    for (int i = 1; i <= 2000; i++) {
        assert_int_equal(dp_throughput_add(&pace, 1e6, 1000000u, 100), i == 2000);
    }
    for (int i = 1; i <= 100; i++) { /* off */
        assert_false(dp_throughput_add(&pace, 0.0, 1000000000u, 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_stops_after_patience_evaluations_without_improvement),
        cmocka_unit_test(changes_up_to_min_delta_do_not_count_as_improvement),
        cmocka_unit_test(a_metric_that_is_nan_does_not_improve),
        cmocka_unit_test(a_loss_far_above_its_mean_is_a_spike),
        cmocka_unit_test(the_first_losses_weigh_alike_and_later_ones_less),
        cmocka_unit_test(a_loss_that_stands_still_may_change_in_its_last_digits),
        cmocka_unit_test(learning_differs_from_guessing_by_two_standard_errors),
        cmocka_unit_test(no_progress_is_judged_once_over_the_second_half),
        cmocka_unit_test(a_skipped_step_keeps_the_counts_to_be_judged),
        cmocka_unit_test(a_loss_that_is_nan_fails_unless_allowed),
        cmocka_unit_test(spikes_name_loss_and_mean_and_short_batches_do_not_count),
        cmocka_unit_test(one_nan_is_found_among_many_numbers),
        cmocka_unit_test(an_interrupted_run_decides_like_an_uninterrupted_one),
        cmocka_unit_test(a_rate_below_the_limit_is_reported_once),
    };
    return cmocka_run_group_tests_name("stop_criteria", tests, NULL, NULL);
}
