/*
 * test_trainer.c - the training step on one to eight ranks: the same weights as one rank, the same
 * bits on all ranks and in every run.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/trace.h"
#include "collectives/core/transport.h"
#include "collectives/exchange/exchange_calls.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"
#include "tests/support/tested_device.h"

enum { STEPS = 12 }; /* more than two epochs: two short batches */

/*
 * Ranks add the rows of a batch in another order than one rank does. Each float32 sum is then off
 * by some units of 2^-24 (6e-8) of its terms, and twelve steps accumulate it: 1e-5 of the way is
 * some hundred units, and a thousandth of what one wrong row out of 32 would do.
 */
static const double rounding = 1e-5;

/* Trains on `ranks` ranks; all of them must hold the same bits after every step. */
static void train(const struct small_run *run, int ranks, struct outcome *out)
{
    assert_int_equal(small_train(run, ranks, STEPS, NULL, out), 0);
    assert_int_equal(outcome_split(out, ranks, STEPS), 0);
}

static void check_ranks(const char *layers, const char *const *sets)
{
    static const int ranks[] = {2, 3, 4, 8};
    struct small_run run;
    struct outcome one, many;

    assert_int_equal(small_run_create(&run, layers, sets), 0);
    train(&run, 1, &one);
    assert_true(one.loss[STEPS - 1][0] < one.loss[0][0]); /* it learns */
    for (size_t n = 0; n < sizeof(ranks) / sizeof(ranks[0]); n++) {
        train(&run, ranks[n], &many);
        const double distance = small_distance(&run, &many, &one);
        if (!(distance <= rounding)) {
            fail_msg("%s, %s: %d ranks end %g away from one", layers, sets[0], ranks[n], distance);
        }
        for (int step = 0; step < STEPS; step++) {
            assert_true(fabsf(many.loss[step][0] - one.loss[step][0]) <= 1e-5f);
        }
        for (int rank = 0; rank < ranks[n]; rank++) {
            assert_true(many.evaluation[rank].accuracy == one.evaluation[0].accuracy);
            assert_true(many.evaluation[rank].loss == many.evaluation[0].loss);
        }
        outcome_fini(&many);
    }
    outcome_fini(&one);
    small_run_destroy(&run);
}

static void any_number_of_ranks_ends_with_the_weights_of_one(void **state)
{
    static const char *const batches[][3] = {{"train.global_batch=32", NULL},
                                             {"train.global_batch=25", NULL},
                                             {"train.global_batch=25", "comm.strategy=ring", NULL}};
    (void)state;

    for (size_t i = 0; i < 3; i++) {
        check_ranks(small_dense, batches[i]);
        check_ranks(small_conv, batches[i]);
    }
}

static void clipping_adamw_and_schedules_work_alike_on_all_ranks(void **state)
{
    static const char *const clip[] = {"optimizer.clip_norm=0.05", NULL};
    static const char *const adamw[] = {"optimizer.name=adamw", "optimizer.lr=0.003",
                                        "optimizer.weight_decay=0.01", NULL};
    static const char *const cosine[] = {"optimizer.schedule.name=cosine",
                                         "optimizer.schedule.warmup_steps=3",
                                         "optimizer.nesterov=true", NULL};
    (void)state;

    check_ranks(small_dense, clip);
    check_ranks(small_dense, adamw);
    check_ranks(small_conv, cosine);
}

static void dropout_and_passes_do_not_depend_on_the_ranks(void **state)
{
    static const char *const whole[] = {"train.seed=8", NULL};
    static const char *const passes[] = {"train.micro_batch=5", NULL};
    (void)state;

    check_ranks(small_dropout, whole);
    check_ranks(small_dropout, passes);
}

static void micro_batches_end_with_the_weights_of_whole_batches(void **state)
{
    static const char *const sets[] = {"train.micro_batch=5", NULL};
    struct small_run whole, passes;
    struct outcome a, b;
    (void)state;

    assert_int_equal(small_run_create(&whole, small_dense, NULL), 0);
    assert_int_equal(small_run_create(&passes, small_dense, sets), 0);
    train(&whole, 2, &a);
    train(&passes, 2, &b);
    assert_true(memcmp(a.hash, b.hash, sizeof(a.hash)) != 0); /* it did something else */
    assert_true(small_distance(&whole, &b, &a) <= rounding);
    outcome_fini(&b);
    outcome_fini(&a);
    small_run_destroy(&passes);
    small_run_destroy(&whole);
}

/* Mean loss over the rows of one epoch, with weights that do not move. */
static double epoch_loss(const char *batch, size_t rows_a_step, int ranks)
{
    const char *const sets[] = {batch, "optimizer.lr=1e-30", NULL};
    const int steps = (int)((SMALL_TRAIN + rows_a_step - 1) / rows_a_step);
    struct small_run run;
    struct outcome out;
    double sum = 0.0;

    assert_int_equal(small_run_create(&run, small_dense, sets), 0);
    assert_int_equal(small_train(&run, ranks, steps, NULL, &out), 0);
    for (size_t step = 0; step < (size_t)steps; step++) {
        const size_t left = SMALL_TRAIN - step * rows_a_step;
        sum += (double)out.loss[step][0] * (double)(left < rows_a_step ? left : rows_a_step);
    }
    outcome_fini(&out);
    small_run_destroy(&run);
    return sum / SMALL_TRAIN;
}

/* So the loss, and with it the gradient, is the mean over the rows that a batch really has: a
 * short one divided by the configured batch would miss nine tenths of its rows' loss. */
static void an_epoch_has_the_same_loss_however_it_is_cut_into_batches(void **state)
{
    const double whole = epoch_loss("train.global_batch=131", 131, 1);
    (void)state;

    assert_true(whole > 1.0);
    for (int ranks = 1; ranks <= 8; ranks *= 2) {
        assert_true(fabs(epoch_loss("train.global_batch=32", 32, ranks) - whole) <= 1e-6 * whole);
        assert_true(fabs(epoch_loss("train.global_batch=25", 25, ranks) - whole) <= 1e-6 * whole);
        assert_true(fabs(epoch_loss("train.global_batch=200", 200, ranks) - whole) <= 1e-6 * whole);
    }
}

/* Bits of a run with these sets. */
static void bits_of(const char *layers, const char *const *sets, int ranks, struct outcome *out)
{
    struct small_run run;

    assert_int_equal(small_run_create(&run, layers, sets), 0);
    train(&run, ranks, out);
    outcome_fini(out);
    small_run_destroy(&run);
}

static void the_same_run_gives_the_same_bits(void **state)
{
    static const char *const strategies[] = {"comm.strategy=shm", "comm.strategy=ring"};
    static const char *const layers[] = {small_dense, small_conv, small_own_norm, small_dropout};
    (void)state;

    for (size_t s = 0; s < 2; s++) {
        const char *const sets[] = {strategies[s], "comm.overlap=on", NULL};
        for (size_t i = 0; i < 4; i++) {
            struct outcome a, b;
            bits_of(layers[i], sets, 3, &a);
            bits_of(layers[i], sets, 3, &b);
            assert_memory_equal(a.hash, b.hash, sizeof(a.hash));
            assert_memory_equal(a.loss, b.loss, sizeof(a.loss));
        }
    }
}

/* `shm` adds in the order of the one tree, at any time. */
static void overlap_and_bucket_size_change_no_bit(void **state)
{
    static const char *const overlaps[] = {"comm.overlap=on", "comm.overlap=off"};
    static const char *const buckets[] = {"comm.bucket_mb=0.004", "comm.bucket_mb=25"};
    static const char *const firsts[] = {"comm.first_bucket_mb=0.004", "comm.first_bucket_mb=1"};
    static const char *const clips[] = {"optimizer.clip_norm=0", "optimizer.clip_norm=0.1"};
    static const char *const layers[] = {small_dense, small_conv};
    (void)state;

    for (size_t i = 0; i < 4; i++) {
        struct outcome first;
        for (size_t n = 0; n < 4; n++) {
            const char *const sets[] = {overlaps[n % 2], buckets[n / 2], firsts[n / 2],
                                        clips[i / 2], NULL};
            struct outcome out;
            bits_of(layers[i % 2], sets, 3, n == 0 ? &first : &out);
            if (n > 0) {
                assert_memory_equal(first.hash, out.hash, sizeof(out.hash));
            }
        }
    }
}

/* Each rank normalises its own rows, as DDP does: weights are not those of one rank, but equal on
 * all ranks, running statistics included, even if one has no rows. */
static void statistics_of_each_rank_are_combined_alike_everywhere(void **state)
{
    struct small_run run;
    struct outcome out;
    (void)state;

    assert_int_equal(small_run_create(&run, small_own_norm, NULL), 0);
    for (int ranks = 2; ranks <= 8; ranks *= 2) {
        train(&run, ranks, &out);
        assert_true(out.loss[STEPS - 1][0] < out.loss[0][0]);
        assert_true(out.evaluation[1].loss == out.evaluation[0].loss);
        outcome_fini(&out);
    }
    small_run_destroy(&run);
}

static dp_status flip_one_bit(struct dp_trainer *t)
{
    if (t->state.step == 4 && t->group->rank == t->group->size - 1) {
        uint32_t bits;
        DP_TRY(dp_host_state_fetch(t->state.host));
        char *weight = (char *)t->state.host->flat.weights + 100 * sizeof(float);
        memcpy(&bits, weight, sizeof(bits));
        bits ^= 1;
        memcpy(weight, &bits, sizeof(bits));
        return dp_host_state_put(t->state.host);
    }
    return DP_OK;
}

static void one_wrong_bit_in_the_weights_of_one_rank_is_detected(void **state)
{
    struct small_run run;
    struct outcome out;
    const int errors = dp_log_errors();
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, NULL), 0);
    dp_log_set_level(DP_LOG_NONE);
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        /* All weights of this model are compared in each step. */
        assert_int_equal(small_train(&run, ranks, STEPS, flip_one_bit, &out), ranks);
        assert_true(dp_log_errors() > errors);
        assert_true(out.hash[4][0] == 0 && out.hash[5][0] == 0); /* no step after it */
        outcome_fini(&out);
    }
    dp_log_set_level(DP_LOG_INFO);
    small_run_destroy(&run);
}

static void without_sharing_ranks_drift_apart_but_know_the_whole_loss(void **state)
{
    static const char *const sets[] = {"comm.strategy=none", NULL};
    struct small_run run;
    struct outcome one, out;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, sets), 0);
    assert_int_equal(small_train(&run, 1, STEPS, NULL, &one), 0);
    assert_int_equal(small_train(&run, 3, STEPS, NULL, &out), 0);
    for (int step = 0; step < STEPS; step++) {
        assert_true(out.loss[step][0] == out.loss[step][1]);
        assert_true(out.loss[step][0] == out.loss[step][2]);
        assert_true(out.hash[step][0] != out.hash[step][1]);
    }
    assert_true(fabsf(out.loss[0][0] - one.loss[0][0]) <= 1e-6f);
    outcome_fini(&out);
    outcome_fini(&one);
    small_run_destroy(&run);
}

/* The phases of a rank's main thread sum to the time of its steps, and every span closes. */
static size_t spans_sum_up(struct dp_group *group, const void *run)
{
    uint64_t before[DP_PHASE_COUNT], after[DP_PHASE_COUNT], spent = 0;
    struct dp_trainer *t = NULL;
    struct dp_step_report report;
    size_t wrong = 0;

    if (small_run_trainer(run, group, STEPS, &t) != DP_OK) {
        return 1;
    }
    dp_trace_totals(before);
    const uint64_t begin = dp_now_ns();
    for (int step = 0; step < STEPS; step++) {
        wrong += dp_trainer_step(t, &report) != DP_OK;
        wrong += dp_trace_open_spans() != 0;
    }
    const uint64_t wall = dp_now_ns() - begin;
    dp_trace_totals(after);
    for (int i = 0; i < DP_PHASE_COUNT; i++) {
        spent += after[i] - before[i];
    }
    wrong += spent > wall || spent < wall - wall / 100;
    wrong += dp_trainer_input(t).stages.rows == 0;
    for (int i = DP_PHASE_INPUT; i <= DP_PHASE_OPTIMIZER; i++) {
        wrong += after[i] == before[i]; /* each part of a step took some time */
    }
    wrong += after[DP_PHASE_REDUCE] != before[DP_PHASE_REDUCE]; /* another thread's */
    dp_trainer_destroy(t);
    return wrong;
}

static void phases_sum_to_the_wall_and_every_span_is_closed(void **state)
{
    static const char *const sets[] = {"comm.overlap=on", NULL};
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_conv, sets), 0);
    assert_int_equal(on_local_ranks(1, spans_sum_up, &run), 0);
    assert_int_equal(on_local_ranks(2, spans_sum_up, &run), 0);
    small_run_destroy(&run);
}

static size_t shares_weights(struct dp_group *group, const void *run)
{
    struct dp_trainer *t = NULL;
    size_t wrong;

    if (small_run_trainer(run, group, 3, &t) != DP_OK) {
        return 1;
    }
    wrong = !dp_exchange_has_one_copy(t->exchange);
    dp_trainer_destroy(t);
    return wrong;
}

static void by_default_ranks_of_a_host_have_one_copy_of_the_weights(void **state)
{
    static const char *const sets[] = {"comm.strategy=auto", "device.name=ref", NULL};
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, sets), 0);
    assert_int_equal(on_local_ranks(2, shares_weights, &run), 0);
    small_run_destroy(&run);
}

static size_t creates(struct dp_group *group, const void *run)
{
    struct dp_trainer *t = NULL;
    struct dp_step_report report;
    dp_status status = small_run_trainer(run, group, STEPS, &t);

    if (status == DP_OK) {
        status = dp_trainer_step(t, &report);
    } else if ((status != DP_ERR_NOMEM && status != DP_ERR_CANCELLED) || t != NULL) {
        return 100;
    }
    dp_trainer_destroy(t);
    return status != DP_OK;
}

/* On one rank and on two: the rank without memory leaves, and the other does not wait. */
static void check_creating(const char *const *sets)
{
    struct small_run run;

    assert_int_equal(small_run_create(&run, small_conv, sets), 0);
    for (int ranks = 1; ranks <= 2; ranks++) {
        check_failing_allocations(ranks, NULL, creates, &run);
    }
    small_run_destroy(&run);
}

static void creating_survives_every_failed_allocation(void **state)
{
    static const char *const narrow[] = {"train.precision=fp16", "device.name=cpu",
                                         "comm.strategy=zero1:over=ring", NULL};
    static const char *const averaged[] = {"train.ema=0.9", NULL};
    (void)state;

    let_allocations_fail_unnoticed(strcmp(tested_device_or("ref"), "cuda") == 0 ? MOST_UNNOTICED
                                                                                : 0);
    check_creating(NULL);
    check_creating(averaged);
    let_allocations_fail_unnoticed(0);
    check_creating(narrow);
}

/* ---- memory ---- */

enum { WARM = 4 }; /* steps: the third one is recorded */

static atomic_int taken; /* blocks of the library: memory of a GPU has one on the host, too */

static void *count_block(size_t bytes)
{
    (void)bytes;
    atomic_fetch_add(&taken, 1);
    return NULL; /* the C library has it */
}

/* Counted over all ranks, between barriers: all are warm, and none is destroyed early. */
static size_t takes_memory(struct dp_group *group, const void *run)
{
    struct dp_trainer *t = NULL;
    struct dp_step_report report;
    dp_status status = small_run_trainer(run, group, STEPS, &t);
    int before = 0, after = 0;

    for (int step = 0; status == DP_OK && step < STEPS; step++) {
        if (step == WARM) {
            status = dp_exchange_barrier(t->exchange);
            before = atomic_load(&taken);
            status = status == DP_OK ? dp_exchange_barrier(t->exchange) : status;
        }
        status = status == DP_OK ? dp_trainer_step(t, &report) : status;
    }
    if (status != DP_OK || dp_exchange_barrier(t->exchange) != DP_OK) {
        return 1000;
    }
    after = atomic_load(&taken);
    if (before == 0 || dp_exchange_barrier(t->exchange) != DP_OK) {
        return 1000;
    }
    dp_trainer_destroy(t);
    return group->rank == 0 ? (size_t)(after - before) : 0;
}

static void check_taking(const char *layers, const char *const *sets)
{
    struct small_run run;

    assert_int_equal(small_run_create(&run, layers, sets), 0);
    for (int ranks = 1; ranks <= 2; ranks++) {
        const size_t count = on_local_ranks(ranks, takes_memory, &run);
        if (count != 0) {
            fail_msg("%s, %d ranks: %zu blocks", sets[0], ranks, count);
        }
    }
    small_run_destroy(&run);
}

/* test_allocation counts the allocations of libraries. */
static void a_step_allocates_on_neither_host_nor_device(void **state)
{
    static const char *const sets[][5] = {
        {"comm.overlap=on", NULL},
        {"comm.strategy=zero1:over=ring", "comm.overlap=on", "optimizer.name=adamw", NULL},
        {"train.precision=fp16", "optimizer.clip_norm=0.1", "train.micro_batch=5", NULL},
        {"comm.compressor=powersgd", "comm.overlap=on", NULL},
        {"train.lanes=4", "device.graph=auto", NULL},
        {"train.precision=bf16", "device.graph=off", "comm.strategy=auto", NULL},
    };
    (void)state;

    dp_mem_take_from(count_block, free);
    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
        check_taking(small_own_norm, sets[i]);
        check_taking(small_dropout, sets[i]);
    }
    dp_mem_take_from(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_ranks_ends_with_the_weights_of_one),
        cmocka_unit_test(clipping_adamw_and_schedules_work_alike_on_all_ranks),
        cmocka_unit_test(dropout_and_passes_do_not_depend_on_the_ranks),
        cmocka_unit_test(micro_batches_end_with_the_weights_of_whole_batches),
        cmocka_unit_test(an_epoch_has_the_same_loss_however_it_is_cut_into_batches),
        cmocka_unit_test(the_same_run_gives_the_same_bits),
        cmocka_unit_test(overlap_and_bucket_size_change_no_bit),
        cmocka_unit_test(statistics_of_each_rank_are_combined_alike_everywhere),
        cmocka_unit_test(one_wrong_bit_in_the_weights_of_one_rank_is_detected),
        cmocka_unit_test(without_sharing_ranks_drift_apart_but_know_the_whole_loss),
        cmocka_unit_test(phases_sum_to_the_wall_and_every_span_is_closed),
        cmocka_unit_test(by_default_ranks_of_a_host_have_one_copy_of_the_weights),
        cmocka_unit_test(creating_survives_every_failed_allocation),
        cmocka_unit_test(a_step_allocates_on_neither_host_nor_device),
    };
    return cmocka_run_group_tests_name("trainer", tests, NULL, NULL);
}
