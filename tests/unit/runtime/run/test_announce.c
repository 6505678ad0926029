/*
 * test_announce.c - what hooks get from a pass about tensors; test_pass.c tests the order.
 */
#include "tests/support/arrays.h"
#include "tests/support/models/small_model.h"

enum { ROWS = 5 };

/* Overwrites a layer's weights as soon as its gradient is ready. */
static dp_status spoil_weights(void *context, int tensor)
{
    struct small_batch *b = context;
    const struct dp_tensor *t = &b->model->tensors[tensor];

    memset(b->weights + t->begin, 0, t->count * sizeof(float));
    return DP_OK;
}

static void weights_may_be_read_after_ready_only_if_announced_early(void **state)
{
    const struct streams *streams = *state;
    struct small_model small = small_model_create("[6]", "[dense: {units: 5}, dense: {units: 3}]");
    const size_t count = grad_count(small.model);

    for (int early = 0; early < 2; early++) {
        struct small_batch batch = small_batch_create(small.model, ROWS);
        float *expected = zeros(count), *grad = zeros(count);
        struct dp_pass_call call = batch_call(&batch, 0, ROWS, expected, 0);
        const struct dp_model_hooks hooks = {
            .context = &batch, .ready = spoil_weights, .early = early != 0};

        step_alone(&batch, streams->ref, ROWS, &call);
        call.grad = grad;
        call.hooks = &hooks;
        step_alone(&batch, streams->ref, ROWS, &call);
        if (early) { /* the second layer's dx, computed last, is zero, and so is the first's dw */
            memset(expected, 0, small.model->tensors[2].begin * sizeof(float));
        }
        assert_same_bits(grad, expected, count);
        dp_free(grad);
        dp_free(expected);
        small_batch_destroy(&batch);
    }
    small_model_destroy(&small);
}

struct lender {
    struct small_batch *batch; /* whose weights are not there yet */
    const float *weights;      /* the truth */
    int asked;
};

/* Provides the weights that forward is about to read, but no later ones. */
static dp_status bring_weights(void *context, int tensor)
{
    struct lender *l = context;
    const struct dp_tensor *t = &l->batch->model->tensors[tensor];

    memcpy(l->batch->weights, l->weights, (t->begin + t->count) * sizeof(float));
    l->asked++;
    return DP_OK;
}

static void forward_asks_for_weights_before_it_reads_them(void **state)
{
    const struct streams *streams = *state;
    struct small_model small = small_model_create(
        "[6, 6, 2]", "[conv2d: {filters: 4, kernel: 3, padding: 1}, batchnorm: {}, relu: {}, "
                     "residual: {body: [conv2d: {filters: 4, kernel: 1}, batchnorm: {}], "
                     "shortcut: [conv2d: {filters: 4, kernel: 1}]}, maxpool: {size: 2}, "
                     "flatten: {}, dense: {units: 5}, relu: {}, dense: {units: 3}]");
    const size_t count = grad_count(small.model), bytes = small.model->trained * sizeof(float);
    struct small_batch batch = small_batch_create(small.model, ROWS);
    float *weights = zeros(small.model->trained), *expected = zeros(count), *grad = zeros(count);
    struct dp_pass_call call = batch_call(&batch, 0, ROWS, expected, 0);
    struct lender lender = {&batch, weights, 0};
    const struct dp_model_hooks hooks = {.context = &lender, .needs = bring_weights};

    step_alone(&batch, streams->ref, ROWS, &call);
    memcpy(weights, batch.weights, bytes);
    memset(batch.weights, 0xff, bytes); /* not a number */
    call.grad = grad;
    call.hooks = &hooks;
    step_alone(&batch, streams->ref, ROWS, &call);
    assert_same_bits(grad, expected, count);
    assert_true(lender.asked >= 7); /* layers with weights */
    dp_free(grad);
    dp_free(expected);
    dp_free(weights);
    small_batch_destroy(&batch);
    small_model_destroy(&small);
}

enum { LARGE = 2 }; /* the tensor of the second of three layers */

struct deferred_weights {
    struct small_batch *batch;
    const float *weights;
    bool spoils; /* what was there to read before */
};

static size_t a_third_is_deferred(void *context, int tensor)
{
    const struct deferred_weights *l = context;

    return tensor == LARGE ? l->batch->model->tensors[LARGE].count / DP_DEFERRED_PART : 0;
}

/* Provides deferred weights on request, and overwrites those that may be read before. */
static dp_status bring_deferred_weights(void *context, int tensor)
{
    struct deferred_weights *l = context;
    const struct dp_tensor *t = &l->batch->model->tensors[LARGE];
    const size_t deferred = t->count / DP_DEFERRED_PART, rows = t->shape[0] / 2;

    if (tensor >= LARGE) {
        memcpy(l->batch->weights + t->begin, l->weights + t->begin, deferred * sizeof(float));
    }
    if (tensor >= LARGE && l->spoils) {
        memset(l->batch->weights + t->begin + rows * t->shape[1], 0,
               (t->count - rows * t->shape[1]) * sizeof(float));
    }
    return DP_OK;
}

/* The first part of a large layer is computed before its deferred weights are there, and without
 * them; where it is computed by a device that has no parts, when they are there. */
static void forward_waits_for_deferred_weights_as_late_as_it_can(void **state)
{
    const struct streams *streams = *state;
    struct small_model small = small_model_create(
        "[512]", "[dense: {units: 512}, dense: {units: 520}, relu: {}, dense: {units: 3}]");
    const struct dp_tensor *large = &small.model->tensors[LARGE];
    const size_t count = grad_count(small.model), bytes = small.model->trained * sizeof(float);
    struct dp_stream *const tried[] = {streams->ref, streams->tested[0]};

    for (int i = 0; i < 2; i++) {
        const bool parts = tried[i]->ops->dense_forward_part != NULL;
        struct small_batch batch = small_batch_create(small.model, ROWS);
        float *weights = zeros(small.model->trained), *expected = zeros(count);
        float *grad = zeros(count);
        struct dp_pass_call call = batch_call(&batch, 0, ROWS, expected, 0);
        struct deferred_weights lender = {&batch, weights, parts};
        const struct dp_model_hooks hooks = {
            .context = &lender, .needs = bring_deferred_weights, .deferred = a_third_is_deferred};

        step_alone(&batch, tried[i], ROWS, &call);
        memcpy(weights, batch.weights, bytes);
        memset(batch.weights + large->begin, 0xff, large->count / DP_DEFERRED_PART * sizeof(float));
        call.grad = grad;
        call.hooks = &hooks;
        step_alone(&batch, tried[i], ROWS, &call);
        /* The first layer's gradient cannot use the overwritten weights. */
        assert_same_bits(grad + large->begin, expected + large->begin, count - large->begin);
        dp_free(grad);
        dp_free(expected);
        dp_free(weights);
        small_batch_destroy(&batch);
    }
    small_model_destroy(&small);
}

static dp_status refuse(void *context, int tensor)
{
    (void)tensor;
    return *(dp_status *)context;
}

static void a_failing_hook_ends_the_step_with_its_status(void **state)
{
    const struct streams *streams = *state;
    struct small_model small = small_model_create("[6]", "[dense: {units: 3}]");
    struct small_batch batch = small_batch_create(small.model, ROWS);
    float *grad = zeros(2 * grad_count(small.model));
    struct dp_pass_call call = batch_call(&batch, 0, ROWS, grad, 0);
    dp_status status = DP_ERR_INTERNAL;
    const struct dp_model_hooks hooks = {.context = &status, .ready = refuse};
    struct dp_pass *pass = NULL;

    call.hooks = &hooks;
    OK(dp_pass_create(small.model, streams->ref, ROWS, true, &pass));
    assert_int_equal(batch_step(&batch, pass, &call), status);
    dp_pass_destroy(pass);
    dp_free(grad);
    small_batch_destroy(&batch);
    small_model_destroy(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_may_be_read_after_ready_only_if_announced_early),
        cmocka_unit_test(forward_asks_for_weights_before_it_reads_them),
        cmocka_unit_test(forward_waits_for_deferred_weights_as_late_as_it_can),
        cmocka_unit_test(a_failing_hook_ends_the_step_with_its_status),
    };

    return cmocka_run_group_tests(tests, streams_open, streams_close);
}
