/*
 * test_losses.c - train.loss: labels that are numbers train as classes of the same meaning do, with
 * the same bits on any ranks; and each loss has its metric.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"

enum { STEPS = 7 /* more than an epoch: a batch of 3 rows, so that some lanes have none */ };

static const char one_output[] = "[flatten: {}, dense: {units: 7}, relu: {}, dense: {units: 1}]";
static const char seven_outputs[] = "[flatten: {}, dense: {units: 7}]";

/* Puts numbers in the place of labels: `number` of each output of a row. */
static void number_labels(struct small_run *run, float (*number)(size_t row, size_t output))
{
    const size_t outputs = run->model->classes, rows = SMALL_TRAIN + SMALL_TEST;
    int32_t *labels = dp_zalloc(rows * outputs, sizeof(*labels));

    assert_non_null(labels);
    for (size_t i = 0; i < rows * outputs; i++) {
        const float t = number(i / outputs, i % outputs);
        memcpy(&labels[i], &t, sizeof(t));
    }
    dp_free(run->labels);
    run->labels = labels;
    run->data.train_labels = run->labels;
    run->data.test_labels = run->labels + SMALL_TRAIN * outputs;
    run->model->targets = outputs;
}

static float share(size_t row, size_t output)
{
    return (float)((row * 5 + output * 3) % 8) / 7.0f;
}

/* ---- bits ---- */

static void train(const char *layers, const char *const *sets, int ranks, struct outcome *out)
{
    struct small_run run;

    assert_int_equal(small_run_create(&run, layers, sets), 0);
    number_labels(&run, share);
    assert_int_equal(small_train(&run, ranks, STEPS, NULL, out), 0);
    assert_int_equal(outcome_split(out, ranks, STEPS), 0);
    small_run_destroy(&run);
}

static void check_ranks(const char *layers, const char *loss, const char *more)
{
    const char *const sets[] = {"train.lanes=4", loss, more, NULL};
    struct outcome one, other;

    train(layers, sets, 1, &one);
    assert_true(one.loss[STEPS - 1][0] > 0 && one.loss[STEPS - 1][0] < one.loss[0][0]);
    for (int ranks = 2; ranks <= 4; ranks *= 2) {
        train(layers, sets, ranks, &other);
        for (int step = 0; step < STEPS; step++) {
            assert_true(one.hash[step][0] == other.hash[step][0]);
            assert_true(one.loss[step][0] == other.loss[step][0]);
        }
        assert_memory_equal(&one.evaluation[0], &other.evaluation[0], sizeof(one.evaluation[0]));
        outcome_fini(&other);
    }
    outcome_fini(&one);
}

static void numbers_train_to_the_same_bits_on_any_ranks(void **state)
{
    (void)state;
    check_ranks(one_output, "train.loss=binary_cross_entropy", "train.micro_batch=3");
    check_ranks(seven_outputs, "train.loss=binary_cross_entropy", "comm.overlap=on");
    check_ranks(one_output, "train.loss=mse", "optimizer.name=adamw");
    check_ranks(seven_outputs, "train.loss=mse", "device.name=cpu");
    check_ranks(seven_outputs, "train.loss=mse", "train.precision=bf16");
}

static void ranks_without_lanes_equal_one_rank_within_rounding(void **state)
{
    const char *const sets[] = {"train.loss=mse", NULL};
    struct small_run run;
    struct outcome one, three;
    (void)state;

    train(seven_outputs, sets, 1, &one);
    train(seven_outputs, sets, 3, &three);
    assert_int_equal(small_run_create(&run, seven_outputs, sets), 0);
    assert_true(small_distance(&run, &one, &three) < 1e-5);
    small_run_destroy(&run);
    outcome_fini(&one);
    outcome_fini(&three);
}

static const int32_t *classes; /* of the run that comes before */

static float is_class(size_t row, size_t output)
{
    return (size_t)classes[row] == output ? 1.0f : 0.0f;
}

static void classes_train_as_numbers_of_the_same_meaning(void **state)
{
    static const char *const sets[][2] = {{"train.loss=binary_cross_entropy", NULL},
                                          {"train.loss=mse", NULL}};
    (void)state;

    for (int i = 0; i < 2; i++) {
        struct small_run run, same;
        struct outcome first, second;
        assert_int_equal(small_run_create(&run, small_dense, sets[i]), 0);
        assert_int_equal(small_train(&run, 2, STEPS, NULL, &first), 0);
        assert_int_equal(small_run_create(&same, small_dense, sets[i]), 0);
        classes = run.labels;
        number_labels(&same, is_class);
        assert_int_equal(small_train(&same, 2, STEPS, NULL, &second), 0);
        for (int step = 0; step < STEPS; step++) {
            assert_true(first.hash[step][0] == second.hash[step][0]);
            assert_true(fabsf(first.loss[step][0] - second.loss[step][0]) < 1e-5f);
        }
        small_run_destroy(&same);
        small_run_destroy(&run);
        outcome_fini(&first);
        outcome_fini(&second);
    }
}

/* ---- metrics ---- */

/* With weights of 0 all outputs are 0. */
static size_t evaluate_zeros(struct dp_group *group, const void *arg)
{
    struct small_run *run = *(struct small_run *const *)arg;
    struct dp_evaluation found;
    struct dp_trainer *t = NULL;
    struct dp_flat *flat;
    size_t wrong;

    if (small_run_trainer(run, group, 1, &t) != DP_OK) {
        return 1;
    }
    flat = &t->state.host->flat;
    wrong = dp_host_state_fetch(t->state.host) != DP_OK;
    memset(flat->weights, 0, flat->trained * dp_type_bytes(flat->type));
    memset(flat->master, 0, flat->trained * sizeof(float));
    wrong += dp_host_state_put(t->state.host) != DP_OK;
    wrong += dp_trainer_evaluate(t, &found) != DP_OK;
    if (group->rank == 0) {
        memcpy(run->bytes, &found, sizeof(found)); /* rows are not read any more */
    }
    dp_trainer_destroy(t);
    return wrong;
}

static struct dp_evaluation evaluation_of_zeros(struct small_run *run, int ranks)
{
    struct dp_evaluation found;

    assert_int_equal(on_local_ranks(ranks, evaluate_zeros, &run), 0);
    memcpy(&found, run->bytes, sizeof(found));
    return found;
}

static void binary_cross_entropy_has_an_accuracy_over_outputs(void **state)
{
    const char *const sets[] = {"train.loss=binary_cross_entropy", NULL};
    (void)state;

    for (int ranks = 1; ranks <= 2; ranks++) {
        struct small_run run;
        struct dp_evaluation found;
        double right = 0;
        assert_int_equal(small_run_create(&run, seven_outputs, sets), 0);
        number_labels(&run, share);
        for (size_t i = 0; i < (size_t)SMALL_TEST * 7; i++) {
            right += share(SMALL_TRAIN + i / 7, i % 7) > 0.5f ? 0 : 1; /* 0 is no */
        }
        found = evaluation_of_zeros(&run, ranks);
        assert_true(fabs(found.loss - log(2.0)) < 1e-6);
        assert_true(fabs(found.accuracy - right / (SMALL_TEST * 7)) < 1e-6);
        assert_true(isnan(found.error) && isnan(found.top5));
        small_run_destroy(&run);
    }
}

static void mean_squares_have_a_mean_absolute_error(void **state)
{
    const char *const sets[] = {"train.loss=mse", "train.lanes=4", NULL};
    (void)state;

    for (int ranks = 1; ranks <= 2; ranks++) {
        struct small_run run;
        struct dp_evaluation found;
        double squares = 0, distances = 0;
        assert_int_equal(small_run_create(&run, seven_outputs, sets), 0);
        number_labels(&run, share);
        for (size_t i = 0; i < (size_t)SMALL_TEST * 7; i++) {
            const double t = (double)share(SMALL_TRAIN + i / 7, i % 7);
            squares += t * t / (SMALL_TEST * 7);
            distances += t / (SMALL_TEST * 7);
        }
        found = evaluation_of_zeros(&run, ranks);
        assert_true(fabs(found.loss - squares) < 1e-6);
        assert_true(fabs(found.error - distances) < 1e-6);
        assert_true(isnan(found.accuracy) && isnan(found.top5));
        small_run_destroy(&run);
    }
}

static void softmax_has_answers_and_those_among_the_best_five(void **state)
{
    struct small_run run;
    struct dp_evaluation found;
    double first = 0, five = 0;
    (void)state;

    assert_int_equal(small_run_create(&run, seven_outputs, NULL), 0);
    for (size_t row = 0; row < SMALL_TRAIN + SMALL_TEST; row++) {
        run.labels[row] = (int32_t)(row % 7);
        first += row >= SMALL_TRAIN && row % 7 == 0 ? 1 : 0; /* of equals the first is best */
        five += row >= SMALL_TRAIN && row % 7 < 5 ? 1 : 0;
    }
    found = evaluation_of_zeros(&run, 2);
    assert_true(fabs(found.accuracy - first / SMALL_TEST) < 1e-6);
    assert_true(fabs(found.top5 - five / SMALL_TEST) < 1e-6);
    assert_true(isnan(found.error));
    small_run_destroy(&run);
    assert_int_equal(small_run_create(&run, small_dense, NULL), 0); /* of 5 classes */
    found = evaluation_of_zeros(&run, 1);
    assert_true(isnan(found.top5) && found.accuracy >= 0);
    small_run_destroy(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_train_to_the_same_bits_on_any_ranks),
        cmocka_unit_test(ranks_without_lanes_equal_one_rank_within_rounding),
        cmocka_unit_test(classes_train_as_numbers_of_the_same_meaning),
        cmocka_unit_test(binary_cross_entropy_has_an_accuracy_over_outputs),
        cmocka_unit_test(mean_squares_have_a_mean_absolute_error),
        cmocka_unit_test(softmax_has_answers_and_those_among_the_best_five),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
