/*
 * test_evaluator.c - a rank that evaluates for others finds what they would find, bit for bit, and
 * has neither gradients nor optimizer state.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "runtime/trainer/evaluator.h"
#include "runtime/trainer/prepare/memory_plan.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"

enum { STEPS = 3 };

static dp_status create(const struct small_run *run, int trainers, struct dp_evaluator **out)
{
    const struct dp_evaluator_config config = {.config = run->config,
                                               .model = run->model,
                                               .device = run->device,
                                               .data = &run->data,
                                               .trainers = trainers,
                                               .threads = run->threads};

    return dp_evaluator_create(&config, out);
}

static size_t differ(double a, double b)
{
    uint64_t bits[2]; /* NaN equals NaN */

    memcpy(&bits[0], &a, sizeof(a));
    memcpy(&bits[1], &b, sizeof(b));
    return bits[0] != bits[1];
}

/* Each rank trains, and compares what all find together with what an evaluator finds. */
static size_t compare(struct dp_group *group, const void *arg)
{
    const struct small_run *run = arg;
    const size_t weight_bytes =
        run->model->trained * dp_type_bytes(dp_precision_type(run->config->train.precision));
    struct dp_evaluation theirs, ours;
    struct dp_evaluator *e = NULL;
    struct dp_step_report report;
    struct dp_trainer *t = NULL;
    size_t wrong = 0;

    if (small_run_trainer(run, group, STEPS, &t) != DP_OK ||
        create(run, group->size, &e) != DP_OK) {
        return 1;
    }
    for (int step = 0; step < STEPS; step++) {
        wrong += dp_trainer_step(t, &report) != DP_OK || dp_trainer_sync_weights(t) != DP_OK;
        memcpy(dp_evaluator_weights(e), t->state.flat.weights, weight_bytes);
        memcpy(dp_evaluator_running(e), t->state.flat.running,
               run->model->statistics * sizeof(float));
        wrong += dp_trainer_evaluate(t, &theirs) != DP_OK;
        wrong += dp_evaluator_run(e, NULL, NULL, &ours) != DP_OK;
        wrong += differ(ours.loss, theirs.loss) + differ(ours.accuracy, theirs.accuracy) +
                 differ(ours.top5, theirs.top5) + !(ours.loss > 0.0);
    }
    dp_evaluator_destroy(e);
    dp_trainer_destroy(t);
    return wrong;
}

static void an_evaluator_finds_the_bits_of_the_ranks_that_train(void **state)
{
    static const struct {
        const char *layers;
        const char *sets[4];
    } runs[] = {
        {small_own_norm, {NULL}},
        {small_conv, {"device.name=cpu", NULL}},
        {small_dropout, {"train.micro_batch=3", NULL}},
        {small_own_norm, {"train.lanes=4", "train.micro_batch=2", NULL}},
        {small_own_norm, {"device.name=cpu", "train.precision=bf16", "comm.strategy=zero1", NULL}},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        struct small_run run;
        assert_int_equal(small_run_create(&run, runs[i].layers, runs[i].sets), 0);
        for (int ranks = 1; ranks <= 4; ranks++) {
            if (run.config->train.lanes == 0 || ranks != 3) {
                assert_int_equal(on_local_ranks(ranks, compare, &run), 0);
            }
        }
        small_run_destroy(&run);
    }
}

/* Ends an evaluation after so many rounds. */
static bool ends_after(void *context)
{
    int *left = context;

    return --*left == 0;
}

static void an_evaluation_can_be_ended_and_begun_again(void **state)
{
    static const char *const row_by_row[] = {"train.micro_batch=1", NULL};
    struct dp_evaluation found = {.loss = -1.0}, again = {.loss = -2.0};
    struct dp_evaluator *e = NULL;
    struct small_run run;
    int rounds = 2;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, row_by_row), 0);
    for (size_t row = 0; row < SMALL_TEST; row++) { /* wrong: with weights of 0 all are alike */
        run.labels[SMALL_TRAIN + row] = 4;
    }
    assert_int_equal(create(&run, 3, &e), DP_OK);
    assert_int_equal(dp_evaluator_run(e, ends_after, &rounds, &found), DP_STOPPED);
    assert_int_equal(rounds, 0);
    assert_true(found.loss == -1.0); /* nothing is reported */
    assert_int_equal(dp_evaluator_run(e, NULL, NULL, &found), DP_OK);
    assert_int_equal(dp_evaluator_run(e, NULL, NULL, &again), DP_OK);
    assert_int_equal(differ(found.loss, again.loss), 0);
    assert_true(found.accuracy == 0.0); /* nothing of what was counted before the end */
    dp_evaluator_destroy(e);
    small_run_destroy(&run);
}

static void bad_rows_are_reported_and_end_it(void **state)
{
    static const uint32_t no_prints[SMALL_TEST]; /* that no row has */
    struct dp_evaluation found = {.loss = -1.0};
    struct dp_log_capture capture;
    struct dp_evaluator *e = NULL;
    struct small_run run;
    dp_status status;
    (void)state;

    for (int bad = 0; bad < 2; bad++) {
        assert_int_equal(small_run_create(&run, small_dense, NULL), 0);
        run.data.test_prints = bad ? no_prints : NULL;
        assert_int_equal(create(&run, 1, &e), DP_OK);
        dp_log_capture_begin(&capture, DP_LOG_ERROR);
        status = dp_evaluator_run(e, NULL, NULL, &found);
        dp_log_capture_end(&capture, DP_LOG_DROP);
        assert_int_equal(status, bad ? DP_ERR_DISAGREE : DP_OK);
        assert_int_equal(strstr(dp_log_captured(&capture), "sample") != NULL, bad);
        assert_int_equal(dp_log_captured(&capture)[0] != '\0', bad);
        dp_evaluator_destroy(e);
        small_run_destroy(&run);
    }
}

static void it_takes_memory_for_weights_and_activations_alone(void **state)
{
    const size_t before = dp_mem_bytes(DP_MEM_GRADIENTS);
    size_t predicted[DP_MEM_PURPOSE_COUNT];
    struct dp_evaluator *e = NULL;
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_own_norm, NULL), 0);
    assert_int_equal(create(&run, 2, &e), DP_OK);
    assert_int_equal(dp_mem_bytes(DP_MEM_GRADIENTS), before);
    assert_int_equal(dp_mem_bytes(DP_MEM_OPTIMIZER), 0);
    const struct dp_memory_plan plan = {.config = run.config,
                                        .model = run.model,
                                        .device = run.device,
                                        .trainers = 2,
                                        .threads = 1,
                                        .one_node = true};
    const struct dp_memory_ranks one = {.evaluators = 1};
    dp_memory_plan_host(&plan, &one, 0, predicted);
    assert_in_range(dp_mem_bytes(DP_MEM_WEIGHTS), predicted[DP_MEM_WEIGHTS],
                    predicted[DP_MEM_WEIGHTS] + 4096);
    assert_in_range(dp_mem_bytes(DP_MEM_ACTIVATIONS), predicted[DP_MEM_ACTIVATIONS] / 2,
                    predicted[DP_MEM_ACTIVATIONS] + 4096);
    dp_evaluator_destroy(e);
    small_run_destroy(&run);
}

static size_t create_one(struct dp_group *group, const void *run)
{
    struct dp_evaluator *e = NULL;
    const dp_status status = create(run, 2, &e);
    (void)group;

    if ((e != NULL) != (status == DP_OK)) {
        return 100;
    }
    dp_evaluator_destroy(e);
    return status != DP_OK;
}

static void failed_allocation_makes_create_fail_and_leaves_nothing(void **state)
{
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_own_norm, NULL), 0);
    check_failing_allocations(1, NULL, create_one, &run);
    small_run_destroy(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_evaluator_finds_the_bits_of_the_ranks_that_train),
        cmocka_unit_test(an_evaluation_can_be_ended_and_begun_again),
        cmocka_unit_test(bad_rows_are_reported_and_end_it),
        cmocka_unit_test(it_takes_memory_for_weights_and_activations_alone),
        cmocka_unit_test(failed_allocation_makes_create_fail_and_leaves_nothing),
    };
    return cmocka_run_group_tests_name("evaluator", tests, NULL, NULL);
}
