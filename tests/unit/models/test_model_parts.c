/*
 * test_model_parts.c - models in parts: backward computes activations again, from less memory, and
 * gives the same bits.
 */
#include "models/model_parts.h"

#include "base/log.h"
#include "tests/support/arrays.h"
#include "tests/support/models/shape_cases.h"
#include "tests/support/models/small_model.h"
#include "tests/support/share_of_cases.h"

enum { ROWS = 3 * DP_TILE_ROWS_MIN - 1 };

static int most_of(struct dp_model *model)
{
    int most = 0;

    OK(dp_model_parts_most(model, &most));
    return most;
}

/* Two micro-batches, of which the second adds, and then the whole batch, with tiles as small as
 * they can be or none. */
static void steps(const struct small_batch *batch, struct dp_stream *stream, size_t tile_bytes,
                  float *grad, float *after)
{
    const struct dp_device *own = stream->device;
    struct dp_device device = *own;
    const struct dp_pass_call calls[] = {batch_call(batch, 0, 4, grad, 0),
                                         batch_call(batch, 4, ROWS - 4, grad, 1),
                                         batch_call(batch, 0, ROWS, after, 0)};
    struct dp_pass *pass = NULL;

    device.tile_bytes = tile_bytes;
    stream->device = &device;
    OK(dp_pass_create(batch->model, stream, ROWS, true, &pass));
    for (size_t i = 0; i < DP_COUNT(calls); i++) {
        OK(batch_step(batch, pass, &calls[i]));
    }
    dp_pass_destroy(pass);
    stream->device = own;
}

static void compare_parts(struct small_model *small, struct dp_stream *stream, size_t tile_bytes)
{
    struct small_batch batch = small_batch_create(small->model, ROWS);
    const size_t count = grad_count(small->model);
    float *grad[2] = {zeros(count), zeros(count)}, *after[2] = {zeros(count), zeros(count)};
    const int most = most_of(small->model);

    OK(dp_model_cut(small->model, 1));
    steps(&batch, stream, tile_bytes, grad[0], after[0]);
    for (int i = 0; i < 3 && most > 1; i++) { /* the fewest, the most, and between */
        const int parts = i == 0 ? 2 : i == 1 ? most : (2 + most) / 2;
        OK(dp_model_cut(small->model, parts));
        assert_int_equal(dp_model_parts(small->model), parts);
        steps(&batch, stream, tile_bytes, grad[1], after[1]);
        assert_same_bits(grad[1], grad[0], count);
        assert_same_bits(after[1], after[0], count);
    }
    for (int i = 0; i < 2; i++) {
        dp_free(grad[i]);
        dp_free(after[i]);
    }
    small_batch_destroy(&batch);
}

static void any_number_of_parts_gives_the_bits_of_one(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *all[] = {streams->ref, streams->tested[0], streams->tested[1]};
    const size_t tiles[] = {0, 1, 4096}; /* none; of the fewest rows; of some rows more */

    for (size_t i = 0; i < shape_case_count; i++) {
        struct small_model small = small_model_create(shape_cases[i].input, shape_cases[i].layers);
        for (size_t k = 0; k < DP_COUNT(all); k++) { /* each with another one from case to case */
            if (in_share(i + k)) {
                compare_parts(&small, all[k], tiles[(i + k) % DP_COUNT(tiles)]);
            }
        }
        small_model_destroy(&small);
    }
}

/* ---- memory ---- */

#define CONV "conv2d: {filters: 8, kernel: 3, padding: 1}, relu: {}, "
#define BLOCK                                                                                  \
    "residual: {body: [conv2d: {filters: 8, kernel: 3, padding: 1}, batchnorm: {}, relu: {}, " \
    "conv2d: {filters: 8, kernel: 3, padding: 1}, batchnorm: {}], shortcut: []}, relu: {}, "
#define DENSE "dense: {units: 256}, relu: {}, "
#define END "flatten: {}, dense: {units: 3}]"

static const struct {
    const char *input, *layers;
    double least; /* of the memory without parts, with as many as need the least */
} deep[] = {
    {"[12, 12, 8]", "[" CONV CONV CONV CONV CONV CONV CONV CONV CONV CONV CONV CONV END, 0.72},
    {"[12, 12, 8]", "[" BLOCK BLOCK BLOCK BLOCK BLOCK BLOCK END, 0.72},
    {"[256]",
     "[" DENSE DENSE DENSE DENSE DENSE DENSE DENSE DENSE DENSE DENSE DENSE DENSE
     "dense: {units: 3}]",
     0.72},
};

/* Bytes that a pass takes. */
static size_t taken(const struct dp_model *model, struct dp_stream *stream)
{
    const size_t before = dp_mem_bytes(DP_MEM_ACTIVATIONS);
    struct dp_pass *pass = NULL;
    size_t bytes;

    OK(dp_pass_create(model, stream, ROWS, true, &pass));
    bytes = dp_mem_bytes(DP_MEM_ACTIVATIONS) - before;
    dp_pass_destroy(pass);
    return bytes;
}

static void parts_need_less_memory_as_predicted(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *stream = streams->tested[0];
    const struct dp_tiles tiles = dp_tiles_of(stream->device, stream->threads);

    for (size_t i = 0; i < DP_COUNT(deep); i++) {
        struct small_model small = small_model_create(deep[i].input, deep[i].layers);
        const size_t whole = taken(small.model, stream);
        const size_t other = /* what the prediction leaves out: of no rows */
            whole - dp_model_activation_bytes(small.model, DP_TYPE_F32, ROWS, tiles, true);
        size_t least = whole;
        const int most = most_of(small.model);
        assert_true(most >= 6);
        for (int parts = 2; parts <= most; parts++) {
            OK(dp_model_cut(small.model, parts));
            assert_int_equal(
                taken(small.model, stream),
                other + dp_model_activation_bytes(small.model, DP_TYPE_F32, ROWS, tiles, true));
            least = taken(small.model, stream) < least ? taken(small.model, stream) : least;
        }
        if ((double)least > deep[i].least * (double)whole) {
            fail_msg("model %zu: %zu bytes, of %zu", i, least, whole);
        }
        small_model_destroy(&small);
    }
}

/* A part of the model less than all is computed again: not the last part, and not what a part hands
 * on. */
static void little_is_computed_again(void **state)
{
    (void)state;
    for (size_t i = 0; i < DP_COUNT(deep); i++) {
        struct small_model small = small_model_create(deep[i].input, deep[i].layers);
        const struct dp_model *m = small.model;
        OK(dp_model_cut(small.model, 1));
        assert_true(dp_model_again(m) == 0.0);
        for (int parts = 2; parts <= 4; parts++) {
            const int last = m->node_count - 1;
            OK(dp_model_cut(small.model, parts));
            assert_true(dp_model_again(m) > 0.0 && dp_model_again(m) < 0.34);
            assert_false(m->nodes[last].again || m->nodes[last - 1].again);
        }
        small_model_destroy(&small);
    }
}

/* ---- cuts ---- */

static void a_residual_or_concat_is_not_cut(void **state)
{
    static const char body[] = "dense: {units: 4}, gelu: {}, dense: {units: 4}, gelu: {}";
    char text[512];
    (void)state;

    (void)snprintf(text, sizeof(text), "[residual: {body: [%s], shortcut: []}, dense: {units: 3}]",
                   body);
    struct small_model one = small_model_create("[4]", text);
    assert_int_equal(most_of(one.model), 2); /* after it */
    small_model_destroy(&one);
    (void)snprintf(text, sizeof(text), "[concat: {branches: [[%s], []]}, dense: {units: 3}]", body);
    struct small_model two = small_model_create("[4]", text);
    assert_int_equal(most_of(two.model), 2);
    small_model_destroy(&two);
}

static void cutting_survives_every_failed_allocation(void **state)
{
    struct small_model small = small_model_create(deep[1].input, deep[1].layers);
    const size_t live = dp_mem_live();
    dp_status status = DP_ERR_NOMEM;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        dp_mem_fail_nth(nth);
        status = dp_model_cut(small.model, 3);
        dp_mem_fail_nth(0);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_true(nth > 4 || status != DP_OK);
        assert_int_equal(dp_mem_live(), live);
    }
    dp_log_set_level(DP_LOG_INFO);
    small_model_destroy(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_parts_gives_the_bits_of_one),
        cmocka_unit_test(parts_need_less_memory_as_predicted),
        cmocka_unit_test(little_is_computed_again),
        cmocka_unit_test(a_residual_or_concat_is_not_cut),
        cmocka_unit_test(cutting_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, streams_open, streams_close);
}
