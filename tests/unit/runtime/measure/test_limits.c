/* test_limits.c - measuring what the machine allows: it finds plausible rates, equal on all ranks
 * where they must be, keeps them, and does not change training. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/measure/limits.h"
#include "runtime/measure/rates_cache.h"
#include "tests/support/local_world.h"
#include "tests/support/scratch.h"
#include "tests/support/small_run.h"
#include "tests/support/tested_device.h"

enum { STEPS = 5 };

/* No layer is faster than the limits. */
static bool within_limits(const struct dp_limits *l)
{
    const double peak = l->machine.peak_gflops * (1.0 + 1e-9);

    for (int i = 0; i < l->layers.count; i++) {
        const struct dp_layer_profile *layer = &l->layers.layers[i];
        const double seconds = layer->seconds[DP_FORWARD] + layer->seconds[DP_BACKWARD];
        const double gbs = layer->cached && l->machine.cache_gbs > 0.0 ? l->machine.cache_gbs
                                                                       : l->machine.copy_gbs;
        if (layer->flops / seconds / 1e9 > peak ||
            (layer->best_s > 0.0 && layer->flops / layer->best_s / 1e9 > peak) ||
            (!layer->product && layer->bytes / seconds / 1e9 > gbs * (1.0 + 1e-9))) {
            return false;
        }
    }
    return true;
}

static bool plausible(const struct dp_limits *l, bool host)
{
    double seconds = 0.0;

    for (int i = 0; i < l->layers.count; i++) {
        const struct dp_layer_profile *layer = &l->layers.layers[i];
        seconds += layer->seconds[DP_FORWARD] + layer->seconds[DP_BACKWARD];
    }
    return l->measured && within_limits(l) && seconds > 0.0 && l->machine.peak_gflops > 0.0 &&
           l->machine.copy_gbs > 0.0 && (l->machine.cache_gbs > 0.0) == host &&
           (l->machine.host_device_gbs > 0.0) == !host;
}

/* Measures after the third step. */
static dp_status measure(struct dp_trainer *t)
{
    const struct dp_limits_config config = {.threads = 1, .quick = true};
    const struct dp_step_params step_params = *t->state.step_params;
    const uint64_t order = dp_exchange_order(t->exchange), hash = small_hash(t);
    struct dp_exchange_speed all[SMALL_RANKS];
    struct dp_limits limits;

    if (t->state.step != 3) {
        return DP_OK;
    }
    DP_TRY(dp_limits_measure(t, &config, &limits));
    const struct dp_exchange_speed sum = limits.sum;
    const bool host = t->device->host_memory, good = plausible(&limits, host);
    const bool summed = sum.bytes > 0.0 && sum.step_s > 0.0 && sum.whole_s > 0.0;
    dp_limits_free(&limits);
    if (!good || summed != (t->group->size > 1)) {
        return DP_FAIL(DP_ERR_INTERNAL, "not a measurement");
    }
    DP_TRY(dp_exchange_gather(t->exchange, &sum, sizeof(sum), all));
    for (int rank = 0; rank < t->group->size; rank++) {
        if (all[rank].bytes != sum.bytes || all[rank].step_s != sum.step_s ||
            all[rank].whole_s != sum.whole_s) {
            return DP_FAIL(DP_ERR_DISAGREE, "ranks know different sums");
        }
    }
    if (dp_exchange_order(t->exchange) != order || small_hash(t) != hash ||
        t->state.step_params->step != step_params.step ||
        t->state.step_params->applied != step_params.applied) {
        return DP_FAIL(DP_ERR_INTERNAL, "measuring changed the trainer");
    }
    return DP_OK;
}

static void measuring_changes_no_bit_of_the_training(void **state)
{
    static const char *const layers[] = {small_dense, small_conv, small_dropout};
    static const char *const sets[][4] = {
        {"comm.overlap=on", NULL},
        {"comm.overlap=off", "optimizer.name=adamw", NULL},
        {"comm.strategy=direct", "train.lanes=4", NULL},
    };
    (void)state;

    for (size_t i = 0; i < 9; i++) {
        const int ranks = i == 4 ? 1 : 2;
        const size_t live = dp_mem_live();
        struct small_run run;
        struct outcome with, without;
        assert_int_equal(small_run_create(&run, layers[i % 3], sets[i / 3]), 0);
        assert_int_equal(small_train(&run, ranks, STEPS, measure, &with), 0);
        assert_int_equal(small_train(&run, ranks, STEPS, NULL, &without), 0);
        assert_memory_equal(with.hash, without.hash, sizeof(with.hash));
        assert_memory_equal(with.loss, without.loss, sizeof(with.loss));
        outcome_fini(&with);
        outcome_fini(&without);
        small_run_destroy(&run);
        assert_int_equal(dp_mem_live(), live);
    }
}

/* A way to share, and the strategy whose sum alone is its limit. */
struct way {
    const char *set, *by;
    int gpus; /* that it needs; 0: none */
};

static size_t names_its_sum(struct dp_group *group, const void *context)
{
    const struct dp_limits_config config = {.threads = 1, .quick = true};
    const struct way *way = context;
    const char *sets[] = {way->set, NULL};
    struct dp_trainer *t = NULL;
    struct dp_step_report report;
    struct small_run run;
    struct dp_limits l = {0};
    size_t wrong = 1;

    if (small_run_create(&run, small_dense, sets) == 0 &&
        small_run_trainer(&run, group, 40, &t) == DP_OK && dp_trainer_step(t, &report) == DP_OK &&
        dp_limits_measure(t, &config, &l) == DP_OK &&
        dp_exchange_barrier(t->exchange) == DP_OK) { /* memory of ranks as threads is freed */
        const struct dp_exchange_speed *sum = &l.sum;
        wrong = !(sum->bytes > 0.0 && sum->step_s > 0.0 && sum->whole_s > 0.0) ||
                strcmp(sum->by, way->by) != 0 || dp_trainer_step(t, &report) != DP_OK;
        if (wrong > 0) {
            print_error("%s: %g bytes by '%s', not %s\n", way->set, sum->bytes, sum->by, way->by);
        }
    }
    dp_limits_free(&l);
    dp_trainer_destroy(t);
    small_run_destroy(&run);
    return wrong;
}

static void the_limit_of_a_sum_is_of_the_strategy_of_the_run(void **state)
{
    static const struct way ways[] = {
        {"comm.strategy=shm", "shm", 0},
        {"comm.strategy=zero1:over=direct", "direct", 0},
        {"comm.strategy=ipc", "ipc", 1},
        {"comm.strategy=zero1:over=ipc", "ipc", 1},
        {"comm.strategy=staged", "staged", 1},
        {"comm.strategy=nccl", "nccl", 2},
        {"comm.strategy=zero1:over=nccl", "nccl", 2},
    };
    const struct dp_device *device = NULL;
    (void)state;

    assert_int_equal(dp_device_find(tested_device_or("ref"), &device), DP_OK);
    const int gpus = device->host_memory ? 0 : device->units->count();

    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        if (ways[i].gpus <= gpus) {
            assert_int_equal(on_local_ranks(2, names_its_sum, &ways[i]), 0);
        }
    }
}

/* With every allocation missing once: no error, and training goes on. */
static size_t goes_on(struct dp_group *group, const void *run)
{
    const struct dp_limits_config config = {.threads = 1, .quick = true};
    struct dp_trainer *t = NULL;
    struct dp_step_report report;
    size_t wrong = 0;

    if (small_run_trainer(run, group, 40, &t) != DP_OK || dp_trainer_step(t, &report) != DP_OK) {
        return 1;
    }
    for (int nth = 1; nth < 20; nth++) {
        struct dp_limits limits;
        dp_mem_fail_nth(nth);
        wrong += dp_limits_measure(t, &config, &limits) != DP_OK;
        dp_mem_fail_nth(0);
        dp_limits_free(&limits);
    }
    wrong += dp_trainer_step(t, &report) != DP_OK;
    dp_trainer_destroy(t);
    return wrong;
}

static void without_memory_less_is_measured_and_training_continues(void **state)
{
    const size_t live = dp_mem_live();
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, NULL), 0);
    assert_int_equal(on_local_ranks(1, goes_on, &run), 0);
    small_run_destroy(&run);
    assert_int_equal(dp_mem_live(), live);
}

/* A layer that took no time at all is faster than any machine; the second measurement only adds. */
static size_t raises(struct dp_group *group, const void *run)
{
    struct dp_limits_config config = {.threads = 1, .quick = true};
    struct dp_trainer *t = NULL;
    struct dp_step_report report;
    struct dp_limits l;
    size_t wrong = 0;

    if (small_run_trainer(run, group, 40, &t) != DP_OK || dp_trainer_step(t, &report) != DP_OK ||
        dp_limits_measure(t, &config, &l) != DP_OK) {
        return 1;
    }
    const struct dp_machine_rates before = l.machine;
    wrong += dp_limits_measure_again(t, &config, &l) != DP_OK; /* quick: not again */
    wrong += l.machine.peak_gflops != before.peak_gflops;
    config.quick = false;
    l.layers.layers[0].flops = 1e18;
    l.layers.layers[0].best_s = 0.5;
    wrong += dp_limits_measure_again(t, &config, &l) != DP_OK;
    wrong += l.machine.peak_gflops < 1.99e9 || strstr(l.raised, "peak_gflops") == NULL;
    wrong += l.machine.copy_gbs < before.copy_gbs || !within_limits(&l);
    wrong += dp_trainer_step(t, &report) != DP_OK;
    dp_limits_free(&l);
    dp_trainer_destroy(t);
    return wrong;
}

static void what_a_layer_reaches_raises_a_limit_and_is_said(void **state)
{
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, NULL), 0);
    assert_int_equal(on_local_ranks(1, raises, &run), 0);
    small_run_destroy(&run);
}

static void rates_are_kept_by_key(void **state)
{
    static const char *const names[] = {"first", "second"};
    const double kept[] = {1.5, (double)NAN}, others[] = {7.0, 8.0};
    double values[] = {-1.0, -1.0};
    (void)state;

    assert_int_equal(setenv("XDG_CACHE_HOME", scratch_folder, 1), 0);
    assert_false(dp_rates_cache_get("one host", names, values, 2));
    assert_true(values[0] == -1.0);
    dp_rates_cache_put("one host", names, kept, 2);
    dp_rates_cache_put("other host", names, others, 2);
    assert_true(dp_rates_cache_get("one host", names, values, 2));
    assert_true(values[0] == 1.5 && isnan(values[1]));
    dp_rates_cache_put("one host", names, others, 2);
    assert_true(dp_rates_cache_get("one host", names, values, 2));
    assert_true(values[0] == 7.0 && values[1] == 8.0);
    assert_false(dp_rates_cache_get("a third host", names, values, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measuring_changes_no_bit_of_the_training),
        cmocka_unit_test(the_limit_of_a_sum_is_of_the_strategy_of_the_run),
        cmocka_unit_test(what_a_layer_reaches_raises_a_limit_and_is_said),
        cmocka_unit_test(without_memory_less_is_measured_and_training_continues),
        cmocka_unit_test_setup_teardown(rates_are_kept_by_key, scratch_create, scratch_destroy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
