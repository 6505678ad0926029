/* test_lanes_ready.c - when the tensors of lanes are ready to be shared. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/trainer/compute/lanes.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"

struct noted {
    const float *grad;
    int calls;
    bool early; /* the lane had no gradient of the first tensor yet when the last one was ready */
};

static dp_status note_ready(void *context, int tensor)
{
    struct noted *noted = context;

    (void)tensor;
    noted->early = noted->calls++ == 0 ? isnan(noted->grad[0]) != 0 : noted->early;
    return DP_OK;
}

/* Computes the batch of a step once more. */
static size_t run_again(struct dp_group *group, const void *arg)
{
    const struct small_run *run = arg;
    const bool early = run->config->train.lanes == 1;
    struct dp_step_report report;
    struct dp_trainer *t = NULL;
    struct noted noted = {.calls = 0};
    const struct dp_model_hooks hooks = {.context = &noted, .ready = note_ready};
    size_t wrong = 0;

    if (small_run_trainer(run, group, 1, &t) != DP_OK || dp_trainer_step(t, &report) != DP_OK) {
        return 1;
    }
    const struct dp_pass_call call = {.seed = 1,
                                      .weights = t->state.flat.weights,
                                      .running = t->state.flat.running,
                                      .grad = t->state.flat.grad,
                                      .step_params = t->state.there,
                                      .hooks = &hooks};
    noted.grad = call.grad;
    call.grad[0] = NAN;
    wrong += t->compute.mode->run(&t->compute, &t->input.batch, &call) != DP_OK;
    wrong += noted.calls != run->model->tensor_count || isnan(call.grad[0]);
    wrong += noted.early != early;
    dp_trainer_destroy(t);
    return wrong;
}

/* So that they are shared while others are computed; where lanes meet in layers, after all, since
 * the order of sums would depend on timing. */
static void tensors_are_ready_during_backward_unless_lanes_meet_in_layers(void **state)
{
    static const struct {
        const char *layers, *lanes;
    } cases[] = {{small_dense, "train.lanes=1"},
                 {small_conv, "train.lanes=1"},
                 {small_conv, "train.lanes=4"}};
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct small_run run;
        assert_int_equal(
            small_run_create(&run, cases[i].layers, (const char *[]){cases[i].lanes, NULL}), 0);
        if (!run.device->host_memory) {
            small_run_destroy(&run);
            skip(); /* the gradient cannot be looked at */
        }
        if (on_local_ranks(1, run_again, &run) != 0) {
            fail_msg("case %zu", i);
        }
        small_run_destroy(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_ready_during_backward_unless_lanes_meet_in_layers),
    };

    return cmocka_run_group_tests_name("lanes_ready", tests, NULL, NULL);
}
