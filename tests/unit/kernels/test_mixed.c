/*
 * test_mixed.c - operations on bfloats and halves, element by element: `cpu` against `ref`, with
 * one and two threads; what is refused, and what must not get lost.
 */
#include "tests/support/typed.h"

#include "base/log.h"

/* ---- each element alone ---- */

typedef dp_status elementwise(struct dp_stream *s, uint16_t *y, const uint16_t *a,
                              const uint16_t *b, size_t count);

static dp_status relu(struct dp_stream *s, uint16_t *y, const uint16_t *a, const uint16_t *b,
                      size_t count)
{
    (void)b;
    return s->ops->relu_forward(s, y, a, count);
}

static dp_status relu_backward(struct dp_stream *s, uint16_t *y, const uint16_t *a,
                               const uint16_t *b, size_t count)
{
    return s->ops->relu_backward(s, y, a, b, count);
}

static dp_status add(struct dp_stream *s, uint16_t *y, const uint16_t *a, const uint16_t *b,
                     size_t count)
{
    return s->ops->add_forward(s, y, a, b, count, DP_ACT_NONE);
}

static dp_status add_relu(struct dp_stream *s, uint16_t *y, const uint16_t *a, const uint16_t *b,
                          size_t count)
{
    return s->ops->add_forward(s, y, a, b, count, DP_ACT_RELU);
}

static dp_status accumulate(struct dp_stream *s, uint16_t *y, const uint16_t *a, const uint16_t *b,
                            size_t count)
{
    if (y != a) {
        OK(s->ops->copy(s, y, a, count * sizeof(*y)));
    }
    return s->ops->accumulate(s, y, b, count);
}

static dp_status dropout(struct dp_stream *s, uint16_t *y, const uint16_t *a, const uint16_t *b,
                         size_t count)
{
    const struct dp_dropout drop = {.seed = 3, .what = DP_RANDOM_DROPOUT + 2, .rate = 0.3f};
    const struct dp_step_params step_params = {.step = 17};

    (void)b;
    return s->ops->dropout(s, y, a, count, &drop, UINT64_C(4294967289), &step_params);
}

static dp_status gelu(struct dp_stream *s, uint16_t *y, const uint16_t *a, const uint16_t *b,
                      size_t count)
{
    (void)b;
    return s->ops->gelu_forward(s, y, a, count);
}

static dp_status silu(struct dp_stream *s, uint16_t *y, const uint16_t *a, const uint16_t *b,
                      size_t count)
{
    (void)b;
    return s->ops->silu_forward(s, y, a, count);
}

static dp_status silu_backward(struct dp_stream *s, uint16_t *y, const uint16_t *a,
                               const uint16_t *b, size_t count)
{
    return s->ops->silu_backward(s, y, a, b, count);
}

static dp_status leaky(struct dp_stream *s, uint16_t *y, const uint16_t *a, const uint16_t *b,
                       size_t count)
{
    (void)b;
    return s->ops->leaky_forward(s, y, a, 0.3f, count);
}

static dp_status leaky_backward(struct dp_stream *s, uint16_t *y, const uint16_t *a,
                                const uint16_t *b, size_t count)
{
    return s->ops->leaky_backward(s, y, a, b, 0.3f, count);
}

static dp_status gelu_backward(struct dp_stream *s, uint16_t *y, const uint16_t *a,
                               const uint16_t *b, size_t count)
{
    return s->ops->gelu_backward(s, y, a, b, count);
}

static void check_elementwise(const struct typed *t, elementwise *op, size_t count, bool exact)
{
    uint16_t *a = random_halves(t, count, 1), *b = random_halves(t, count, 2);
    uint16_t *expected = halves(count);

    OK(op(t->ref, expected, a, b, count));
    for (int i = 0; i < STREAMS; i++) {
        uint16_t *y = halves(count), *in_place = halves(count);
        memcpy(in_place, a, count * sizeof(*a));
        OK(op(t->cpu[i], y, a, b, count));
        OK(op(t->cpu[i], in_place, in_place, b, count));
        check_bits(in_place, y, count);
        if (exact) {
            check_bits(y, expected, count);
        } else {
            check_narrow(t, y, expected, count, 8e-7);
        }
        dp_free(y);
        dp_free(in_place);
    }
    dp_free(a);
    dp_free(b);
    dp_free(expected);
}

static void check_all_elementwise(const struct typed *t)
{
    static const size_t sizes[] = {0, 1, 63, 64, 2047, 2048, 2049, 70000};
    elementwise *const exact[] = {relu,       relu_backward, add,   add_relu,
                                  accumulate, dropout,       leaky, leaky_backward};

    for (size_t n = 0; n < DP_COUNT(sizes); n++) {
        for (size_t op = 0; op < DP_COUNT(exact); op++) {
            check_elementwise(t, exact[op], sizes[n], true);
        }
        check_elementwise(t, gelu, sizes[n], false);
        check_elementwise(t, gelu_backward, sizes[n], false);
        check_elementwise(t, silu, sizes[n], false);
        check_elementwise(t, silu_backward, sizes[n], false);
    }
}

static void elementwise_operations_round_once(void **state)
{
    (void)state;
    each_type(check_all_elementwise);
}

static void check_load(const struct typed *t, size_t channels, size_t pixels)
{
    const size_t count = channels * pixels;
    float *scale = uniform(channels, 1, 0, 0.01f), *shift = uniform(channels, 2, -1, 1);
    uint16_t *expected = halves(count), *y = halves(count);
    float *floats = uniform(count, 4, -3, 3);
    uint8_t *x = dp_zalloc(count, 1);

    for (size_t i = 0; i < count; i++) {
        x[i] = (uint8_t)dp_random_u32(4, DP_RANDOM_TEST, 0, i);
    }
    OK(t->ref->ops->bytes_load(t->ref, expected, x, scale, shift, channels, count));
    for (int i = 0; i < STREAMS; i++) {
        OK(t->cpu[i]->ops->bytes_load(t->cpu[i], y, x, scale, shift, channels, count));
        check_bits(y, expected, count);
    }
    OK(t->ref->ops->floats_load(t->ref, expected, floats, scale, shift, channels, count));
    for (int i = 0; i < STREAMS; i++) {
        OK(t->cpu[i]->ops->floats_load(t->cpu[i], y, floats, scale, shift, channels, count));
        check_bits(y, expected, count);
    }
    dp_free(floats);
    dp_free(scale);
    dp_free(shift);
    dp_free(expected);
    dp_free(y);
    dp_free(x);
}

static void check_loads(const struct typed *t)
{
    check_load(t, 1, 70000);
    check_load(t, 3, 7001); /* pieces begin and end within a pixel */
    check_load(t, 300, 100);
    check_load(t, 5000, 9); /* more channels than a piece has elements */
}

static void bytes_become_numbers_of_the_type(void **state)
{
    (void)state;
    each_type(check_loads);
}

/* ---- optimizers ---- */

static dp_status update(struct dp_stream *s, const struct dp_update *u, bool adamw)
{
    return adamw ? s->ops->adamw(s, u, 0.9, 0.999, 1e-8f, 0.01f)
                 : s->ops->sgd(s, u, 0.9f, true, 0.01f);
}

/* Master weights are those of a float32 stream, to the bit, and weights are their rounding. */
static void check_update(const struct typed *t, struct dp_stream *s, bool adamw)
{
    enum { COUNT = 5000 };
    struct dp_stream *f32 = stream_on("cpu", 1);
    const struct dp_step_params step_params = {.lr = 0.1f, .factor = 1.0f / 65536, .applied = 2};
    float *master[2], *slots[2][2], *grad = uniform(COUNT, 3, -65536, 65536);
    uint16_t *weights = halves(COUNT), *expected = halves(COUNT);

    for (int i = 0; i < 2; i++) {
        master[i] = uniform(COUNT, 1, -1, 1);
        slots[i][0] = uniform(COUNT, 2, -1, 1);
        slots[i][1] = uniform(COUNT, 4, 0, 1);
        const struct dp_update u = {.master = master[i],
                                    .weights = i == 0 ? (void *)master[i] : (void *)weights,
                                    .grad = grad,
                                    .slots = {slots[i][0], slots[i][1]},
                                    .count = COUNT,
                                    .step_params = &step_params};
        OK(update(i == 0 ? f32 : s, &u, adamw));
    }
    assert_same_bits(master[1], master[0], COUNT);
    assert_same_bits(slots[1][0], slots[0][0], COUNT);
    OK(t->ref->ops->narrow(t->ref, expected, master[1], COUNT, t->type));
    check_bits(weights, expected, COUNT);
    stream_close(f32);
    for (int i = 0; i < 2; i++) {
        dp_free(master[i]);
        dp_free(slots[i][0]);
        dp_free(slots[i][1]);
    }
    dp_free(grad);
    dp_free(weights);
    dp_free(expected);
}

static void check_updates(const struct typed *t)
{
    for (int i = 0; i < STREAMS; i++) {
        check_update(t, t->cpu[i], false);
        check_update(t, t->cpu[i], true);
    }
}

static void optimizers_keep_masters_and_round_weights(void **state)
{
    (void)state;
    each_type(check_updates);
}

/* ---- what must not happen ---- */

static void check_nan(const struct typed *t)
{
    const struct dp_window w = {4, 4, 1, 4, 4, 2, 3, 3, 1, 1, 0};
    float *wide = uniform(16, 1, 1, 2);
    uint16_t *x = halves(16), *y = halves(32), *weights = random_halves(t, 32, 2);

    wide[5] = NAN;
    OK(t->ref->ops->narrow(t->ref, x, wide, 16, t->type));
    for (int i = 0; i < STREAMS; i++) {
        struct dp_stream *s = t->cpu[i];
        OK(s->ops->dense_prepare(s, 1, 16, 2, DP_DENSE_FORWARD));
        OK(s->ops->dense_forward(s, y, x, weights, NULL, 1, 16, 2, DP_ACT_RELU));
        float *found = wide_of(t, y, 2);
        assert_true(isnan(found[0]) && isnan(found[1]));
        dp_free(found);
        OK(s->ops->conv_prepare(s, &w, 1, DP_CONV_FORWARD | DP_CONV_RELU));
        OK(s->ops->conv_forward(s, y, x, weights, NULL, &w, 1, DP_ACT_RELU));
        found = wide_of(t, y, 32);
        assert_true(isnan(found[10]) && isnan(found[11]));
        dp_free(found);
    }
    dp_free(wide);
    dp_free(x);
    dp_free(y);
    dp_free(weights);
}

static void a_nan_survives_rounding_and_relu(void **state)
{
    (void)state;
    each_type(check_nan);
}

static void check_refusals(const struct typed *t)
{
    struct dp_stream *s = stream_on("cpu", 1);
    uint16_t *x = halves(1000);
    int32_t labels[100] = {0};
    float count;

    dp_stream_set_type(s, t->type);
    OK(s->device->reserve(s, 900));
    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(s->ops->count_top(s, &count, x, labels, 100, 10, 1, 0), DP_ERR_INTERNAL);
    dp_mem_fail_nth(1);
    assert_int_equal(s->device->reserve(s, 2000), DP_ERR_NOMEM);
    dp_mem_fail_nth(0);
    dp_log_set_level(DP_LOG_INFO);
    OK(s->ops->count_top(s, &count, x, labels, 80, 10, 1, 0)); /* what was there is still there */
    OK(s->device->reserve(s, 2000));
    OK(s->ops->count_top(s, &count, x, labels, 100, 10, 1, 0));
    stream_close(s);
    dp_free(x);
}

static void too_little_scratch_is_an_error(void **state)
{
    (void)state;
    each_type(check_refusals);
}

static dp_status run_dense(struct dp_stream *s, int which)
{
    enum { ROWS = 3, IN = 100, OUT = 5 };
    static uint16_t x[ROWS * IN], weights[IN * OUT], bias[OUT], y[ROWS * OUT];
    static float sums[IN * OUT];

    switch (which) {
    case 0:
        return s->ops->dense_forward(s, y, x, weights, bias, ROWS, IN, OUT, DP_ACT_NONE);
    case 1:
        return s->ops->dense_backward_data(s, x, y, weights, ROWS, IN, OUT);
    default:
        return s->ops->dense_backward_weights(s, sums, y, x, ROWS, IN, OUT, 0.0f);
    }
}

/* Each array that is converted takes whole blocks of it. Halves always go through float32. */
static void a_dense_layer_needs_scratch_for_all_of_its_arrays(void **state)
{
    enum { X = 5 * DP_BLOCK, WEIGHTS = 8 * DP_BLOCK, BIAS = DP_BLOCK, Y = DP_BLOCK };
    static const size_t needed[] = {X + WEIGHTS + BIAS + Y, Y + WEIGHTS + X, Y + X};
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int which = 0; which < (int)DP_COUNT(needed); which++) {
        struct dp_stream *s = stream_on("cpu", 1);
        dp_stream_set_type(s, DP_TYPE_F16);
        OK(s->device->reserve(s, needed[which] - 1));
        assert_int_equal(run_dense(s, which), DP_ERR_INTERNAL);
        OK(s->device->reserve(s, needed[which]));
        OK(run_dense(s, which));
        stream_close(s);
    }
    dp_log_set_level(DP_LOG_INFO);
}

static void check_prepare(const struct typed *t)
{
    const unsigned uses = DP_DENSE_FORWARD | DP_DENSE_BIAS | DP_DENSE_BACKWARD_WEIGHTS;
    dp_status status = DP_ERR_NOMEM;

    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        struct dp_stream *s = stream_on("cpu", 1);
        dp_stream_set_type(s, t->type);
        dp_mem_fail_nth(nth);
        status = s->ops->dense_prepare(s, 8, 16, 16, uses);
        dp_mem_fail_nth(0);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        stream_close(s);
    }
    dp_log_set_level(DP_LOG_INFO);
}

static void preparing_survives_every_failed_allocation(void **state)
{
    (void)state;
    each_type(check_prepare);
}

/* ---- normalisation of groups ---- */

enum {
    GROUP_ROWS = 3,
    PLACES = 5,
    GROUPS = 2,
    GROUP_C = 6,
    GROUP_X = GROUP_ROWS * PLACES * GROUP_C
};

/* What the stream makes of x and dy; dx is in the place of dy. The oracle sums in double, of which
 * sums of 15 and 30 numbers of float32 are off by less than 1e-5. */
static void run_group_norm(struct dp_stream *s, const uint16_t *x, const uint16_t *weights,
                           uint16_t *y, uint16_t *dy, float *saved, float *sums)
{
    const struct dp_group_norm norm = {GROUP_ROWS, PLACES, GROUP_C, GROUPS, 1e-5f};
    const uint16_t *gamma = weights, *beta = weights + GROUP_C;

    OK(s->ops->group_norm_forward(s, y, saved, x, gamma, beta, &norm));
    OK(s->ops->group_norm_backward(s, NULL, sums, sums + GROUP_C, dy, x, gamma, saved, &norm, 0));
    OK(s->ops->group_norm_backward(s, dy, sums, sums + GROUP_C, dy, x, gamma, saved, &norm, 1));
}

static void check_group_norm(const struct typed *t)
{
    enum { SAVED = GROUP_ROWS * GROUPS * 2, SUMS = 2 * GROUP_C };
    uint16_t *x = random_halves(t, GROUP_X, 1), *weights = random_halves(t, (size_t)2 * GROUP_C, 2);
    uint16_t *y[2] = {halves(GROUP_X), halves(GROUP_X)};
    float *saved[2] = {zeros(SAVED), zeros(SAVED)}, *sums[2] = {zeros(SUMS), zeros(SUMS)};

    for (int i = 0; i < STREAMS; i++) {
        uint16_t *dy[2] = {random_halves(t, GROUP_X, 3), random_halves(t, GROUP_X, 3)};
        run_group_norm(t->ref, x, weights, y[0], dy[0], saved[0], sums[0]);
        run_group_norm(t->cpu[i], x, weights, y[1], dy[1], saved[1], sums[1]);
        check_narrow(t, y[1], y[0], GROUP_X, 1e-5);
        check_narrow(t, dy[1], dy[0], GROUP_X, 1e-5);
        assert_near(saved[1], saved[0], SAVED, 1e-5, 1e-5);
        assert_near(sums[1], sums[0], SUMS, 1e-4, 1e-5);
        dp_free(dy[0]);
        dp_free(dy[1]);
    }
    for (int i = 0; i < 2; i++) {
        dp_free(y[i]);
        dp_free(saved[i]);
        dp_free(sums[i]);
    }
    dp_free(x);
    dp_free(weights);
}

static void groups_are_normalised_in_float32(void **state)
{
    (void)state;
    each_type(check_group_norm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise_operations_round_once),
        cmocka_unit_test(bytes_become_numbers_of_the_type),
        cmocka_unit_test(optimizers_keep_masters_and_round_weights),
        cmocka_unit_test(a_nan_survives_rounding_and_relu),
        cmocka_unit_test(too_little_scratch_is_an_error),
        cmocka_unit_test(a_dense_layer_needs_scratch_for_all_of_its_arrays),
        cmocka_unit_test(groups_are_normalised_in_float32),
        cmocka_unit_test(preparing_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, nothing_is_left);
}
