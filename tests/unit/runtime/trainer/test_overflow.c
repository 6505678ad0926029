/* test_overflow.c - an overflow of a half is found wherever it is. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "collectives/compressors/compression.h"
#include "runtime/trainer/update/overflow.h"
#include "runtime/trainer/update/update_rule.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"

static size_t spoilt; /* this element of the last rank's gradient becomes infinite */

static dp_status spoil(struct dp_trainer *t)
{
    const float infinite = INFINITY;

    if (t->group->rank == t->group->size - 1) {
        DP_TRY(dp_device_write(t->compute.stream, t->state.flat.grad + spoilt, &infinite,
                               sizeof(infinite)));
    }
    return dp_update_rule_choose(t)->computed(t);
}

/* The sum of what the compressor keeps for later steps. */
static double remembered(const struct dp_trainer *t)
{
    const struct dp_compression *compression = dp_exchange_compression(t->exchange);
    struct dp_compression_array arrays[DP_COMPRESSION_ARRAYS];
    double sum = dp_compression_fetch(compression) == DP_OK ? 0 : NAN;

    for (int i = dp_compression_arrays(compression, arrays) - 1; i >= 0; i--) {
        for (size_t k = 0; k < arrays[i].count; k++) {
            sum += (double)arrays[i].data[k];
        }
    }
    return sum;
}

static size_t skip_and_name(struct dp_group *group, const void *arg)
{
    const struct small_run *run = arg;
    const struct dp_tensor *first = &run->model->tensors[0],
                           *last = &run->model->tensors[run->model->tensor_count - 1];
    struct dp_trainer *t = NULL;
    struct dp_step_report report;
    struct dp_update_rule rule;
    double before;
    size_t wrong = 0;

    if (small_run_trainer(run, group, 3, &t) != DP_OK || dp_trainer_step(t, &report) != DP_OK) {
        return 1;
    }
    rule = *t->modes.rule;
    rule.computed = spoil;
    t->modes.rule = &rule;
    before = remembered(t);
    wrong += report.skipped || isnan(before);
    wrong += dp_trainer_step(t, &report) != DP_OK || !report.skipped;
    wrong += strcmp(t->state.scaler.where, spoilt == 0 ? first->name : last->name) != 0;
    wrong += remembered(t) != before;
    dp_trainer_destroy(t);
    return wrong;
}

/* With a compressor, which must not see it, ranks agree before they send; else after it. Where they
 * sum nothing each finds only its own. */
static void the_first_element_of_a_gradient_and_the_last_one_count(void **state)
{
    static const char *const sets[][4] = {
        {"train.precision=fp16", "comm.compressor=topk", NULL},
        {"train.precision=fp16", "optimizer.clip_norm=1", NULL},
        {"train.precision=fp16", "optimizer.clip_norm=1", "comm.strategy=none", NULL}};
    (void)state;

    dp_log_set_level(DP_LOG_WARN);
    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
        struct small_run run;
        const struct dp_tensor *last;
        assert_int_equal(small_run_create(&run, small_dense, sets[i]), 0);
        last = &run.model->tensors[run.model->tensor_count - 1];
        for (int end = 0; end < 2; end++) {
            spoilt = end == 0 ? 0 : last->begin + last->count - 1;
            assert_int_equal(on_local_ranks(2, skip_and_name, &run), 0);
        }
        small_run_destroy(&run);
    }
    dp_log_set_level(DP_LOG_INFO);
}

/* The weights of the last layer become the largest that there are. */
static size_t last_layer_overflows(struct dp_group *group, const void *arg)
{
    static uint16_t large[5 * 1100];
    const struct small_run *run = arg;
    struct dp_trainer *t = NULL;
    struct dp_step_report report;
    const struct dp_tensor *weights = NULL;
    size_t wrong = 0;

    if (small_run_trainer(run, group, 3, &t) != DP_OK || dp_trainer_step(t, &report) != DP_OK) {
        return 1;
    }
    for (int i = 0; i < run->model->tensor_count; i++) {
        const struct dp_tensor *tensor = &run->model->tensors[i];
        weights = strcmp(tensor->name, "3.weight") == 0 ? tensor : weights;
    }
    if (weights == NULL || weights->count != sizeof(large) / sizeof(large[0])) {
        return 1;
    }
    memset(large, 0x7b, sizeof(large)); /* 61280 */
    wrong += dp_device_write(t->compute.stream, (uint16_t *)t->state.flat.weights + weights->begin,
                             large, sizeof(large)) != DP_OK;
    wrong += dp_trainer_step(t, &report) != DP_OK || !report.skipped;
    wrong += strcmp(t->state.scaler.where, "the output of layer 3 (dense)") != 0;
    dp_trainer_destroy(t);
    return wrong;
}

/* Outputs are read in pieces of 16384 numbers: of the first layer there are more than two. */
static void layers_of_any_size_before_it_are_known_to_be_finite(void **state)
{
    static const char layers[] = "[flatten: {}, dense: {units: 1100}, relu: {}, dense: {units: 5}]";
    static const char *const sets[] = {"train.precision=fp16", NULL};
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, layers, sets), 0);
    dp_log_set_level(DP_LOG_WARN);
    assert_int_equal(on_local_ranks(1, last_layer_overflows, &run), 0);
    dp_log_set_level(DP_LOG_INFO);
    small_run_destroy(&run);
}

/* Where all that layers made is finite, such as in a pass whose outputs are gone, or is lanes'. */
static size_t no_layer_overflows(struct dp_group *group, const void *arg)
{
    struct dp_trainer *t = NULL;
    struct dp_step_report report;
    char text[64] = "";
    size_t wrong = 0;

    if (small_run_trainer(arg, group, 3, &t) != DP_OK || dp_trainer_step(t, &report) != DP_OK) {
        return 1;
    }
    wrong += dp_overflow_find(t, INFINITY, text, sizeof(text)) != DP_OK;
    wrong += strcmp(text, "the output of a layer") != 0;
    dp_trainer_destroy(t);
    return wrong;
}

static char named[128]; /* by a rank alone */

/* The last output that the last rank keeps becomes infinite; all ranks name it alike. */
static size_t one_output_overflows(struct dp_group *group, const void *arg)
{
    static const uint16_t infinite = 0x7c00;
    const struct small_run *run = arg;
    const struct dp_node *last = NULL;
    struct dp_trainer *t = NULL;
    struct dp_step_report report;
    char text[128] = "";
    size_t wrong = 0;

    if (small_run_trainer(run, group, 3, &t) != DP_OK || dp_trainer_step(t, &report) != DP_OK) {
        return 1;
    }
    for (int i = 0; i < run->model->node_count; i++) {
        const struct dp_node *node = &run->model->nodes[i];
        last = dp_pass_kept(t->compute.pass, node->y) != NULL ? node : last;
    }
    if (last == NULL) {
        return 1;
    }
    if (group->rank == group->size - 1) {
        const void *kept = dp_pass_kept(t->compute.pass, last->y);
        void *output; /* it is only lent, to be read */
        memcpy(&output, &kept, sizeof(kept));
        wrong += dp_device_write(t->compute.stream, output, &infinite, sizeof(infinite)) != DP_OK;
    }
    wrong += dp_overflow_find(t, INFINITY, text, sizeof(text)) != DP_OK;
    wrong += strstr(text, last->path) == NULL;
    if (group->size == 1) {
        (void)snprintf(named, sizeof(named), "%s", text);
    }
    wrong += strcmp(text, named) != 0;
    dp_trainer_destroy(t);
    return wrong;
}

static void a_layer_of_one_rank_is_named_by_all(void **state)
{
    static const char *const sets[] = {"train.precision=fp16", NULL};
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, sets), 0);
    for (int ranks = 1; ranks <= 3; ranks++) {
        assert_int_equal(on_local_ranks(ranks, one_output_overflows, &run), 0);
    }
    small_run_destroy(&run);
}

static void a_layer_that_is_not_known_is_not_named(void **state)
{
    static const char *const sets[][4] = {
        {"train.precision=fp16", NULL},
        {"train.precision=fp16", "train.lanes=4", "device.name=cpu", NULL}};
    (void)state;

    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
        struct small_run run;
        assert_int_equal(small_run_create(&run, small_dense, sets[i]), 0);
        assert_int_equal(on_local_ranks(2, no_layer_overflows, &run), 0);
        small_run_destroy(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_element_of_a_gradient_and_the_last_one_count),
        cmocka_unit_test(layers_of_any_size_before_it_are_known_to_be_finite),
        cmocka_unit_test(a_layer_of_one_rank_is_named_by_all),
        cmocka_unit_test(a_layer_that_is_not_known_is_not_named),
    };

    return cmocka_run_group_tests_name("overflow", tests, NULL, NULL);
}
