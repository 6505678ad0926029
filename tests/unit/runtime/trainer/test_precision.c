/*
 * test_precision.c - training in bf16 and fp16: master weights, sharing of narrow weights, and loss
 * scaling, on which all ranks agree. Runs a second time on device cuda.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "collectives/compressors/compression.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"

enum { STEPS = 10, SETS = 8 };

/* `sets` and one more, ended by NULL. */
static void join(const char *out[SETS], const char *const *sets, const char *more)
{
    int count = 0;

    for (; sets != NULL && sets[count] != NULL; count++) {
        out[count] = sets[count];
    }
    out[count++] = more;
    out[count] = NULL;
}

static void train(const char *layers, const char *const *sets, const char *more, int ranks,
                  struct outcome *out)
{
    const char *all[SETS];
    struct small_run run;

    join(all, sets, more);
    assert_int_equal(small_run_create(&run, layers, all), 0);
    assert_int_equal(small_train(&run, ranks, STEPS, NULL, out), 0);
    assert_int_equal(outcome_split(out, ranks, STEPS), 0);
    small_run_destroy(&run);
}

/* ---- the same training, rounded ---- */

/*
 * A bfloat is rounded by up to 2^-9 of it, a half by 2^-12. Roundings are independent noise, so
 * each of the ten steps is off by about that part of its length: at most ten of them are allowed.
 */
static void check_near(const char *layers, const char *precision, const char *device,
                       const char *compressor, double bound)
{
    const char *const fp32[] = {device, NULL};
    const char *const narrow[] = {device, precision, compressor, NULL};
    struct outcome wide, other;
    struct small_run run;

    assert_int_equal(small_run_create(&run, layers, fp32), 0);
    train(layers, fp32, "train.seed=3", 1, &wide);
    for (int ranks = 1; ranks <= 3; ranks++) {
        train(layers, narrow, "train.seed=3", ranks, &other);
        const double distance = small_distance(&run, &other, &wide);
        if (!(distance > 0 && distance < bound)) {
            fail_msg("%s, %s, %d ranks: %g from float32", precision, device, ranks, distance);
        }
        assert_true(fabsf(other.loss[STEPS - 1][0] - wide.loss[STEPS - 1][0]) <
                    (float)bound * wide.loss[0][0]);
        outcome_fini(&other);
    }
    outcome_fini(&wide);
    small_run_destroy(&run);
}

static void check_near_float32(const char *layers, const char *precision, const char *device,
                               double bound)
{
    check_near(layers, precision, device, NULL, bound);
}

static void narrow_types_end_near_float32(void **state)
{
    static const char *const devices[] = {"device.name=ref", "device.name=cpu"};
    (void)state;

    for (size_t i = 0; i < 2; i++) {
        check_near_float32(small_dense, "train.precision=bf16", devices[i], STEPS * 0x1p-9);
        check_near_float32(small_conv, "train.precision=bf16", devices[i], STEPS * 0x1p-9);
        check_near_float32(small_dense, "train.precision=fp16", devices[i], STEPS * 0x1p-12);
        check_near_float32(small_conv, "train.precision=fp16", devices[i], STEPS * 0x1p-12);
    }
}

/* They are scaled back before it, not after it. It sends all of them here, as float32. */
static void gradients_with_a_compressor_are_scaled_back_once(void **state)
{
    (void)state;

    check_near(small_dense, "train.precision=fp16", "device.name=ref",
               "comm.compressor=topk:ratio=1", STEPS * 0x1p-12);
}

static void tf32_is_float32_on_the_cpu(void **state)
{
    static const char *const cpu[] = {"device.name=cpu", NULL};
    struct outcome wide, other;
    (void)state;

    train(small_conv, cpu, "train.precision=fp32", 2, &wide);
    train(small_conv, cpu, "train.precision=tf32", 2, &other);
    assert_memory_equal(other.weights, wide.weights, wide.trained * sizeof(float));
    outcome_fini(&wide);
    outcome_fini(&other);
}

/* ---- who has what ---- */

static void check_shardings(const char *precision, const char *optimizer, const char *plain,
                            const char *parts)
{
    const char *const sets[] = {"device.name=cpu", precision, optimizer, "optimizer.lr=0.01", NULL};
    struct outcome all, owned;

    for (int ranks = 1; ranks <= 3; ranks++) {
        train(small_conv, sets, plain, ranks, &all);
        train(small_conv, sets, parts, ranks, &owned);
        assert_memory_equal(owned.weights, all.weights, all.trained * sizeof(float));
        assert_memory_equal(owned.loss, all.loss, sizeof(all.loss));
        outcome_fini(&all);
        outcome_fini(&owned);
    }
}

static void sharded_updates_give_the_bits_of_replicated_ones(void **state)
{
    (void)state;
    /* `auto` here: one copy of the narrow weights for all ranks. */
    check_shardings("train.precision=bf16", "optimizer.name=adamw", "comm.strategy=shm",
                    "comm.strategy=auto");
    check_shardings("train.precision=bf16", "optimizer.clip_norm=0.1", "comm.strategy=ring",
                    "comm.strategy=zero1:over=ring");
    check_shardings("train.precision=bf16", "optimizer.name=adamw", "comm.strategy=shm",
                    "comm.strategy=ps");
    check_shardings("train.precision=fp16", "optimizer.clip_norm=0.1", "comm.strategy=shm",
                    "comm.strategy=auto");
    check_shardings("train.precision=fp16", "optimizer.name=adamw", "comm.strategy=ring",
                    "comm.strategy=zero1:over=ring");
    check_shardings("train.precision=fp16", "optimizer.name=lamb", "comm.strategy=shm",
                    "comm.strategy=ps");
}

/* Master weights change by less than a narrow type can resolve. */
static size_t keeps_small_updates(struct dp_group *group, const void *arg)
{
    struct dp_trainer *t = NULL;
    struct dp_step_report report;
    uint16_t weights[4];
    float masters[4];

    if (small_run_trainer(arg, group, STEPS, &t) != DP_OK ||
        dp_host_state_fetch(t->state.host) != DP_OK) {
        return 1;
    }
    const struct dp_flat *flat = &t->state.host->flat;
    memcpy(weights, flat->weights, sizeof(weights));
    memcpy(masters, flat->master, sizeof(masters));
    if (dp_trainer_step(t, &report) != DP_OK || dp_host_state_fetch(t->state.host) != DP_OK) {
        return 1;
    }
    const bool same = memcmp(weights, flat->weights, sizeof(weights)) == 0;
    bool moved = false;
    for (int i = 0; i < 4; i++) {
        moved = moved || masters[i] != flat->master[i];
    }
    dp_trainer_destroy(t);
    return same && moved ? 0 : 1;
}

static void master_weights_keep_updates_too_small_for_narrow_ones(void **state)
{
    static const char *const sets[] = {"train.precision=bf16", "optimizer.lr=0.00001", NULL};
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, sets), 0);
    assert_int_equal(on_local_ranks(1, keeps_small_updates, &run), 0);
    small_run_destroy(&run);
}

/* ---- whole weights, out and in ---- */

static size_t takes_what_it_gave(struct dp_group *group, const void *arg)
{
    const struct small_run *run = arg;
    float *saved = dp_zalloc(run->model->trained, sizeof(float));
    float *again = dp_zalloc(run->model->trained, sizeof(float));
    struct dp_trainer *t = NULL;
    struct dp_step_report report;
    uint64_t before;
    size_t wrong = 0;

    if (saved == NULL || again == NULL || small_run_trainer(run, group, STEPS, &t) != DP_OK ||
        dp_trainer_step(t, &report) != DP_OK || small_weights(t, saved) != DP_OK) {
        return 1;
    }
    before = small_hash(t);
    if (dp_trainer_init(t) != DP_OK) {
        return 1;
    }
    wrong += small_hash(t) == before; /* it was another one meanwhile */
    memcpy(dp_trainer_whole(t), saved, run->model->trained * sizeof(float));
    if (dp_trainer_take(t) != DP_OK || small_weights(t, again) != DP_OK) {
        return 1;
    }
    wrong += memcmp(again, saved, run->model->trained * sizeof(float)) != 0;
    dp_trainer_destroy(t);
    dp_free(saved);
    dp_free(again);
    return wrong;
}

static void whole_master_weights_are_read_and_written_back(void **state)
{
    static const char *const sets[][4] = {
        {"train.precision=bf16", "comm.strategy=zero1:over=ring", NULL},
        {"train.precision=fp16", "comm.strategy=auto", NULL},
        {"train.precision=bf16", "device.name=cpu", "comm.strategy=shm", NULL},
    };
    struct small_run run;
    (void)state;

    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(small_run_create(&run, small_conv, sets[i]), 0);
        assert_int_equal(on_local_ranks(1, takes_what_it_gave, &run), 0);
        assert_int_equal(on_local_ranks(3, takes_what_it_gave, &run), 0);
        small_run_destroy(&run);
    }
}

/* ---- loss scaling ---- */

/* All that a skipped step must not change, also the state of a compressor. */
static uint64_t state_hash(const struct dp_trainer *t)
{
    struct dp_compression_array arrays[DP_COMPRESSION_ARRAYS];
    uint64_t hash =
        dp_compression_fetch(dp_exchange_compression(t->exchange)) == DP_OK ? small_hash(t) : 0;

    for (int i = dp_compression_arrays(dp_exchange_compression(t->exchange), arrays) - 1; i >= 0;
         i--) {
        for (size_t k = 0; k < arrays[i].count; k++) {
            uint32_t bits;
            memcpy(&bits, &arrays[i].data[k], sizeof(bits));
            hash = (hash ^ bits) * 0x100000001b3u;
        }
    }
    return hash;
}

/* Only the last rank's gradient overflows; every rank skips the step, and nothing changes. */
static size_t skips_together(struct dp_group *group, const void *arg)
{
    struct dp_trainer *t = NULL;
    struct dp_step_report report;
    size_t wrong = 0;

    if (small_run_trainer(arg, group, STEPS, &t) != DP_OK || dp_trainer_step(t, &report) != DP_OK) {
        return 1;
    }
    const double scale = t->state.scaler.scale;
    wrong += report.skipped || t->state.scaler.skipped != 0 || t->state.step_params->applied != 1;
    const uint64_t before = state_hash(t);
    if (group->rank == group->size - 1) {
        t->state.scaler.scale = ldexp(1, 100);
    }
    if (dp_trainer_step(t, &report) != DP_OK) {
        return 1;
    }
    wrong += !report.skipped || t->state.scaler.skipped != 1 || state_hash(t) != before;
    wrong +=
        t->state.step_params->applied != 1 || t->state.batches_tracked != 1 || t->state.step != 2;
    wrong += t->state.scaler.good != 0 || t->state.scaler.where[0] < '0' ||
             t->state.scaler.where[0] > '9';
    if (group->rank == group->size - 1) {
        t->state.scaler.scale = scale / 2;
    }
    wrong += t->state.scaler.scale != scale / 2;
    if (dp_trainer_step(t, &report) != DP_OK) {
        return 1;
    }
    wrong += report.skipped || t->state.step_params->applied != 2 || state_hash(t) == before;
    dp_trainer_destroy(t);
    return wrong;
}

/* Only the last rank has an input too large for a half. */
static size_t names_the_layer(struct dp_group *group, const void *arg)
{
    static const float far[] = {1e6f, 1e6f};
    struct dp_trainer *t = NULL;
    struct dp_step_report report;
    size_t wrong = 0;

    if (small_run_trainer(arg, group, STEPS, &t) != DP_OK || dp_trainer_step(t, &report) != DP_OK) {
        return 1;
    }
    wrong += report.skipped || t->state.scaler.where[0] != '\0';
    if (group->rank == group->size - 1) {
        wrong += dp_device_write(t->compute.stream, t->compute.normalize.scale, far,
                                 t->compute.normalize.channels * sizeof(float)) != DP_OK;
    }
    wrong += dp_trainer_step(t, &report) != DP_OK || !report.skipped || isfinite(report.loss);
    wrong += strcmp(t->state.scaler.where, "the output of layer 0 (flatten)") != 0;
    dp_trainer_destroy(t);
    return wrong;
}

static void the_layer_that_overflowed_first_is_named_by_all_ranks(void **state)
{
    static const char *const sets[][3] = {{"train.precision=fp16", NULL},
                                          {"train.precision=fp16", "comm.compressor=topk", NULL},
                                          {"train.precision=fp16", "comm.strategy=auto", NULL}};
    struct small_run run;
    (void)state;

    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
        assert_int_equal(small_run_create(&run, small_dense, sets[i]), 0);
        for (int ranks = 1; ranks <= 3; ranks++) {
            assert_int_equal(on_local_ranks(ranks, names_the_layer, &run), 0);
        }
        small_run_destroy(&run);
    }
}

/* A batch of one row, of which only the first number is too large for a half. */
static void one_number_that_overflows_is_found(void **state)
{
    static const char *const sets[] = {"train.precision=fp16", "train.global_batch=1", NULL};
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, sets), 0);
    memset(run.bytes, 0, (size_t)SMALL_TRAIN * run.data.sample_bytes);
    for (size_t row = 0; row < SMALL_TRAIN; row++) {
        run.bytes[row * run.data.sample_bytes] = 255;
    }
    assert_int_equal(on_local_ranks(1, names_the_layer, &run), 0);
    small_run_destroy(&run);
}

static void check_skip(const char *const *sets)
{
    struct small_run run;

    assert_int_equal(small_run_create(&run, small_conv, sets), 0);
    for (int ranks = 1; ranks <= 4; ranks *= 2) {
        const size_t wrong = on_local_ranks(ranks, skips_together, &run);
        if (wrong != 0) {
            fail_msg("%s, %d ranks: %zu things are wrong", sets[1], ranks, wrong);
        }
    }
    small_run_destroy(&run);
}

static void an_overflow_on_one_rank_skips_the_step_on_all(void **state)
{
    static const char *const sets[][5] = {
        {"train.precision=fp16", "comm.strategy=shm", NULL},
        {"train.precision=fp16", "comm.strategy=ring", "optimizer.clip_norm=0.1", "device.name=cpu",
         NULL},
        {"train.precision=fp16", "comm.strategy=auto", "optimizer.name=adamw", NULL},
        {"train.precision=fp16", "comm.strategy=zero1:over=ring", "comm.overlap=on", NULL},
        {"train.precision=fp16", "comm.strategy=none", NULL},
        {"train.precision=fp16", "train.lanes=4", "device.name=cpu", NULL},
        {"train.precision=fp16", "comm.strategy=ps", NULL},
        {"train.precision=fp16", "comm.compressor=topk", "comm.overlap=on", NULL},
        {"train.precision=fp16", "comm.compressor=int8", "comm.strategy=zero1:over=ring", NULL},
    };
    (void)state;

    dp_log_set_level(DP_LOG_WARN);
    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
        check_skip(sets[i]);
    }
    dp_log_set_level(DP_LOG_INFO);
}

/* Powers of two change no bit of a gradient that neither overflows nor underflows: weights do not
 * depend on the scale, except for what would be lost below 6e-8. */
static size_t grows(struct dp_group *group, const void *arg)
{
    struct dp_trainer *t = NULL;
    struct dp_step_report report;
    size_t wrong = 0;

    if (small_run_trainer(arg, group, STEPS, &t) != DP_OK) {
        return 1;
    }
    t->state.scaler.scale = 1024;
    t->state.scaler.grow_after = 3;
    for (int step = 1; step <= 7; step++) {
        if (dp_trainer_step(t, &report) != DP_OK) {
            return 1;
        }
        wrong += report.skipped || t->state.scaler.scale != (step < 3   ? 1024
                                                             : step < 6 ? 2048
                                                                        : 4096);
        wrong += !(report.loss > 0.1f && report.loss < 4.0f); /* it is not scaled */
    }
    dp_trainer_destroy(t);
    return wrong;
}

static void the_scale_grows_after_good_steps(void **state)
{
    static const char *const sets[] = {"train.precision=fp16", NULL};
    struct dp_loss_scaler scaler;
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, sets), 0);
    assert_int_equal(on_local_ranks(2, grows, &run), 0);
    small_run_destroy(&run);
    dp_loss_scaler_init(&scaler, true);
    assert_true(scaler.scale == 65536 && scaler.grow_after == 2000);
}

static void a_scale_below_one_ends_training(void **state)
{
    struct dp_loss_scaler s;
    (void)state;

    dp_loss_scaler_init(&s, true);
    for (int i = 0; i < 16; i++) {
        assert_false(s.exhausted);
        dp_loss_scaler_step(&s, true, "3.weight", (uint64_t)i, false);
    }
    assert_true(s.scale == 1 && !s.exhausted);
    dp_loss_scaler_step(&s, false, NULL, 17, false);
    assert_true(s.good == 1);
    dp_loss_scaler_step(&s, true, "1.bias", 18, false);
    assert_true(s.exhausted);
    assert_string_equal(s.where, "1.bias");
    assert_int_equal(s.skipped, 17);
}

static void other_types_scale_nothing(void **state)
{
    struct dp_loss_scaler s;
    (void)state;

    dp_loss_scaler_init(&s, false);
    dp_loss_scaler_step(&s, false, NULL, 1, false);
    assert_true(s.scale == 1 && s.good == 0 && !s.on);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(narrow_types_end_near_float32),
        cmocka_unit_test(gradients_with_a_compressor_are_scaled_back_once),
        cmocka_unit_test(tf32_is_float32_on_the_cpu),
        cmocka_unit_test(sharded_updates_give_the_bits_of_replicated_ones),
        cmocka_unit_test(master_weights_keep_updates_too_small_for_narrow_ones),
        cmocka_unit_test(whole_master_weights_are_read_and_written_back),
        cmocka_unit_test(an_overflow_on_one_rank_skips_the_step_on_all),
        cmocka_unit_test(the_layer_that_overflowed_first_is_named_by_all_ranks),
        cmocka_unit_test(one_number_that_overflows_is_found),
        cmocka_unit_test(the_scale_grows_after_good_steps),
        cmocka_unit_test(a_scale_below_one_ends_training),
        cmocka_unit_test(other_types_scale_nothing),
    };
    return cmocka_run_group_tests_name("precision", tests, NULL, NULL);
}
