/*
 * test_batchnorm.c - batch norm over rows on several ranks.
 */
#include "tests/support/arrays.h"
#include "tests/support/local_world.h"
#include "tests/support/models/small_model.h"

enum { ROWS = 5, RANKS_MAX = 3 };

struct shared_norm {
    const struct small_batch *batch;
    bool sync;
    float *grads[RANKS_MAX]; /* out */
};

static dp_status sum_over_ranks(void *context, float *data, size_t count)
{
    struct dp_group *group = context;
    float *all = dp_zalloc((size_t)group->size * count, sizeof(*all));
    dp_status status =
        all == NULL ? DP_ERR_NOMEM : dp_group_allgather(group, data, count * sizeof(*data), all);

    for (size_t i = 0; status == DP_OK && i < count; i++) {
        data[i] = 0;
        for (int rank = 0; rank < group->size; rank++) {
            data[i] += all[(size_t)rank * count + i];
        }
    }
    dp_free(all);
    return status;
}

static size_t norm_rank(struct dp_group *group, const void *arg)
{
    const struct shared_norm *s = arg;
    const size_t rows = s->batch->rows, begin = (size_t)group->rank * rows / (size_t)group->size;
    const size_t end = ((size_t)group->rank + 1) * rows / (size_t)group->size;
    const struct dp_model_hooks hooks = {.context = group, .sum = sum_over_ranks};
    struct dp_pass_call call = batch_call(s->batch, begin, end - begin, s->grads[group->rank], 0);
    struct dp_pass *pass = NULL;
    dp_status status;

    call.hooks = s->sync ? &hooks : NULL;
    if (dp_pass_create(s->batch->model, group->stream, end - begin, true, &pass) != DP_OK) {
        return 1;
    }
    status = batch_step(s->batch, pass, &call);
    dp_pass_destroy(pass);
    return status != DP_OK;
}

/* The gradient summed over `ranks` ranks; released with dp_free(). */
static float *gradient_of_ranks(const struct small_batch *batch, bool sync, int ranks)
{
    const size_t count = grad_count(batch->model);
    struct shared_norm shared = {.batch = batch, .sync = sync};
    float *sum = zeros(count);

    for (int i = 0; i < ranks; i++) {
        shared.grads[i] = zeros(count);
    }
    assert_int_equal(on_local_ranks(ranks, norm_rank, &shared), 0);
    for (int i = 0; i < ranks; i++) {
        for (size_t k = 0; k < count; k++) {
            sum[k] += shared.grads[i][k];
        }
        dp_free(shared.grads[i]);
    }
    return sum;
}

#define NORMS(options)                                                                          \
    "[conv2d: {filters: 3, kernel: 2}, batchnorm: {" options "}, relu: {}, flatten: {}, dense:" \
    " {units: 4}, batchnorm: {" options "}, dense: {units: 3}]"

static void synchronised_norm_on_ranks_equals_one_rank_with_all_rows(void **state)
{
    const struct streams *streams = *state;
    struct small_model sync = small_model_create("[3, 3, 2]", NORMS("sync: true"));
    struct small_model own = small_model_create("[3, 3, 2]", NORMS("sync: false"));

    for (int ranks = 1; ranks <= RANKS_MAX; ranks++) {
        struct small_batch batch = small_batch_create(sync.model, ROWS);
        float *alone = zeros(grad_count(own.model));
        const struct dp_pass_call call = batch_call(&batch, 0, ROWS, alone, 0);
        float *together = gradient_of_ranks(&batch, true, ranks);

        batch.model = own.model;
        step_alone(&batch, streams->ref, ROWS, &call);
        assert_gradients_near(own.model, together, alone, 2e-6);
        dp_free(together);
        dp_free(alone);
        small_batch_destroy(&batch);
    }
    small_model_destroy(&own);
    small_model_destroy(&sync);
}

/* Two rows on three ranks: one of them has none, and joins every sum. */
static void a_rank_without_rows_joins_synchronised_norm(void **state)
{
    struct small_model small = small_model_create("[3, 3, 2]", NORMS("sync: true"));
    struct small_batch batch = small_batch_create(small.model, 2);
    float *two = gradient_of_ranks(&batch, true, 2), *three = gradient_of_ranks(&batch, true, 3);
    (void)state;

    assert_gradients_near(small.model, three, two, 1e-6);
    dp_free(two);
    dp_free(three);
    small_batch_destroy(&batch);
    small_model_destroy(&small);
}

static void unsynchronised_norm_is_separate_on_each_rank(void **state)
{
    const struct streams *streams = *state;
    struct small_model small = small_model_create("[3, 3, 2]", NORMS(""));
    struct small_batch batch = small_batch_create(small.model, ROWS);
    float *together = gradient_of_ranks(&batch, false, 2);
    float *parts = unknown(grad_count(small.model));
    const struct dp_pass_call calls[] = {batch_call(&batch, 0, 2, parts, 0),
                                         batch_call(&batch, 2, 3, parts, 1)};

    step_alone(&batch, streams->ref, ROWS, &calls[0]);
    step_alone(&batch, streams->ref, ROWS, &calls[1]);
    assert_gradients_near(small.model, together, parts, 1e-6);
    dp_free(together);
    dp_free(parts);
    small_batch_destroy(&batch);
    small_model_destroy(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(synchronised_norm_on_ranks_equals_one_rank_with_all_rows),
        cmocka_unit_test(a_rank_without_rows_joins_synchronised_norm),
        cmocka_unit_test(unsynchronised_norm_is_separate_on_each_rank),
    };

    return run_reached_tests(tests, streams_open, streams_close);
}
