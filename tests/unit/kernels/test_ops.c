/*
 * test_ops.c - every operation of `cpu` against `ref` over many sizes, with one and two threads;
 * and backward operations of `ref` against differences of its forward ones.
 *
 * Tolerances: elementwise operations are the same float32 operations on both devices and must be
 * equal to the bit, unless a test says why not. Sums of n products of numbers below 1 err by a few
 * roundings of partial sums, which grow like sqrt(n): 1e-6 sqrt(n) is 17 roundings of a sum of 1.
 */
#include "tests/support/arrays.h"

static const size_t sizes[] = {0, 1, 3, 15, 16, 17, 63, 64, 65, 1000, 70000};

/* Sets `s` to each stream of the device under test. */
#define EACH_STREAM(s, streams) \
    for (size_t nth = 0;        \
         nth < DP_COUNT((streams)->tested) && ((s) = (streams)->tested[nth]) != NULL; nth++)

/* ---- memory ---- */

static void zero_and_copy_write_only_their_range(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *s;

    for (size_t n = 0; n < DP_COUNT(sizes); n++) {
        const size_t count = sizes[n];
        float *x = uniform(count + 1, 1, -1, 1);
        EACH_STREAM(s, streams)
        {
            float *y = uniform(count + 1, 2, -1, 1), *zero = zeros(count);
            const float guard = y[count];
            OK(s->ops->copy(s, y, x, count * sizeof(float)));
            assert_same_bits(y, x, count);
            OK(s->ops->zero(s, y, count * sizeof(float)));
            assert_same_bits(y, zero, count);
            assert_true(y[count] == guard);
            dp_free(y);
            dp_free(zero);
        }
        dp_free(x);
    }
}

static void add_adds_in_place(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *s;

    for (size_t n = 0; n < DP_COUNT(sizes); n++) {
        float *x = uniform(sizes[n], 1, -1, 1), *old = uniform(sizes[n], 2, -1, 1);
        float *expected = copy_of(old, sizes[n]);
        OK(streams->ref->ops->add(streams->ref, expected, x, sizes[n]));
        EACH_STREAM(s, streams)
        {
            float *y = copy_of(old, sizes[n]);
            OK(s->ops->add(s, y, x, sizes[n]));
            assert_same_bits(y, expected, sizes[n]);
            dp_free(y);
        }
        dp_free(x);
        dp_free(old);
        dp_free(expected);
    }
}

static void scale_multiplies_also_in_place(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *all[] = {streams->ref, streams->tested[0], streams->tested[1]};

    for (size_t k = 0; k < DP_COUNT(all); k++) {
        for (size_t n = 0; n < DP_COUNT(sizes); n++) {
            float *x = uniform(sizes[n], 1, -1, 1), *y = uniform(sizes[n], 2, -1, 1);
            float *expected = copy_of(x, sizes[n]);
            for (size_t i = 0; i < sizes[n]; i++) {
                expected[i] *= 0.37f;
            }
            OK(all[k]->ops->scale(all[k], y, x, 0.37f, sizes[n]));
            assert_same_bits(y, expected, sizes[n]);
            OK(all[k]->ops->scale(all[k], x, x, 0.37f, sizes[n]));
            assert_same_bits(x, expected, sizes[n]);
            dp_free(x);
            dp_free(y);
            dp_free(expected);
        }
    }
}

static void blend_moves_towards_the_new_value(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *all[] = {streams->ref, streams->tested[0], streams->tested[1]};

    for (size_t k = 0; k < DP_COUNT(all); k++) {
        for (size_t n = 0; n < DP_COUNT(sizes); n++) {
            float *x = uniform(sizes[n], 1, -1, 1), *y = uniform(sizes[n], 2, -1, 1);
            float *expected = copy_of(y, sizes[n]);
            for (size_t i = 0; i < sizes[n]; i++) {
                expected[i] = 0.75f * expected[i] + 0.25f * x[i];
            }
            OK(all[k]->ops->blend(all[k], y, x, 0.25f, sizes[n]));
            assert_same_bits(y, expected, sizes[n]);
            dp_free(x);
            dp_free(y);
            dp_free(expected);
        }
    }
}

enum { ARRAYS = 13 };

/* One sum of n arrays: outs outputs, of which the first is xs[alias] (none if alias is n). */
static void check_tree(const struct streams *streams, int n, int outs, int alias, size_t count)
{
    float *xs[ARRAYS], *ys[ARRAYS], *expected = zeros(count);
    struct dp_stream *s;

    EACH_STREAM(s, streams)
    {
        for (int i = 0; i < n; i++) {
            xs[i] = uniform(count, (uint32_t)(10 + i), -1, 1);
            for (size_t j = 0; j < count; j++) {
                xs[i][j] *= xs[i][j] * xs[i][j]; /* of many sizes, so that sums do round */
            }
        }
        for (int i = 0; i < outs; i++) {
            ys[i] = i == 0 && alias < n ? xs[alias] : held(count, 99, 0);
        }
        OK(streams->ref->ops->sum_tree(streams->ref, &expected, 1, (const float *const *)xs, n,
                                       count));
        OK(s->ops->sum_tree(s, ys, outs, (const float *const *)xs, n, count));
        for (int i = 0; i < outs; i++) {
            assert_same_bits(ys[i], expected, count);
            dp_free(i == 0 && alias < n ? NULL : ys[i]);
        }
        for (int i = 0; i < n; i++) {
            dp_free(xs[i]);
        }
    }
    dp_free(expected);
}

static void sum_tree_keeps_the_order_of_the_tree(void **state)
{
    for (int n = 1; n <= ARRAYS; n++) {
        for (size_t k = 0; k < DP_COUNT(sizes); k++) {
            check_tree(*state, n, 1, n, sizes[k]);
            check_tree(*state, n, 1, n - 1, sizes[k]); /* the last input is the output */
        }
        check_tree(*state, n, n, 0, 70000);
        check_tree(*state, n, 3, n / 2, 5000);
    }
}

/* 2^24 + 1 rounds to 2^24: another order of these additions gives another sum. */
static void sum_tree_is_the_documented_tree(void **state)
{
    static const float big = 16777216.0f;
    const struct streams *streams = *state;
    const float values[5] = {big, 1, 1, -big, 1};
    const float *xs[5] = {&values[0], &values[1], &values[2], &values[3], &values[4]};
    const float expected = ((big + 1) + (1 + -big)) + 1;
    float y = 0, *ys = &y;

    OK(streams->ref->ops->sum_tree(streams->ref, &ys, 1, xs, 5, 1));
    assert_true(y == expected);
    OK(streams->tested[0]->ops->sum_tree(streams->tested[0], &ys, 1, xs, 5, 1));
    assert_true(y == expected);
}

static void squares_of_each_block(struct dp_stream *s, float *parts, float *x, size_t count)
{
    for (size_t b = 0; b * DP_BLOCK < count; b++) {
        const size_t left = count - b * DP_BLOCK;
        OK(s->ops->block_squares(s, parts + b, x + b * DP_BLOCK,
                                 left < DP_BLOCK ? left : DP_BLOCK));
    }
}

/* Sums of multiples of 2^-24 are exact in double. What is not finite makes the sum so, too; what
 * lies after the array is not read. */
static void the_sum_of_all_is_exact(void **state)
{
    static const size_t counts[] = {0, 1, 3, 4, 63, 1000, 16384, 50001};
    const struct streams *streams = *state;

    for (size_t i = 0; i < 2 * DP_COUNT(counts); i++) {
        const size_t count = counts[i / 2];
        struct dp_stream *s = streams->tested[i % 2];
        float *array = uniform(count + 2, 5, 0, 1), *x = array + i % 2; /* aligned, and not */
        double expected = -1, found = -1;
        x[count] = NAN;
        OK(streams->ref->ops->sum_all(streams->ref, &expected, x, count));
        OK(s->ops->sum_all(s, &found, x, count));
        assert_true(found == expected);
        for (size_t at = 0; at < count; at += count / 3 + 1) {
            const float kept = x[at];
            x[at] = at % 2 == 0 ? NAN : INFINITY;
            OK(s->ops->sum_all(s, &found, x, count));
            assert_false(isfinite(found));
            x[at] = kept;
        }
        dp_free(array);
    }
}

static void block_squares_do_not_depend_on_how_an_array_is_cut(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *s;

    for (size_t n = 0; n < DP_COUNT(sizes); n++) {
        const size_t count = sizes[n], blocks = (count + DP_BLOCK - 1) / DP_BLOCK;
        float *x = uniform(count, 1, -1, 1), *expected = zeros(blocks), *parts = zeros(blocks);
        OK(streams->ref->ops->block_squares(streams->ref, expected, x, count));
        EACH_STREAM(s, streams)
        {
            float *whole = held(blocks, 3, 0);
            OK(s->ops->block_squares(s, whole, x, count));
            squares_of_each_block(s, parts, x, count);
            assert_same_bits(whole, parts, blocks);
            /* 64 positive terms in a tree of 16 lanes: at most 8 roundings deep. */
            assert_near(whole, expected, blocks, 0, 8 * 6e-8);
            dp_free(whole);
        }
        dp_free(x);
        dp_free(expected);
        dp_free(parts);
    }
}

static void load_bytes(const struct streams *streams, size_t count, size_t channels)
{
    struct dp_stream *s;
    uint8_t *x = dp_zalloc(count, 1);
    float *scale = uniform(channels, 1, 0, 0.01f);
    float *shift = uniform(channels, 2, -1, 1), *expected = zeros(count);
    for (size_t i = 0; i < count; i++) {
        x[i] = (uint8_t)dp_random_u32(4, DP_RANDOM_TEST, 0, i);
    }
    OK(streams->ref->ops->bytes_load(streams->ref, expected, x, scale, shift, channels, count));
    EACH_STREAM(s, streams)
    {
        float *y = held(count, 3, 0);
        OK(s->ops->bytes_load(s, y, x, scale, shift, channels, count));
        assert_same_bits(y, expected, count);
        dp_free(y);
    }
    dp_free(x);
    dp_free(scale);
    dp_free(shift);
    dp_free(expected);
}

static void load_floats(const struct streams *streams, size_t count, size_t channels)
{
    struct dp_stream *s;
    float *x = uniform(count, 4, -3, 3), *scale = uniform(channels, 1, -2, 2);
    float *shift = uniform(channels, 2, -1, 1), *expected = zeros(count);

    OK(streams->ref->ops->floats_load(streams->ref, expected, x, scale, shift, channels, count));
    EACH_STREAM(s, streams)
    {
        float *y = held(count, 3, 0);
        OK(s->ops->floats_load(s, y, x, scale, shift, channels, count));
        assert_same_bits(y, expected, count);
        dp_free(y);
    }
    dp_free(x);
    dp_free(scale);
    dp_free(shift);
    dp_free(expected);
}

static void loading_scales_each_channel(void **state)
{
    static const size_t channels[] = {1, 3, 4, 200, 300};

    for (size_t c = 0; c < DP_COUNT(channels); c++) {
        for (size_t n = 0; n < DP_COUNT(sizes); n++) {
            load_bytes(*state, sizes[n] / channels[c] * channels[c], channels[c]);
            load_floats(*state, sizes[n] / channels[c] * channels[c], channels[c]);
        }
    }
}

/* ---- elementwise: each operation as op(stream, y, a, b, count) ---- */

typedef dp_status elementwise(struct dp_stream *s, float *y, const float *a, const float *b,
                              size_t count);

static dp_status relu(struct dp_stream *s, float *y, const float *a, const float *b, size_t count)
{
    (void)b;
    return s->ops->relu_forward(s, y, a, count);
}

static dp_status relu_backward(struct dp_stream *s, float *y, const float *a, const float *b,
                               size_t count)
{
    return s->ops->relu_backward(s, y, a, b, count);
}

static dp_status gelu(struct dp_stream *s, float *y, const float *a, const float *b, size_t count)
{
    (void)b;
    return s->ops->gelu_forward(s, y, a, count);
}

static dp_status gelu_backward(struct dp_stream *s, float *y, const float *a, const float *b,
                               size_t count)
{
    return s->ops->gelu_backward(s, y, a, b, count);
}

static dp_status add(struct dp_stream *s, float *y, const float *a, const float *b, size_t count)
{
    return s->ops->add_forward(s, y, a, b, count, DP_ACT_NONE);
}

static dp_status add_relu(struct dp_stream *s, float *y, const float *a, const float *b,
                          size_t count)
{
    return s->ops->add_forward(s, y, a, b, count, DP_ACT_RELU);
}

static dp_status dropout(struct dp_stream *s, float *y, const float *a, const float *b,
                         size_t count)
{
    const struct dp_dropout drop = {.seed = 3, .what = DP_RANDOM_DROPOUT + 2, .rate = 0.3f};
    const struct dp_step_params step_params = {.step = 17};
    (void)b;

    /* Not a multiple of four, and beyond 32 bits within a long array. */
    /* Also from the middle of four elements that share a block of random numbers. */
    DP_TRY(s->ops->dropout(s, y, a, count, &drop, UINT64_C(4294967288) + (count % 4 == 1 ? 1 : 0),
                           &step_params));
    wait_for_streams(); /* which read the step parameters */
    return DP_OK;
}

static void check_elementwise(const struct streams *streams, elementwise *op, size_t count,
                              float range, double absolute, double relative)
{
    float *a = uniform(count, 1, -range, range), *b = uniform(count, 2, -range, range);
    float *expected = zeros(count), *first = NULL;
    struct dp_stream *s;

    OK(op(streams->ref, expected, a, b, count));
    EACH_STREAM(s, streams)
    {
        float *y = held(count, 3, 0), *in_place = copy_of(a, count);
        OK(op(s, y, a, b, count));
        assert_near(y, expected, count, absolute, relative);
        OK(op(s, in_place, in_place, b, count)); /* y may be the first input */
        assert_same_bits(in_place, y, count);
        if (first == NULL) {
            first = copy_of(y, count);
        }
        assert_same_bits(y, first, count); /* whatever the number of threads */
        dp_free(y);
        dp_free(in_place);
    }
    dp_free(a);
    dp_free(b);
    dp_free(expected);
    dp_free(first);
}

static void elementwise_operations_equal_the_reference(void **state)
{
    for (size_t n = 0; n < DP_COUNT(sizes); n++) {
        check_elementwise(*state, relu, sizes[n], 2, 0, 0);
        check_elementwise(*state, relu_backward, sizes[n], 2, 0, 0);
        check_elementwise(*state, add, sizes[n], 2, 0, 0);
        check_elementwise(*state, add_relu, sizes[n], 2, 0, 0);
        check_elementwise(*state, dropout, sizes[n], 2, 0, 0);
        /* The distribution function is good to 1.2e-7, twice the rounding of a number near 1; the
         * slope multiplies it by dy and adds the density times x, each with its own roundings. */
        check_elementwise(*state, gelu, sizes[n], 1, 1.5e-7, 1e-7);
        check_elementwise(*state, gelu, sizes[n], 30, 3e-7, 2e-7);
        check_elementwise(*state, gelu_backward, sizes[n], 1, 4e-7, 1e-7);
        check_elementwise(*state, gelu_backward, sizes[n], 30, 30 * 4e-7, 1e-7);
    }
}

static void accumulate_is_add(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *s;

    for (size_t n = 0; n < DP_COUNT(sizes); n++) {
        float *x = uniform(sizes[n], 1, -1, 1), *expected = uniform(sizes[n], 2, -1, 1);
        OK(streams->ref->ops->accumulate(streams->ref, expected, x, sizes[n]));
        EACH_STREAM(s, streams)
        {
            float *y = uniform(sizes[n], 2, -1, 1);
            OK(s->ops->accumulate(s, y, x, sizes[n]));
            assert_same_bits(y, expected, sizes[n]);
            dp_free(y);
        }
        dp_free(x);
        dp_free(expected);
    }
}

static void a_nan_stays_a_nan(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *both[] = {streams->ref, streams->tested[0]};
    elementwise *const ops[] = {relu, gelu, add, add_relu};
    float x[20], y[20], one[20];

    for (size_t i = 0; i < 20; i++) {
        x[i] = NAN;
        one[i] = 1;
    }
    for (size_t k = 0; k < DP_COUNT(both); k++) {
        for (size_t op = 0; op < DP_COUNT(ops); op++) {
            OK(ops[op](both[k], y, x, one, 20));
            for (size_t i = 0; i < 20; i++) {
                assert_true(isnan(y[i]));
            }
        }
    }
}

static void dropout_keeps_its_share_and_the_mean(void **state)
{
    const struct streams *streams = *state;
    const size_t count = 70000;
    float *x = zeros(count), *y = zeros(count);
    double mean = 0;
    size_t dropped = 0;

    for (size_t i = 0; i < count; i++) {
        x[i] = 1;
    }
    OK(dropout(streams->tested[0], y, x, NULL, count));
    for (size_t i = 0; i < count; i++) {
        dropped += y[i] == 0;
        mean += (double)y[i] / (double)count;
    }
    /* 21,000 of 70,000 expected; the standard deviation is sqrt(70000 0.3 0.7) = 121. */
    assert_in_range(dropped, 21000 - 600, 21000 + 600);
    assert_true(fabs(mean - 1) < 0.0125); /* 5 deviations of 0.0025 */
    dp_free(x);
    dp_free(y);
}

/* d sum(c f(x)) / dx by differences of the reference's forward, against its backward. */
static void gelu_backward_is_the_slope_of_forward(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *s = streams->ref;
    /* Differences over 2h err by h^2 f''' / 6 < 2e-4 and by roundings 1e-7 / h = 7e-6. */
    const float h = 1.0f / 64;

    for (int i = -32; i < 32; i++) {
        const float x = (float)i / 8;
        const float ends[2] = {x - h, x + h}, one = 1;
        float y[2], slope;
        OK(s->ops->gelu_forward(s, y, ends, 2));
        OK(s->ops->gelu_backward(s, &slope, &one, &x, 1));
        assert_true(fabs(((double)y[1] - (double)y[0]) / (2 * (double)h) - (double)slope) < 2e-4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero_and_copy_write_only_their_range),
        cmocka_unit_test(add_adds_in_place),
        cmocka_unit_test(scale_multiplies_also_in_place),
        cmocka_unit_test(blend_moves_towards_the_new_value),
        cmocka_unit_test(sum_tree_keeps_the_order_of_the_tree),
        cmocka_unit_test(sum_tree_is_the_documented_tree),
        cmocka_unit_test(the_sum_of_all_is_exact),
        cmocka_unit_test(block_squares_do_not_depend_on_how_an_array_is_cut),
        cmocka_unit_test(loading_scales_each_channel),
        cmocka_unit_test(elementwise_operations_equal_the_reference),
        cmocka_unit_test(accumulate_is_add),
        cmocka_unit_test(a_nan_stays_a_nan),
        cmocka_unit_test(dropout_keeps_its_share_and_the_mean),
        cmocka_unit_test(gelu_backward_is_the_slope_of_forward),
    };

    return run_reached_tests(tests, streams_open, streams_close);
}
