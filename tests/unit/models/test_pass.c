/*
 * test_pass.c - whole small models: what is fused, moved, written in place or shared between ranks
 * gives the same numbers as the layers one by one.
 *
 * On device ref the comparison is to the bit, since fusing and placing change no operation.
 */
#include "base/log.h"
#include "tests/support/arrays.h"
#include "tests/support/models/shape_cases.h"
#include "tests/support/models/small_model.h"

enum { ROWS = 5, MORE = 8, TILED = 3 * DP_TILE_ROWS_MIN - 1 };

/* ---- helpers ---- */

/* As dp_zalloc of device ref and cpu, but the memory is full of NaN. */
static void *poisoned_alloc(enum dp_purpose purpose, size_t bytes)
{
    void *memory = dp_mem_arena(purpose, bytes);

    if (memory != NULL) {
        memset(memory, 0xff, bytes);
    }
    return memory;
}

/* One step on a new pass whose memory is full of NaN, with that many bytes of cache for tiles. */
static void step_poisoned(const struct small_batch *batch, struct dp_stream *stream,
                          size_t tile_bytes, const struct dp_pass_call *call)
{
    const struct dp_device *own = stream->device;
    struct dp_device device = *own;

    device.alloc = poisoned_alloc;
    device.release = dp_free;
    device.tile_bytes = tile_bytes;
    stream->device = &device;
    step_alone(batch, stream, batch->rows, call);
    stream->device = own;
}

/* ---- fusing and placing ---- */

static void a_model_gives_the_bits_of_its_layers_one_by_one(void **state)
{
    const struct streams *streams = *state;

    for (size_t i = 0; i < shape_case_count; i++) {
        struct small_model small = small_model_create(shape_cases[i].input, shape_cases[i].layers);
        struct small_batch batch = small_batch_create(small.model, ROWS);
        const size_t count = grad_count(small.model);
        float *plain = unknown(count), *grad = unknown(count);
        struct dp_pass_call call = batch_call(&batch, 0, ROWS, plain, 0);

        plain_step(&small, &batch, streams->ref, &call, NULL);
        call.grad = grad;
        step_poisoned(&batch, streams->ref, 0, &call);
        for (int k = 0; k < small.model->tensor_count; k++) {
            const struct dp_tensor *t = &small.model->tensors[k];
            assert_same_bits(grad + t->begin, plain + t->begin, t->count);
        }
        assert_same_bits(grad, plain, count);
        assert_true(isfinite(grad[count - 2]));
        dp_free(plain);
        dp_free(grad);
        small_batch_destroy(&batch);
        small_model_destroy(&small);
    }
}

/* Tiles are as small as they can be; the rows make three of them. Gradients are summed tile by
 * tile, so they are equal within rounding. */
static void tiles_of_rows_give_the_results_of_all_rows_at_once(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *all[] = {streams->ref, streams->tested[0], streams->tested[1]};

    for (size_t i = 0; i < shape_case_count * DP_COUNT(all); i++) {
        const struct shape_case *c = &shape_cases[i / 3];
        struct small_model small = small_model_create(c->input, c->layers);
        struct small_batch batch = small_batch_create(small.model, TILED);
        const size_t count = grad_count(small.model);
        float *plain = unknown(count), *grad = unknown(count);
        struct dp_pass_call call = batch_call(&batch, 0, TILED, plain, 0);

        plain_step(&small, &batch, streams->ref, &call, NULL);
        call.grad = grad;
        step_poisoned(&batch, all[i % 3], 1, &call);
        assert_gradients_near(small.model, grad, plain, c->splits ? 2e-6 : 2e-5);
        dp_free(plain);
        dp_free(grad);
        small_batch_destroy(&batch);
        small_model_destroy(&small);
    }
}

/* ---- threads ---- */

/* Tiles of 6 rows; of these rows in a segment of independent rows. */
static void check_bands(struct dp_tiles tiles, const struct dp_segment *segment, size_t rows)
{
    const size_t bands = dp_segment_bands(segment, tiles, rows);
    size_t end = 0;

    assert_int_equal(bands, rows < tiles.threads * DP_TILE_ROWS_MIN ? 1 : tiles.threads);
    for (size_t i = 0; i < bands; i++) {
        const struct dp_range band = dp_rows_part(rows, bands, i);
        const size_t count = dp_segment_tiles(segment, 80, tiles, band.count);
        assert_int_equal(band.begin, end);
        assert_in_range(band.count, rows / bands, (rows + bands - 1) / bands);
        for (size_t k = 0; k < count; k++) {
            assert_in_range(dp_rows_part(band.count, count, k).count, rows > 0, 6);
        }
        end += band.count;
    }
    assert_int_equal(end, rows);
}

/* Threads wait for each other at the end of a segment: one with more rows than the others costs all
 * of them that time. */
static void threads_share_the_rows_of_a_segment_evenly(void **state)
{
    const struct dp_segment segment = {.tiled = true, .row_local = true, .row = 100};
    const struct dp_segment dense = {.row = 100};
    (void)state;

    for (size_t threads = 1; threads <= 4; threads++) {
        const struct dp_tiles tiles = {600 * sizeof(float), threads};
        for (size_t rows = 0; rows <= 80; rows++) {
            check_bands(tiles, &segment, rows);
            assert_int_equal(dp_segment_bands(&dense, tiles, rows), 1);
        }
    }
}

enum { BANDED = 3 * DP_TILE_ROWS_MIN + 2 }; /* of three threads: bands of 4, 5 and 5 rows */

/* A step in bands, whose tiles are as small as they can be, in memory full of NaN; then once more
 * in what it left, and added to it. */
static void compare_bands(const struct shape_case *c, const struct streams *streams, int threads)
{
    struct dp_stream *stream = stream_on(tested_device(), threads);
    struct small_model small = small_model_create(c->input, c->layers);
    struct small_batch batch = small_batch_create(small.model, BANDED);
    const size_t count = grad_count(small.model);
    float *plain = unknown(count), *grad = unknown(count), *again = unknown(count);
    struct dp_pass_call call = batch_call(&batch, 0, BANDED, plain, 0);
    struct dp_pass *pass = NULL;

    plain_step(&small, &batch, streams->ref, &call, NULL);
    call.grad = grad;
    step_poisoned(&batch, stream, 1, &call);
    assert_gradients_near(small.model, grad, plain, c->splits ? 2e-6 : 2e-5);
    OK(dp_pass_create(small.model, stream, BANDED, true, &pass));
    OK(batch_step(&batch, pass, &call));
    call.grad = again;
    OK(batch_step(&batch, pass, &call));
    assert_same_bits(again, grad, count);
    call.keep = 1;
    OK(batch_step(&batch, pass, &call));
    for (size_t i = 0; i < count; i++) {
        grad[i] *= 2.0f;
    }
    assert_gradients_near(small.model, again, grad, 1e-6);
    dp_pass_destroy(pass);
    dp_free(plain);
    dp_free(grad);
    dp_free(again);
    small_batch_destroy(&batch);
    small_model_destroy(&small);
    stream_close(stream);
}

static void bands_of_rows_give_the_results_of_all_rows_at_once(void **state)
{
    for (size_t i = 0; i < shape_case_count; i++) {
        compare_bands(&shape_cases[i], *state, 2);
        compare_bands(&shape_cases[i], *state, 3);
    }
}

static void evaluation_in_bands_gives_the_loss_of_all_rows_at_once(void **state)
{
    const struct streams *streams = *state;

    for (size_t i = 0; i < shape_case_count; i++) {
        struct small_model small = small_model_create(shape_cases[i].input, shape_cases[i].layers);
        struct small_batch batch = small_batch_create(small.model, BANDED);
        const size_t each = small.model->values[0].count;
        float expected[2], result[DP_EVALUATION_SUMS], *grad = zeros(grad_count(small.model));
        const struct dp_pass_call plain = batch_call(&batch, 0, BANDED, grad, 0);
        struct dp_pass_call call = batch_call(&batch, 0, BANDED, NULL, 0);
        struct dp_pass *pass = NULL;

        plain_step(&small, &batch, streams->ref, &plain, expected);
        OK(dp_pass_create(small.model, streams->tested[1], BANDED, false, &pass));
        OK(dp_pass_prepare(pass, BANDED, false));
        memcpy(dp_pass_input(pass), batch.input, BANDED * each * sizeof(float));
        OK(dp_pass_evaluate(pass, &call, result));
        assert_near(result, expected, 1, 0, 1e-5);
        dp_pass_destroy(pass);
        dp_free(grad);
        small_batch_destroy(&batch);
        small_model_destroy(&small);
    }
}

/* ---- what is left behind ---- */

/* What an earlier batch left, here nothing but NaN, and rows that are not used. */
static void a_pass_keeps_no_state(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *all[] = {streams->ref, streams->tested[0]};

    for (size_t i = 0; i < shape_case_count * DP_COUNT(all); i++) {
        struct small_model small =
            small_model_create(shape_cases[i / 2].input, shape_cases[i / 2].layers);
        struct small_batch batch = small_batch_create(small.model, ROWS);
        struct small_batch other = small_batch_create(small.model, MORE);
        const size_t count = grad_count(small.model), each = small.model->values[0].count;
        float *expected = zeros(count), *grad = zeros(count);
        struct dp_pass_call call = batch_call(&batch, 0, ROWS, expected, 0);
        const struct dp_pass_call before = batch_call(&other, 0, MORE, grad, 0);
        struct dp_pass *pass = NULL;

        step_alone(&batch, all[i % 2], ROWS, &call);
        for (size_t k = 0; k < MORE * each; k++) {
            other.input[k] = NAN;
        }
        OK(dp_pass_create(small.model, all[i % 2], MORE, true, &pass));
        OK(batch_step(&other, pass, &before));
        call.grad = grad;
        OK(batch_step(&batch, pass, &call));
        assert_same_bits(grad, expected, count);
        dp_pass_destroy(pass);
        dp_free(expected);
        dp_free(grad);
        small_batch_destroy(&other);
        small_batch_destroy(&batch);
        small_model_destroy(&small);
    }
}

static void cpu_computes_what_ref_does(void **state)
{
    const struct streams *streams = *state;

    for (size_t i = 0; i < shape_case_count * DP_COUNT(streams->tested); i++) {
        const struct shape_case *c = &shape_cases[i / 2];
        struct small_model small = small_model_create(c->input, c->layers);
        struct small_batch batch = small_batch_create(small.model, ROWS);
        float *expected = zeros(grad_count(small.model)), *grad = zeros(grad_count(small.model));
        struct dp_pass_call call = batch_call(&batch, 0, ROWS, expected, 0);

        step_alone(&batch, streams->ref, ROWS, &call);
        call.grad = grad;
        step_alone(&batch, streams->tested[i % 2], ROWS, &call);
        /* Batch norm over few rows divides by small deviations: some hundred roundings. */
        assert_gradients_near(small.model, grad, expected, c->splits ? 2e-6 : 2e-5);
        dp_free(expected);
        dp_free(grad);
        small_batch_destroy(&batch);
        small_model_destroy(&small);
    }
}

/* ---- rows ---- */

/* Dropout among them: the numbers are keyed by the row in the global batch. */
static void passes_over_parts_of_the_rows_add_up_to_one_over_all(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *all[] = {streams->ref, streams->tested[0]};

    for (size_t i = 0; i < shape_case_count * DP_COUNT(all); i++) {
        const struct shape_case *c = &shape_cases[i / 2];
        struct small_model small = small_model_create(c->input, c->layers);
        struct small_batch batch = small_batch_create(small.model, ROWS);
        const size_t count = grad_count(small.model);
        float *expected = zeros(count), *grad = unknown(count);
        const struct dp_pass_call whole = batch_call(&batch, 0, ROWS, expected, 0);
        const struct dp_pass_call parts[] = {batch_call(&batch, 0, 2, grad, 0),
                                             batch_call(&batch, 2, 0, grad, 1),
                                             batch_call(&batch, 2, 3, grad, 1)};
        struct dp_pass *pass = NULL;

        OK(dp_pass_create(small.model, all[i % 2], ROWS, true, &pass));
        for (size_t k = 0; c->splits && k < DP_COUNT(parts); k++) {
            OK(batch_step(&batch, pass, &parts[k]));
        }
        OK(batch_step(&batch, pass, &whole));
        if (c->splits) {
            assert_gradients_near(small.model, grad, expected, 1e-6);
        }
        dp_pass_destroy(pass);
        dp_free(expected);
        dp_free(grad);
        small_batch_destroy(&batch);
        small_model_destroy(&small);
    }
}

static void a_pass_over_no_rows_writes_zeros(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *all[] = {streams->ref, streams->tested[0]};

    for (size_t i = 0; i < shape_case_count * DP_COUNT(all); i++) {
        struct small_model small =
            small_model_create(shape_cases[i / 2].input, shape_cases[i / 2].layers);
        struct small_batch batch = small_batch_create(small.model, ROWS);
        const size_t count = grad_count(small.model);
        float *zero = zeros(count), *grad = unknown(count);
        const struct dp_pass_call call = batch_call(&batch, 2, 0, grad, 0);

        step_alone(&batch, all[i % 2], i % 2 == 0 ? 0 : ROWS, &call);
        assert_gradients_near(small.model, grad, zero, 0);
        dp_free(zero);
        dp_free(grad);
        small_batch_destroy(&batch);
        small_model_destroy(&small);
    }
}

static void dropout_depends_on_step_and_seed(void **state)
{
    const struct streams *streams = *state;
    struct small_model small =
        small_model_create("[30]", "[dropout: {}, dense: {units: 2, bias: false}]");
    struct small_batch batch = small_batch_create(small.model, 1);
    float *grads[3];
    (void)state;

    for (int k = 0; k < 3; k++) {
        struct dp_pass_call call;
        grads[k] = zeros(grad_count(small.model));
        call = batch_call(&batch, 0, 1, grads[k], 0);
        call.seed += k == 1;
        batch.step_params.step += k == 2;
        step_alone(&batch, streams->tested[0], 1, &call);
    }
    for (int k = 1; k < 3; k++) {
        int changed = 0;
        for (size_t i = 0; i < 30; i++) {
            changed += (grads[0][i] == 0.0f) != (grads[k][i] == 0.0f);
        }
        assert_true(changed >= 5); /* of 30, half in the mean: fewer once in 6000 keys */
    }
    for (int k = 0; k < 3; k++) {
        dp_free(grads[k]);
    }
    small_batch_destroy(&batch);
    small_model_destroy(&small);
}

/* ---- evaluation ---- */

static void evaluation_gives_the_loss_and_answers_of_the_layers_one_by_one(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *all[] = {streams->ref, streams->tested[0]};

    for (size_t i = 0; i < shape_case_count * DP_COUNT(all); i++) {
        struct small_model small =
            small_model_create(shape_cases[i / 2].input, shape_cases[i / 2].layers);
        struct small_batch batch = small_batch_create(small.model, ROWS);
        const size_t each = small.model->values[0].count;
        float *grad = zeros(grad_count(small.model));
        const struct dp_pass_call plain = batch_call(&batch, 0, ROWS, grad, 0);
        struct dp_pass_call call = batch_call(&batch, 0, ROWS, NULL, 0);

        for (int training = 0; training < 2; training++) {
            struct dp_pass *pass = NULL;
            float expected[2], result[DP_EVALUATION_SUMS];
            plain_step(&small, &batch, all[i % 2], &plain, expected);
            OK(dp_pass_create(small.model, all[i % 2], MORE, training != 0, &pass));
            OK(dp_pass_prepare(pass, ROWS, false));
            memcpy(dp_pass_input(pass), batch.input, ROWS * each * sizeof(float));
            OK(dp_pass_evaluate(pass, &call, result));
            assert_near(result, expected, 1, 0, 1e-6);
            assert_same_bits(result + 1, expected + 1, 1);
            dp_pass_destroy(pass);
        }
        dp_free(grad);
        small_batch_destroy(&batch);
        small_model_destroy(&small);
    }
}

/* ---- hooks ---- */

/* The gradient as it was when each tensor was said to be ready. From then on another rank may
 * change the tensor, where ranks share one copy of the weights. */
struct witness {
    const struct dp_model *model;
    const float *grad;
    float *seen;
    float *weights; /* NULL: ranks have copies of their own */
    int next;       /* the tensor that must come next */
};

static dp_status witness_ready(void *context, int tensor)
{
    struct witness *w = context;
    const struct dp_tensor *t = &w->model->tensors[tensor];

    if (tensor != w->next--) {
        return DP_ERR_INTERNAL;
    }
    memcpy(w->seen + t->begin, w->grad + t->begin, t->count * sizeof(float));
    for (size_t i = 0; w->weights != NULL && i < t->count; i++) {
        w->weights[t->begin + i] = NAN;
    }
    return DP_OK;
}

static void each_tensor_becomes_ready_once_in_reverse_order(void **state)
{
    const struct streams *streams = *state;

    for (size_t i = 0; i < 2 * shape_case_count; i++) {
        const struct shape_case *c = &shape_cases[i / 2];
        struct small_model small = small_model_create(c->input, c->layers);
        struct small_batch batch = small_batch_create(small.model, ROWS);
        const size_t count = grad_count(small.model);
        float *grad = zeros(count), *seen = zeros(count), *expected = zeros(count);
        struct dp_pass_call call = batch_call(&batch, 0, ROWS, expected, 0);
        struct witness witness = {small.model, grad, seen, i % 2 != 0 ? NULL : batch.weights,
                                  small.model->tensor_count - 1};
        const struct dp_model_hooks hooks = {
            .context = &witness, .ready = witness_ready, .early = i % 2 != 0};

        step_alone(&batch, streams->tested[0], ROWS, &call);
        call.grad = grad;
        call.hooks = &hooks;
        step_alone(&batch, streams->tested[0], ROWS, &call);
        assert_int_equal(witness.next, -1);
        assert_same_bits(seen, grad, small.model->trained);
        assert_same_bits(grad, expected, count);
        dp_free(expected);
        dp_free(seen);
        dp_free(grad);
        small_batch_destroy(&batch);
        small_model_destroy(&small);
    }
}

/* ---- creation ---- */

static void check_creation(const struct dp_model *model, struct dp_stream *stream)
{
    const size_t live = dp_mem_live();
    dp_status status = DP_ERR_NOMEM;

    for (int nth = 1; status != DP_OK; nth++) {
        struct dp_pass *pass = NULL;
        dp_mem_fail_nth(nth);
        status = dp_pass_create(model, stream, ROWS, true, &pass);
        dp_mem_fail_nth(0);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_true((pass != NULL) == (status == DP_OK));
        assert_true(nth > 5 || status != DP_OK); /* the first few are really needed */
        dp_pass_destroy(pass);
        assert_int_equal(dp_mem_live(), live);
    }
}

static void creation_survives_every_failed_allocation(void **state)
{
    const struct streams *streams = *state;
    struct small_model small = small_model_create(shape_cases[13].input, shape_cases[13].layers);

    dp_log_set_level(DP_LOG_NONE);
    check_creation(small.model, streams->tested[0]);
    check_creation(small.model, streams->tested[1]);
    dp_log_set_level(DP_LOG_INFO);
    small_model_destroy(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_gives_the_bits_of_its_layers_one_by_one),
        cmocka_unit_test(tiles_of_rows_give_the_results_of_all_rows_at_once),
        cmocka_unit_test(threads_share_the_rows_of_a_segment_evenly),
        cmocka_unit_test(bands_of_rows_give_the_results_of_all_rows_at_once),
        cmocka_unit_test(evaluation_in_bands_gives_the_loss_of_all_rows_at_once),
        cmocka_unit_test(a_pass_keeps_no_state),
        cmocka_unit_test(cpu_computes_what_ref_does),
        cmocka_unit_test(passes_over_parts_of_the_rows_add_up_to_one_over_all),
        cmocka_unit_test(a_pass_over_no_rows_writes_zeros),
        cmocka_unit_test(dropout_depends_on_step_and_seed),
        cmocka_unit_test(evaluation_gives_the_loss_and_answers_of_the_layers_one_by_one),
        cmocka_unit_test(each_tensor_becomes_ready_once_in_reverse_order),
        cmocka_unit_test(creation_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, streams_open, streams_close);
}
