/*
 * test_selftest.c - a selftest of a right model says ok to everything, and finds each planted
 * mistake in the line that is about it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/strategies/strategy.h"
#include "runtime/run/selftest/gradient_check.h"
#include "runtime/run/selftest/selftest.h"
#include "tests/support/own_plugins.h"
#include "tests/support/scratch.h"
#include "tests/support/stderr_text.h"

/* What is wrong with the layer `odd` and the strategy `lazy`. */
static enum { NOTHING, BACKWARD, STATE, DEVICE, ROWS, STRATEGY } mistake;

static int calls; /* what a layer must not remember from step to step */

/* ---- a layer that is a gain, but for the mistake ---- */

static dp_status odd_forward(const void *state, const struct dp_layer_call *c)
{
    const size_t count = c->rows * 16;
    float *y = c->y, factor = 1.0f;

    DP_TRY(own_layer.forward(state, c));
    calls++;
    if (mistake == STATE && c->training) {
        factor = 1.0f + 0.001f * (float)calls;
    } else if (mistake == DEVICE && strcmp(c->stream->device->plugin.name, "cpu") == 0) {
        factor = 1.001f;
    } else if (mistake == ROWS) {
        factor = 1.0f + 0.01f * (float)c->pass_rows;
    }
    for (size_t i = 0; i < count && factor != 1.0f; i++) {
        y[i] *= factor;
    }
    return DP_OK;
}

static dp_status odd_backward(const void *state, const struct dp_layer_call *c)
{
    DP_TRY(own_layer.backward(state, c));
    for (size_t i = 0; i < 16 && mistake == BACKWARD; i++) {
        c->grads[0][i] *= 1.05f;
    }
    return DP_OK;
}

/* ---- a strategy that sums nothing on the second rank ---- */

static dp_status lazy_open(void *state, struct dp_group *group, size_t max_count)
{
    (void)max_count;
    *(struct dp_group **)state = group;
    return DP_OK;
}

static dp_status lazy_sum(void *state, struct dp_slice data, enum dp_keep keep)
{
    struct dp_group *group = *(struct dp_group **)state;
    float *x = data.data, all[8];

    (void)keep;
    for (size_t i = 0; i < data.count; i++) {
        DP_TRY(dp_group_allgather(group, &x[i], sizeof(float), all));
        x[i] = all[0] + (mistake == STRATEGY && i == 40 ? 0.0f : all[1]) + all[2] + all[3];
    }
    return DP_OK;
}

static bool lazy_supports(const struct dp_group *group, const char **why_not)
{
    *why_not = "it sums four ranks";
    return group->size == 4;
}

static void lazy_close(void *state)
{
    (void)state;
}

static struct dp_layer_type odd;
static const struct dp_strategy lazy = {
    .plugin = {.name = "lazy", .help = "for this test", .state_bytes = sizeof(struct dp_group *)},
    .supports = lazy_supports,
    .compares = true,
    .open = lazy_open,
    .sum = lazy_sum,
    .close = lazy_close,
};

/* ---- selftests ---- */

static const char config[] = "data: {source: stripes}\n"
                             "train: {global_batch: 12, steps: 12, seed: 7}\n"
                             "optimizer: {name: adamw, lr: 0.02}\n"
                             "comm: {overlap: off}\n"
                             "device: {name: ref}\n"
                             "model:\n"
                             "  input: [4, 4, 1]\n"
                             "  layers: [odd: {initial: 0.5}, flatten: {}, dense: {units: 4}]\n";

static char printed[16384];

/* Its lines are in `printed` afterwards. */
static dp_status selftest_of(const char *text)
{
    const struct dp_run_options options = {
        .config = "own.cfg", .text = text, .own_folder = true, .selftest = true};
    const char *path = scratch_path("lines");
    const int real = dup(STDOUT_FILENO);
    struct dp_world *world = NULL;
    dp_status status;

    (void)fflush(stdout);
    assert_non_null(freopen(path, "w", stdout));
    stderr_begin();
    assert_int_equal(dp_world_create(&world), DP_OK);
    status = dp_selftest_run(&options, world);
    dp_world_destroy(world);
    stderr_end();
    (void)fflush(stdout);
    assert_int_equal(dup2(real, STDOUT_FILENO), STDOUT_FILENO);
    (void)close(real);
    assert_true(scratch_read(path, printed, sizeof(printed)) > 0);
    return status;
}

/* It fails, and the only lines that say so begin with these words. */
static void finds(const char *const *lines, int count)
{
    int failures = 0;

    assert_int_equal(selftest_of(config), DP_ERR_INTERNAL);
    for (const char *at = printed; (at = strstr(at, "FAIL ")) != NULL; at++) {
        failures++;
    }
    for (int i = 0; i < count; i++) {
        if (strstr(printed, lines[i]) == NULL) {
            fail_msg("no '%s' in\n%s%s", lines[i], printed, stderr_text);
        }
    }
    if (failures != count) {
        fail_msg("%d failures, not %d, in\n%s%s", failures, count, printed, stderr_text);
    }
    assert_non_null(strstr(stderr_text, "checks failed"));
}

static void a_right_model_passes_and_nothing_is_left(void **state)
{
    (void)state;
    mistake = NOTHING;
    assert_int_equal(setenv("TMPDIR", scratch_folder, 1), 0);
    if (selftest_of(config) != DP_OK) {
        fail_msg("%s%s", printed, stderr_text);
    }
    assert_null(strstr(printed, "FAIL"));
    assert_non_null(strstr(printed, "ok data: 64 rows of stripes\n"));
    assert_non_null(strstr(printed, "ok resume: the same bits in all state after step 4"));
    assert_non_null(strstr(printed, "\nok gradient.0.weight: "));
    assert_non_null(strstr(printed, "\nok gradient.2.bias: "));
    assert_non_null(strstr(printed, "\nok cpu.gradients: "));
    assert_non_null(strstr(printed, "\nok ranks: "));
    assert_non_null(strstr(printed, "\nok strategy.lazy: 0 of "));
    assert_non_null(strstr(printed, "\nok compressor.powersgd: "));
    assert_string_equal(stderr_text, "");
    assert_int_equal(scratch_count(""), 1); /* the lines */
    (void)unsetenv("TMPDIR");
}

static void a_wrong_backward_is_found_in_its_tensor(void **state)
{
    static const char *const lines[] = {"FAIL gradient.0.weight: "};
    (void)state;

    mistake = BACKWARD;
    finds(lines, 1);
}

/* Ranks that are threads count together, so they differ from one rank as well; finite differences
 * see a loss that grows by itself. */
static void what_a_checkpoint_lacks_is_found_by_resuming(void **state)
{
    (void)state;

    mistake = STATE;
    assert_int_equal(selftest_of(config), DP_ERR_INTERNAL);
    assert_non_null(strstr(printed, "FAIL resume: other bits in weights after step 4"));
}

static void a_device_that_computes_something_else_is_found(void **state)
{
    static const char *const lines[] = {"FAIL cpu.forward: ", "FAIL cpu.gradients: "};
    (void)state;

    mistake = DEVICE;
    finds(lines, 2); /* the loss hardly changes: outputs are small at the start */
}

static void what_depends_on_the_number_of_ranks_is_found(void **state)
{
    (void)state;

    mistake = ROWS;
    assert_int_equal(selftest_of(config), DP_ERR_INTERNAL);
    assert_non_null(strstr(printed, "FAIL ranks: "));
}

static void a_strategy_that_forgets_a_rank_is_found(void **state)
{
    static const char *const lines[] = {"FAIL strategy.lazy: 8 of "}; /* 4 ranks, 2 buckets */
    (void)state;

    mistake = STRATEGY;
    finds(lines, 1);
}

static void data_that_cannot_be_read_are_generated(void **state)
{
    (void)state;
    mistake = NOTHING;
    assert_int_equal(selftest_of("data: {source: npy, dir: /nonexistent}\n"
                                 "train: {global_batch: 8, lanes: 2, steps: 9}\n"
                                 "device: {name: ref}\n"
                                 "model: {input: [6], layers: [dense: {units: 3}]}\n"),
                     DP_OK);
    assert_non_null(strstr(printed, "ok data: generated, of the same shapes, since: /nonexistent"));
    assert_non_null(strstr(printed, "ok lanes: the same bits on 1 and 2 ranks after 2 steps"));
}

static void as_many_tensors_are_checked_as_there_is_time_for(void **state)
{
    (void)state;
    assert_int_equal(dp_gradient_check_count(0.1, 600), 600);
    assert_int_equal(dp_gradient_check_count(0.5, 121), 120);
    assert_int_equal(dp_gradient_check_count(20.0, 161), 3);
    assert_int_equal(dp_gradient_check_count(400.0, 161), 1);
}

static int add_own(void **state)
{
    (void)state;
    odd = own_layer;
    odd.plugin.name = "odd";
    odd.forward = odd_forward;
    odd.backward = odd_backward;
    return dp_lockstep_add_source(&own_source) != DP_OK || dp_lockstep_add_layer(&odd) != DP_OK ||
           dp_plugin_add(&dp_strategies, &lazy.plugin) != DP_OK;
}

int main(void)
{
#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_create, scratch_destroy)
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(a_right_model_passes_and_nothing_is_left),
        IN_SCRATCH(a_wrong_backward_is_found_in_its_tensor),
        IN_SCRATCH(what_a_checkpoint_lacks_is_found_by_resuming),
        IN_SCRATCH(a_device_that_computes_something_else_is_found),
        IN_SCRATCH(what_depends_on_the_number_of_ranks_is_found),
        IN_SCRATCH(a_strategy_that_forgets_a_rank_is_found),
        IN_SCRATCH(data_that_cannot_be_read_are_generated),
        cmocka_unit_test(as_many_tensors_are_checked_as_there_is_time_for),
    };

    return cmocka_run_group_tests_name("selftest", tests, add_own, NULL);
}
