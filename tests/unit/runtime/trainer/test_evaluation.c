/* test_evaluation.c - evaluation in rounds: the same sums, and all ranks stop together. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "collectives/exchange/exchange_calls.h"
#include "runtime/data/rows.h"
#include "tests/support/files/array_files.h"
#include "tests/support/local_world.h"
#include "tests/support/scratch.h"
#include "tests/support/small_run.h"

/* One row per pass: the rounds have 1, 8 and 14 of 23 passes on one rank. */
static const char *const row_by_row[] = {"train.micro_batch=1", NULL};

/* The sums of this rank's rows, with its passes in one call, or in several. */
static dp_status sum_in(struct dp_trainer *t, size_t passes, double sums[DP_EVALUATION_SUMS])
{
    const struct dp_range rows =
        dp_row_range(t->input.data->test_count, t->group->rank, t->group->size);
    const struct dp_pass_call call = {.weights = t->state.flat.weights,
                                      .running = t->state.flat.running,
                                      .step_params = t->state.there,
                                      .batch_rows = rows.count};

    memset(sums, 0, DP_EVALUATION_SUMS * sizeof(*sums));
    for (size_t at = 0; at < dp_micro_batch_evaluations(&t->compute.micro_batches, rows.count);
         at += passes) {
        DP_TRY(dp_micro_batch_evaluate(&t->compute.micro_batches, t->input.test, 0, rows,
                                       (struct dp_range){at, passes}, &call, sums));
    }
    return DP_OK;
}

static size_t compare_rounds(struct dp_group *group, const void *run)
{
    struct dp_trainer *t = NULL;
    struct dp_evaluation found;
    double whole[DP_EVALUATION_SUMS], pieces[DP_EVALUATION_SUMS];
    double all[DP_EVALUATION_SUMS * SMALL_RANKS], loss = 0.0, right = 0.0;
    size_t wrong = 0;

    if (small_run_trainer(run, group, 1, &t) != DP_OK) {
        return 1;
    }
    wrong += sum_in(t, SMALL_TEST, whole) != DP_OK;
    for (size_t passes = 1; passes < 6; passes++) {
        wrong += sum_in(t, passes, pieces) != DP_OK;
        for (int k = 0; k < DP_EVALUATION_SUMS; k++) {
            wrong += pieces[k] != whole[k];
        }
    }
    wrong += dp_trainer_evaluate(t, &found) != DP_OK;
    wrong += dp_exchange_gather(t->exchange, whole, sizeof(whole), all) != DP_OK;
    for (int rank = 0; rank < group->size; rank++) {
        loss += all[DP_EVALUATION_SUMS * rank + DP_SUM_LOSS];
        right += all[DP_EVALUATION_SUMS * rank + DP_SUM_SCORE];
    }
    wrong += found.loss != loss / SMALL_TEST || found.accuracy != right / SMALL_TEST;
    wrong += !(whole[0] > 0.0);
    dp_trainer_destroy(t);
    return wrong;
}

static void rounds_give_the_sums_of_one_pass(void **state)
{
    static const int ranks[] = {1, 2, 3, 5, 8};
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_own_norm, row_by_row), 0);
    for (size_t n = 0; n < sizeof(ranks) / sizeof(ranks[0]); n++) {
        assert_int_equal(on_local_ranks(ranks[n], compare_rounds, &run), 0);
    }
    small_run_destroy(&run);
}

/* Four lanes of 5 or 6 rows, one row per pass. */
static const char *const lanes_by_row[] = {"train.micro_batch=1", "train.lanes=4", NULL};

static size_t keep_evaluation(struct dp_group *group, const void *arg)
{
    static struct dp_evaluation first; /* of one rank, which comes before the others */
    const struct small_run *run = arg;
    struct dp_evaluation found;
    struct dp_trainer *t = NULL;
    size_t wrong = 0;

    if (small_run_trainer(arg, group, 1, &t) != DP_OK) {
        return 1;
    }
    wrong += dp_trainer_evaluate(t, &found) != DP_OK || !(found.loss > 0.0);
    if (group->size == 1 && run->data.test_images != NULL) {
        first = found;
    }
    wrong += found.loss != first.loss || found.accuracy != first.accuracy;
    dp_trainer_destroy(t);
    return wrong;
}

static void rounds_of_lanes_give_the_same_bits_on_any_number_of_ranks(void **state)
{
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_own_norm, lanes_by_row), 0);
    for (int ranks = 1; ranks <= 4; ranks *= 2) {
        assert_int_equal(on_local_ranks(ranks, keep_evaluation, &run), 0);
    }
    small_run_destroy(&run);
}

/* Rows of the test set are in files, and the data set has none of them in memory. */
static void assert_read_rows_evaluate_alike(const char *const *sets, int ranks)
{
    static struct dp_source_config config; /* borrowed by the data set */
    struct dp_samples *samples = NULL;
    uint8_t labels[SMALL_TEST];
    struct small_run run;

    assert_int_equal(small_run_create(&run, small_dense, sets), 0);
    for (int i = 0; i < SMALL_TEST; i++) {
        labels[i] = (uint8_t)run.data.test_labels[i];
    }
    npy_file(scratch_folder, "train_images.npy", "|u1", "(1, 6, 6, 2)", run.bytes,
             run.data.sample_bytes);
    npy_file(scratch_folder, "train_labels.npy", "|u1", "(1,)", labels, 1);
    npy_file(scratch_folder, "test_images.npy", "|u1", "(23, 6, 6, 2)", run.data.test_images,
             SMALL_TEST * run.data.sample_bytes);
    npy_file(scratch_folder, "test_labels.npy", "|u1", "(23,)", labels, SMALL_TEST);
    config = (struct dp_source_config){.dir = scratch_folder};
    assert_int_equal(dp_samples_open("npy", &config, &samples), DP_OK);
    assert_int_equal(on_local_ranks(1, keep_evaluation, &run), 0);
    run.data.samples = samples;
    run.data.test_images = NULL;
    assert_int_equal(on_local_ranks(ranks, keep_evaluation, &run), 0);
    small_run_destroy(&run);
    dp_samples_close(samples);
}

static void rows_that_are_read_give_the_bits_of_those_in_memory(void **state)
{
    (void)state;

    assert_read_rows_evaluate_alike(row_by_row, 1);
    assert_read_rows_evaluate_alike(NULL, 1);
    assert_read_rows_evaluate_alike(lanes_by_row, 2);
}

struct asked {
    const struct small_run *run;
    int victim;
    dp_status expected;
};

static size_t ask(struct dp_group *group, const void *arg)
{
    const struct asked *asked = arg;
    struct dp_evaluation found = {.loss = -1.0};
    struct dp_stop stop = {0};
    struct dp_trainer *t = NULL;
    struct dp_step_report report;
    size_t wrong = 0;

    if (small_run_trainer(asked->run, group, 2, &t) != DP_OK) {
        return 1;
    }
    t->stop = &stop;
    if (group->rank == asked->victim) {
        dp_stop_request(&stop, DP_STOP_USR1);
    }
    wrong += dp_trainer_evaluate(t, &found) != asked->expected;
    wrong += (found.loss == -1.0) != (asked->expected == DP_STOPPED);
    wrong += dp_trainer_step(t, &report) != DP_OK; /* ranks are still in step */
    t->stop = NULL;
    wrong += dp_trainer_evaluate(t, &found) != DP_OK || found.loss <= 0.0;
    dp_trainer_destroy(t);
    return wrong;
}

static void a_request_on_any_rank_ends_evaluation_on_all(void **state)
{
    (void)state;

    for (int lanes = 0; lanes < 2; lanes++) {
        const int ranks = lanes ? 2 : 3;
        struct small_run run;
        assert_int_equal(small_run_create(&run, small_dense, lanes ? lanes_by_row : row_by_row), 0);
        for (int victim = 0; victim < ranks; victim++) {
            const struct asked asked = {&run, victim, DP_STOPPED};
            assert_int_equal(on_local_ranks(ranks, ask, &asked), 0);
        }
        small_run_destroy(&run);
    }
}

static void a_request_in_the_last_round_changes_nothing(void **state)
{
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, NULL), 0); /* 8 rows: one round */
    const struct asked asked = {&run, 1, DP_OK};
    assert_int_equal(on_local_ranks(3, ask, &asked), 0);
    small_run_destroy(&run);
}

/* In a few steps the average moves little, while the loss of the weights themselves becomes less.
 * Narrow types round it. */
static void an_average_of_the_weights_is_evaluated_in_any_precision(void **state)
{
    static const char *const precisions[] = {"train.precision=fp32", "train.precision=bf16",
                                             "train.precision=fp16"};
    double wide = 0;
    (void)state;

    for (size_t i = 0; i < sizeof(precisions) / sizeof(precisions[0]); i++) {
        double loss[2];
        for (int average = 0; average < 2; average++) {
            const char *const sets[] = {precisions[i],
                                        average == 1 ? "train.ema=0.99" : "train.ema=0", NULL};
            struct outcome out;
            struct small_run run;
            assert_int_equal(small_run_create(&run, small_dense, sets), 0);
            assert_int_equal(small_train(&run, 2, 10, NULL, &out), 0);
            loss[average] = out.evaluation[0].loss;
            assert_true(out.evaluation[1].loss == loss[average]);
            outcome_fini(&out);
            small_run_destroy(&run);
        }
        wide = i == 0 ? loss[1] : wide;
        assert_true(loss[0] < 0.9 * loss[1]);
        assert_true(fabs(loss[1] - wide) < 0.01 * wide);
    }
}

/* With each step a quarter of the way to the weights as they are then. */
static size_t follows_weights(struct dp_group *group, const void *run)
{
    struct dp_trainer *t = NULL;
    struct dp_step_report report;
    size_t wrong = 0;

    if (small_run_trainer(run, group, 4, &t) != DP_OK) {
        return 1;
    }
    const size_t count = t->model->trained;
    const float *average = t->state.flat.average, *weights = t->state.flat.weights;
    float *expected = dp_zalloc(count, sizeof(*expected));
    for (int step = 0; step < 4 && expected != NULL; step++) {
        double moved = 0;
        memcpy(expected, average, count * sizeof(*expected));
        wrong += dp_trainer_step(t, &report) != DP_OK;
        for (size_t i = 0; i < count; i++) {
            moved += fabs((double)average[i] - (double)expected[i]);
            expected[i] += 0.25f * (weights[i] - expected[i]);
            wrong += fabsf(average[i] - expected[i]) > 1e-6f;
        }
        wrong += !(moved > 0);
    }
    wrong += expected == NULL;
    dp_free(expected);
    dp_trainer_destroy(t);
    return wrong;
}

static void the_average_follows_the_weights_step_by_step(void **state)
{
    static const char *const quarter[] = {"train.ema=0.75", NULL};
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, quarter), 0);
    assert_int_equal(on_local_ranks(1, follows_weights, &run), 0);
    small_run_destroy(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_give_the_sums_of_one_pass),
        cmocka_unit_test(rounds_of_lanes_give_the_same_bits_on_any_number_of_ranks),
        cmocka_unit_test_setup_teardown(rows_that_are_read_give_the_bits_of_those_in_memory,
                                        scratch_create_fast, scratch_destroy),
        cmocka_unit_test(a_request_on_any_rank_ends_evaluation_on_all),
        cmocka_unit_test(a_request_in_the_last_round_changes_nothing),
        cmocka_unit_test(the_average_follows_the_weights_step_by_step),
        cmocka_unit_test(an_average_of_the_weights_is_evaluated_in_any_precision),
    };
    return cmocka_run_group_tests_name("evaluation", tests, NULL, NULL);
}
