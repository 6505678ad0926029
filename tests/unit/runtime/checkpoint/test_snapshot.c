/* test_snapshot.c - the state of all ranks collected and restored, for any number of ranks and any
 * owners. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "collectives/compressors/compression.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/checkpoint/snapshot.h"
#include "tests/support/arrays.h"
#include "tests/support/local_world.h"
#include "tests/support/share_of_cases.h"
#include "tests/support/small_run.h"

enum { STEPS = 4, PLANNED = 8 };

/* The arguments of ranks that take or restore a snapshot. */
struct work {
    const struct small_run *run;
    struct dp_snapshot *from; /* restored before the first step; NULL: none */
    uint64_t steps;           /* then trained so far */
    struct dp_snapshot **to;  /* then taken */
    float **residuals;        /* [ranks]; arrays of each rank, or NULL */
};

static dp_status take(const struct work *w, struct dp_trainer *t, const struct dp_state_dict *kept)
{
    struct dp_snapshot *s = NULL;
    dp_status status = DP_OK;

    if (t->group->rank == 0) {
        status = dp_snapshot_create(kept, &t->state.flat, t->group->size, &s);
        *w->to = s;
    }
    DP_TRY(dp_exchange_agree(t->exchange, status));
    DP_TRY(dp_trainer_fetch(t));
    return dp_snapshot_take(s, kept, t->exchange);
}

static dp_status work_steps(const struct work *w, struct dp_trainer *t)
{
    const int rank = t->group->rank;
    struct dp_state_dict kept = {.count = 0};
    struct dp_step_report report;

    dp_trainer_add_state(t, &kept);
    if (w->residuals != NULL) {
        dp_state_dict_add_array(&kept, "residual", w->residuals[rank], t->state.flat.trained,
                                DP_STATE_SLOT, DP_SPREAD_RANK);
    }
    if (w->from == NULL && t->state.scaler.on) { /* not as at the beginning */
        t->state.scaler.scale = 1024;
        t->state.scaler.skipped = 3;
    }
    if (w->from != NULL) {
        DP_TRY(dp_snapshot_restore(rank == 0 ? w->from : NULL, w->from->ranks, &kept,
                                   &t->state.flat, t->exchange));
        DP_TRY(dp_trainer_put(t));
    }
    while (t->state.step < w->steps) {
        DP_TRY(dp_trainer_step(t, &report));
    }
    return take(w, t, &kept);
}

static size_t work_rank(struct dp_group *group, const void *arg)
{
    const struct work *w = arg;
    struct dp_trainer *t = NULL;
    dp_status status = small_run_trainer(w->run, group, PLANNED, &t);

    if (status == DP_OK) {
        status = work_steps(w, t);
        if (status != DP_OK) {
            dp_group_leave(group, DP_ERR_CANCELLED);
        }
    }
    dp_trainer_destroy(t);
    return status != DP_OK;
}

/* Row by row, the same bytes. */
static void assert_same(const struct dp_snapshot *a, const struct dp_snapshot *b)
{
    assert_int_equal(a->rows.count, b->rows.count);
    for (int i = 0; i < a->rows.count; i++) {
        const struct dp_state_entry *x = &a->rows.rows[i], *y = &b->rows.rows[i];

        assert_string_equal(x->name, y->name);
        assert_int_equal(x->bytes, y->bytes);
        assert_memory_equal(x->data, y->data, x->bytes);
    }
}

static const char *const strategies[] = {"comm.strategy=shm", "comm.strategy=zero1:over=shm",
                                         "comm.strategy=ring", "comm.strategy=zero1:over=ring"};
enum { STRATEGY_COUNT = sizeof(strategies) / sizeof(strategies[0]) };

static struct small_run run_with(const char *strategy, const char *precision)
{
    const char *const sets[] = {strategy, "optimizer.name=adamw", precision, NULL};
    struct small_run run;

    assert_int_equal(small_run_create(&run, small_conv, sets), 0);
    return run;
}

/* On all numbers of ranks, or on some that follow from `number`. */
static void check_shardings(const char *precision, size_t number)
{
    static const int sizes[] = {1, 2, 3};
    struct small_run first = run_with(strategies[1], precision);
    struct dp_snapshot *original = NULL;
    struct work work = {.run = &first, .steps = STEPS, .to = &original};

    assert_int_equal(on_local_ranks(2, work_rank, &work), 0);
    if (original == NULL) {
        fail_msg("no snapshot was taken");
        return;
    }
    assert_int_equal(original->slot_count, 2);
    assert_string_equal(original->slots[1].name, "exp_avg_sq");
    for (int i = 0; i < STRATEGY_COUNT; i++) {
        for (int n = 0; n < 3; n++) {
            if (!in_share(number + (size_t)i + (size_t)n)) {
                continue;
            }
            struct small_run run = run_with(strategies[i], precision);
            struct dp_snapshot *again = NULL;
            struct work back = {&run, original, STEPS, &again, NULL};

            assert_int_equal(on_local_ranks(sizes[n], work_rank, &back), 0);
            assert_same(original, again);
            dp_snapshot_destroy(again);
            small_run_destroy(&run);
        }
    }
    dp_snapshot_destroy(original);
    small_run_destroy(&first);
    assert_int_equal(dp_mem_live(), 0);
}

/* Whole arrays do not depend on the sharding that they come from or go to. Those of narrow types
 * are the master weights. */
static void every_sharding_gives_and_takes_the_same_state(void **state)
{
    (void)state;
    check_shardings("train.precision=fp32", 0);
    check_shardings("train.precision=bf16", 1);
    check_shardings("train.precision=fp16", 2);
}

static void arrays_of_ranks_are_restored_or_split(void **state)
{
    static const int sizes[] = {3, 2, 1, 4};
    struct small_run run = run_with(strategies[1], NULL);
    struct dp_snapshot *original = NULL, *again = NULL;
    float *residuals[4];
    struct work work = {&run, NULL, 1, &original, residuals};
    const size_t trained = run.model->trained;
    (void)state;

    for (int rank = 0; rank < 4; rank++) {
        residuals[rank] = dp_zalloc(trained, sizeof(float));
        for (size_t i = 0; i < trained; i++) {
            residuals[rank][i] = (float)(12 * (rank + 1)) + (float)(i % 7) * 12;
        }
    }
    assert_int_equal(on_local_ranks(3, work_rank, &work), 0);
    if (original == NULL) {
        fail_msg("no snapshot was taken");
        return;
    }
    assert_int_equal(original->slot_count, 5);
    assert_string_equal(original->slots[4].name, "residual.rank2");
    assert_true(original->slots[4].values[3] == 72);
    for (int n = 0; n < 4; n++) {
        struct work back = {&run, original, 1, &again, residuals};

        for (int rank = 0; rank < 4; rank++) {
            memset(residuals[rank], 0, trained * sizeof(float));
        }
        assert_int_equal(on_local_ranks(sizes[n], work_rank, &back), 0);
        for (int rank = 0; rank < sizes[n]; rank++) {
            const float exact = 12 * (float)(rank + 1 + 3), sum = 12 * (4 + 5 + 6);
            assert_true(residuals[rank][3] == (sizes[n] == 3 ? exact : sum / (float)sizes[n]));
        }
        dp_snapshot_destroy(again);
    }
    for (int rank = 0; rank < 4; rank++) {
        dp_free(residuals[rank]);
    }
    dp_snapshot_destroy(original);
    small_run_destroy(&run);
    assert_int_equal(dp_mem_live(), 0);
}

/* ---- what compressors remember ---- */

static const char *const compressors[] = {
    "comm.compressor=topk:ratio=0.1", "comm.compressor=powersgd:rank=2", "comm.compressor=onebit"};

static struct small_run run_compressed(const char *compressor)
{
    const char *const sets[] = {compressor, "comm.strategy=ring", NULL};
    struct small_run run;

    assert_int_equal(small_run_create(&run, small_dense, sets), 0);
    return run;
}

/* The state after the last planned step, of a run that goes on from `from` or begins anew. */
static struct dp_snapshot *end_of(struct small_run *run, struct dp_snapshot *from, int ranks)
{
    struct dp_snapshot *end = NULL;
    struct work work = {run, from, PLANNED, &end, NULL};

    run->first_step = from != NULL ? STEPS : 0;
    assert_int_equal(on_local_ranks(ranks, work_rank, &work), 0);
    run->first_step = 0;
    assert_non_null(end);
    return end;
}

/* The state after so many steps of a run that begins anew. */
static struct dp_snapshot *state_after(uint64_t steps, const struct small_run *run, int ranks)
{
    struct dp_snapshot *state = NULL;
    struct work work = {run, NULL, steps, &state, NULL};

    assert_int_equal(on_local_ranks(ranks, work_rank, &work), 0);
    assert_non_null(state);
    return state;
}

static bool same_weights(const struct dp_snapshot *a, const struct dp_snapshot *b)
{
    const struct dp_state_entry *x = dp_state_dict_find(&a->rows, "weights");

    return memcmp(x->data, dp_state_dict_find(&b->rows, "weights")->data, x->bytes) == 0;
}

/* An array of a compressor that has its first values instead leads to other weights. */
static void check_needed(struct small_run *run, struct dp_snapshot *middle,
                         const struct dp_snapshot *start, const struct dp_snapshot *whole, int row)
{
    struct dp_state_entry *entry = &middle->rows.rows[row];
    void *data = entry->data;
    struct dp_snapshot *again;

    entry->data = start->rows.rows[row].data;
    again = end_of(run, middle, 2);
    entry->data = data;
    if (same_weights(whole, again)) {
        fail_msg("%s: %s can be dropped", run->config->comm.compressor, entry->name);
    }
    dp_snapshot_destroy(again);
}

/* A snapshot has the arrays that --check predicts for a compressor. */
static void check_measured(const struct small_run *run, const struct dp_snapshot *s)
{
    const struct dp_model *m = run->model;
    const struct dp_compression_size size = dp_compression_measure(
        run->config->comm.compressor, m->tensors, m->tensor_count, m->trained);
    size_t bytes = 0;

    for (int i = 0; i < s->rows.count; i++) {
        const struct dp_state_entry *row = &s->rows.rows[i];
        if (strncmp(row->name, DP_COMPRESSION_NAME, strlen(DP_COMPRESSION_NAME)) == 0) {
            bytes += row->bytes;
        }
    }
    assert_int_equal(bytes, ((size_t)s->ranks * size.residuals + size.warm) * sizeof(float));
}

static void state_of_compressors_is_exact_and_needed(void **state)
{
    int arrays = 0, plain = 0;
    (void)state;

    for (size_t k = 0; k < DP_COUNT(compressors); k++) {
        struct small_run run = run_compressed(compressors[k]);
        struct dp_snapshot *start = state_after(0, &run, 2), *middle = state_after(STEPS, &run, 2);
        struct dp_snapshot *whole = end_of(&run, NULL, 2), *again = end_of(&run, middle, 2);

        assert_same(whole, again);
        check_measured(&run, middle);
        dp_snapshot_destroy(again);
        for (int row = 0; row < middle->rows.count; row++) {
            const struct dp_state_entry *kept = &middle->rows.rows[row];
            if (strncmp(kept->name, DP_COMPRESSION_NAME, strlen(DP_COMPRESSION_NAME)) == 0) {
                check_needed(&run, middle, start, whole, row);
                arrays++;
                plain += kept->kind == DP_STATE_ARRAY;
            }
        }
        dp_snapshot_destroy(whole);
        dp_snapshot_destroy(middle);
        dp_snapshot_destroy(start);
        small_run_destroy(&run);
    }
    assert_true(arrays >= 4); /* a residual of each, and one start vector */
    assert_int_equal(plain, 1);
    assert_int_equal(dp_mem_live(), 0);
}

/* The sum of element k of all residuals of all ranks; adds their magnitudes to *size. */
static double residual_sum(const struct dp_snapshot *s, size_t k, double *size)
{
    double sum = 0.0;

    for (int i = 0; i < s->rows.count; i++) {
        const struct dp_state_entry *row = &s->rows.rows[i];
        for (int rank = 0; dp_state_is_own(row) && rank < s->ranks; rank++) {
            const double value = (double)((float *)row->data)[(size_t)rank * s->trained + k];
            sum += value;
            *size += fabs(value);
        }
    }
    return sum;
}

static void assert_same_sums(const struct dp_snapshot *a, const struct dp_snapshot *b)
{
    int compared = 0;

    for (size_t k = 0; k < a->trained; k++) {
        double size = 0.0, ignored = 0.0;
        const double before = residual_sum(a, k, &size), after = residual_sum(b, k, &ignored);
        assert_true(fabs(before - after) <= 4 * (double)FLT_EPSILON * size);
        compared += before != 0.0;
    }
    assert_true(compared > 100);
}

/* Residuals of owners are zero. */
static void assert_no_owners(const struct dp_snapshot *s)
{
    for (int i = 0; i < s->rows.count; i++) {
        const struct dp_state_entry *row = &s->rows.rows[i];
        for (size_t k = 0; row->spread == DP_SPREAD_OWNER && k < row->bytes / sizeof(float); k++) {
            assert_true(((float *)row->data)[k] == 0.0f);
        }
    }
}

/* A run on `from` ranks goes on on `to`; `moved`: what its ranks own has changed. */
static void check_sums(int from, int to, bool moved)
{
    for (size_t k = 0; k < DP_COUNT(compressors); k++) {
        struct small_run run = run_compressed(compressors[k]);
        struct dp_snapshot *before = state_after(STEPS, &run, from), *after = NULL;
        struct work work = {&run, before, STEPS, &after, NULL};

        before->moved = moved;
        assert_int_equal(on_local_ranks(to, work_rank, &work), 0);
        assert_non_null(after);
        assert_same_sums(before, after);
        assert_no_owners(after);
        dp_snapshot_destroy(after);
        dp_snapshot_destroy(before);
        small_run_destroy(&run);
    }
    assert_int_equal(dp_mem_live(), 0);
}

static void the_sum_of_residuals_stays_on_another_number_of_ranks(void **state)
{
    (void)state;
    check_sums(4, 2, false);
}

static void the_sum_of_residuals_stays_with_other_owners(void **state)
{
    (void)state;
    check_sums(3, 3, true);
}

/* All of them, of a rank alone. */
static void bytes_that_are_copied_are_counted(void **state)
{
    struct small_run run = run_with(strategies[0], "train.precision=fp32");
    (void)state;

    for (uint64_t steps = 1; steps <= 2; steps++) {
        struct dp_snapshot *taken = NULL;
        const struct work work = {.run = &run, .steps = steps, .to = &taken};
        uint64_t bytes = 0;
        assert_int_equal(on_local_ranks(1, work_rank, &work), 0);
        assert_non_null(taken);
        for (int i = 0; i < taken->rows.count; i++) {
            bytes += taken->rows.rows[i].bytes;
        }
        assert_int_equal(taken->copied_bytes, bytes);
        dp_snapshot_destroy(taken);
    }
    small_run_destroy(&run);
}

static void survives_every_failed_allocation(void **state)
{
    float weights[64] = {0}, slot[64] = {0};
    const struct dp_flat flat = {.trained = 64, .owned = 64};
    struct dp_state_dict kept = {.count = 0};
    struct dp_snapshot *s = NULL;
    dp_status status = DP_ERR_NOMEM;
    (void)state;

    dp_state_dict_add_array(&kept, "weights", weights, 64, DP_STATE_WEIGHTS, DP_SPREAD_SAME);
    dp_state_dict_add_array(&kept, "momentum", slot, 64, DP_STATE_SLOT, DP_SPREAD_OWNED);
    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        dp_mem_fail_nth(nth);
        status = dp_snapshot_create(&kept, &flat, 2, &s);
        dp_mem_fail_nth(0);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_true((s != NULL) == (status == DP_OK));
        dp_snapshot_destroy(s);
        assert_int_equal(dp_mem_live(), 0);
    }
    dp_log_set_level(DP_LOG_INFO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sharding_gives_and_takes_the_same_state),
        cmocka_unit_test(arrays_of_ranks_are_restored_or_split),
        cmocka_unit_test(state_of_compressors_is_exact_and_needed),
        cmocka_unit_test(the_sum_of_residuals_stays_on_another_number_of_ranks),
        cmocka_unit_test(the_sum_of_residuals_stays_with_other_owners),
        cmocka_unit_test(bytes_that_are_copied_are_counted),
        cmocka_unit_test(survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
