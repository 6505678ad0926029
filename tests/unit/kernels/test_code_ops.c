/*
 * test_code_ops.c - the operations of compressors: those of `cpu` give the bits of `ref`, with one
 * and with two threads, and both do what kernels/ops.h says.
 */
#include <float.h>

#include "tests/support/arrays.h"

static const size_t sizes[] = {0, 1, 3, 15, 16, 17, 63, 64, 65, 1000, 70000};

static const enum dp_type types[] = {DP_TYPE_F16, DP_TYPE_BF16};

#define EACH_STREAM(s, streams) \
    for (size_t nth = 0;        \
         nth < DP_COUNT((streams)->tested) && ((s) = (streams)->tested[nth]) != NULL; nth++)

static float float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* ---- narrow and widen ---- */

/* Everything a float can be, near all limits: bits in steps, and their neighbours. */
static float *all_kinds(size_t count)
{
    float *x = zeros(count);

    for (size_t i = 0; i < count; i++) {
        const uint32_t coarse = (uint32_t)(i / 4) << 13, near = (uint32_t)(i % 4) * 0x7ff;
        x[i] = i % 7 == 0 ? float_of(dp_random_u32(1, DP_RANDOM_TEST, 0, i))
                          : float_of(coarse + near + (i % 3 == 0 ? 1 : 0));
    }
    return x;
}

static void narrow_equals_the_reference_for_all_kinds_of_numbers(void **state)
{
    const struct streams *streams = *state;
    const size_t count = (size_t)4 << 19; /* all upper 19 bits */
    uint16_t *expected = dp_zalloc(count, sizeof(*expected)), *y = dp_zalloc(count, sizeof(*y));
    float *x = all_kinds(count);
    struct dp_stream *s;

    for (size_t t = 0; t < DP_COUNT(types); t++) {
        OK(streams->ref->ops->narrow(streams->ref, expected, x, count, types[t]));
        EACH_STREAM(s, streams)
        {
            OK(s->ops->narrow(s, y, x, count, types[t]));
            assert_memory_equal(y, expected, count * sizeof(*y));
        }
    }
    dp_free(x);
    dp_free(y);
    dp_free(expected);
}

static void widen_then_narrow_gives_all_16_bits_back(void **state)
{
    const struct streams *streams = *state;
    enum { ALL = 65536 };
    uint16_t *x = dp_zalloc(ALL, sizeof(*x)), *back = dp_zalloc(ALL, sizeof(*back));
    float *expected = zeros(ALL), *y = zeros(ALL);
    struct dp_stream *s;

    for (uint32_t i = 0; i < ALL; i++) {
        x[i] = (uint16_t)i;
    }
    for (size_t t = 0; t < DP_COUNT(types); t++) {
        OK(streams->ref->ops->widen(streams->ref, expected, x, ALL, types[t]));
        EACH_STREAM(s, streams)
        {
            OK(s->ops->widen(s, y, x, ALL, types[t]));
            assert_same_bits(y, expected, ALL);
            OK(s->ops->narrow(s, back, y, ALL, types[t]));
            for (uint32_t i = 0; i < ALL; i++) {
                assert_true(back[i] == i || isnan(y[i]));
            }
        }
    }
    dp_free(x);
    dp_free(back);
    dp_free(expected);
    dp_free(y);
}

/* By hand. */
static void narrow_rounds_to_the_nearest_even(void **state)
{
    const struct streams *streams = *state;
    const float x[] = {1,     1.00048828125f, 1.00049f,       1.00146484375f, -65519,
                       65520, 1e-8f,          2.98023224e-8f, 3e-8f,          6.1e-5f,
                       -0.0f, 1e38f,          INFINITY};
    static const uint16_t halves[] = {0x3c00, 0x3c00, 0x3c01, 0x3c02, 0xfbff, 0x7c00, 0,
                                      0,      1,      0x03ff, 0x8000, 0x7c00, 0x7c00};
    const float wide[] = {1.00390625f, 1.01171875f, 3.3961775e38f, INFINITY};
    static const uint16_t bfloats[] = {0x3f80, 0x3f82, 0x7f80, 0x7f80};
    struct dp_stream *both[] = {streams->ref, streams->tested[0]};
    uint16_t y[DP_COUNT(x)];

    for (size_t k = 0; k < DP_COUNT(both); k++) {
        OK(both[k]->ops->narrow(both[k], y, x, DP_COUNT(x), DP_TYPE_F16));
        for (size_t i = 0; i < DP_COUNT(x); i++) {
            assert_int_equal(y[i], halves[i]);
        }
        OK(both[k]->ops->narrow(both[k], y, wide, DP_COUNT(wide), DP_TYPE_BF16));
        for (size_t i = 0; i < DP_COUNT(wide); i++) {
            assert_int_equal(y[i], bfloats[i]);
        }
    }
}

static void casts_write_only_their_range(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *s;

    for (size_t n = 0; n < DP_COUNT(sizes); n++) {
        const size_t count = sizes[n];
        float *x = uniform(count + 1, 1, -1, 1);
        uint16_t *y = dp_zalloc(count + 1, sizeof(*y));
        EACH_STREAM(s, streams)
        {
            const float guard = x[count];
            y[count] = 0x1234;
            OK(s->ops->narrow(s, y, x, count, DP_TYPE_BF16));
            assert_int_equal(y[count], 0x1234);
            OK(s->ops->widen(s, x, y, count, DP_TYPE_BF16));
            assert_true(x[count] == guard);
        }
        dp_free(x);
        dp_free(y);
    }
}

/* ---- quantize ---- */

/* Smooth numbers of many sizes, block by block. */
static float *of_many_sizes(size_t count, uint32_t seed)
{
    float *x = uniform(count, seed, -1, 1);

    for (size_t i = 0; i < count; i++) {
        x[i] *= ldexpf(1, (int)(i / 100 % 60) - 40) * x[i];
    }
    return x;
}

/* Where `shift` is not 0, codes and numbers begin beside addresses and places that go together. */
static void check_quantize(const struct streams *streams, const float *x, size_t block,
                           size_t count, size_t shift)
{
    const struct dp_key key = {
        .seed = 7, .first = 4294967000u + shift, .what = DP_RANDOM_CODE, .step = 3};
    const size_t blocks = (count + block - 1) / block;
    int8_t *expected = dp_zalloc(count, 1), *codes = dp_zalloc(count + shift + 1, 1);
    int8_t *y = codes + shift;
    float *scales = zeros(blocks), *found = zeros(blocks), *numbers = zeros(count + shift);
    float *back = numbers + shift, *wanted = zeros(count);
    struct dp_stream *s;

    OK(streams->ref->ops->quantize(streams->ref, expected, scales, x, block, count, &key));
    OK(streams->ref->ops->dequantize(streams->ref, wanted, expected, scales, block, count));
    EACH_STREAM(s, streams)
    {
        memset(y, 99, count + 1);
        OK(s->ops->quantize(s, y, found, x, block, count, &key));
        assert_int_equal(y[count], 99);
        assert_memory_equal(y, expected, count);
        assert_same_bits(found, scales, blocks);
        OK(s->ops->dequantize(s, back, y, found, block, count));
        for (size_t i = 0; i < count; i++) {
            assert_true(back[i] == wanted[i] || (isnan(back[i]) && isnan(wanted[i])));
            /* A step up or down at most. */
            assert_true(!isfinite(x[i]) || isnan(back[i]) ||
                        fabsf(back[i] - x[i]) <= 1.0001f * scales[i / block] + 1.5e-36f);
        }
    }
    dp_free(wanted);
    dp_free(numbers);
    dp_free(found);
    dp_free(scales);
    dp_free(codes);
    dp_free(expected);
}

static void quantize_equals_the_reference(void **state)
{
    static const size_t blocks[] = {64, 256, 4096};

    for (size_t n = 0; n < DP_COUNT(sizes); n++) {
        for (size_t b = 0; b < DP_COUNT(blocks); b++) {
            float *x = of_many_sizes(sizes[n], 1);
            check_quantize(*state, x, blocks[b], sizes[n], 0);
            if (sizes[n] > 0) {
                check_quantize(*state, x + 1, blocks[b], sizes[n] - 1, 1);
                check_quantize(*state, x, blocks[b], sizes[n], 2);
            }
            for (size_t i = 50; i < sizes[n]; i += 500) { /* in some blocks */
                static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, 1e-42f, -0.0f};
                x[i] = odd[i / 500 % DP_COUNT(odd)];
            }
            check_quantize(*state, x, blocks[b], sizes[n], 0);
            dp_free(x);
        }
    }
}

/* The smallest scale is the smallest normal number. */
static void the_smallest_scale_is_that_of_the_reference(void **state)
{
    const float least = 127.0f * FLT_MIN;
    const float largest[] = {least, nextafterf(least, 0.0f), nextafterf(least, 1.0f)};

    for (size_t i = 0; i < DP_COUNT(largest); i++) {
        float *x = zeros(256);
        x[3] = -largest[i];
        x[70] = x[200] = largest[i];
        check_quantize(*state, x, 64, 256, 0);
        dp_free(x);
    }
}

static void a_block_with_a_nan_becomes_nan_and_no_other(void **state)
{
    const struct streams *streams = *state;
    const struct dp_key key = {.seed = 1};
    struct dp_stream *both[] = {streams->ref, streams->tested[0]};
    int8_t y[192];
    float scales[3], back[192];

    for (size_t k = 0; k < DP_COUNT(both); k++) {
        float *x = uniform(192, 1, -1, 1);
        x[70] = NAN;
        x[190] = -INFINITY;
        OK(both[k]->ops->quantize(both[k], y, scales, x, 64, 192, &key));
        OK(both[k]->ops->dequantize(both[k], back, y, scales, 64, 192));
        for (size_t i = 0; i < 192; i++) {
            assert_true(isnan(back[i]) == (i >= 64));
        }
        dp_free(x);
    }
}

/* The mean over many steps is the number itself: the standard deviation of a rounding is at most
 * half a step, that of the mean of 4000 is 0.5 / sqrt(4000) = 0.0079 steps. */
static void quantize_is_right_in_the_mean(void **state)
{
    enum { TURNS = 4000, COUNT = 64 };
    const struct streams *streams = *state;
    struct dp_stream *s = streams->tested[0];
    float *x = uniform(COUNT, 1, -1, 1), scale;
    double mean[COUNT] = {0};
    int8_t y[COUNT];

    x[0] = 1; /* the scale is 1 / 127 */
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        const struct dp_key key = {.seed = 7, .what = DP_RANDOM_CODE, .step = turn};
        OK(s->ops->quantize(s, y, &scale, x, COUNT, COUNT, &key));
        for (size_t i = 0; i < COUNT; i++) {
            mean[i] += (double)y[i] / TURNS;
        }
    }
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(fabs(mean[i] - 127 * (double)x[i]) < 5 * 0.0079);
    }
    dp_free(x);
}

/* ---- signs ---- */

static void check_signs(const struct streams *streams, const float *x, size_t count)
{
    const size_t blocks = (count + DP_SIGNS - 1) / DP_SIGNS;
    struct dp_signs *expected = dp_zalloc(blocks, sizeof(*expected));
    struct dp_signs *signs = dp_zalloc(blocks, sizeof(*signs));
    float *first = zeros(blocks * DP_SIGN_SCALES), *rest = copy_of(x, count);
    float *y = zeros(count + DP_BLOCK);
    struct dp_stream *s;

    OK(streams->ref->ops->take_signs(streams->ref, expected, rest, count));
    dp_free(rest);
    EACH_STREAM(s, streams)
    {
        rest = copy_of(x, count);
        OK(s->ops->take_signs(s, signs, rest, count));
        OK(s->ops->put_signs(s, y, signs, count));
        for (size_t b = 0; b < blocks; b++) {
            assert_memory_equal(signs[b].words, expected[b].words, sizeof(signs[b].words));
        }
        for (size_t b = 0; b < blocks * DP_SIGN_SCALES; b++) {
            const float scale = signs[b / DP_SIGN_SCALES].scale[b % DP_SIGN_SCALES];
            /* Two sums of doubles, rounded to float: one rounding apart at most. */
            assert_near(&scale, &expected[b / DP_SIGN_SCALES].scale[b % DP_SIGN_SCALES], 1, 0,
                        1.3e-7);
            first[b] = nth == 0 ? scale : first[b];
            assert_true(scale == first[b]); /* whatever the number of threads */
        }
        for (size_t i = 0; i < count; i++) {
            const float scale = signs[i / DP_SIGNS].scale[i % DP_SIGNS / DP_BLOCK];
            assert_true(y[i] == (signbit(x[i]) ? -scale : scale));
            assert_true(rest[i] == x[i] - y[i]);
        }
        for (size_t i = count; i < count + DP_BLOCK; i++) {
            assert_true(y[i] == 0.0f); /* nothing after them */
        }
        OK(streams->ref->ops->put_signs(streams->ref, rest, signs, count));
        assert_same_bits(y, rest, count);
        dp_free(rest);
    }
    dp_free(y);
    dp_free(first);
    dp_free(signs);
    dp_free(expected);
}

static void signs_plus_the_rest_are_the_number(void **state)
{
    static const size_t counts[] = {0, 1, 31, 32, 33, 1000, 1023, 1024, 1025, 70016};

    for (size_t n = 0; n < DP_COUNT(counts); n++) {
        float *x = of_many_sizes(counts[n], 1);
        check_signs(*state, x, counts[n]);
        for (size_t i = 0; i < counts[n]; i++) {
            x[i] = i % 3 == 0 ? 3e38f : i % 3 == 1 ? -3e38f : -0.0f; /* the sum is no float */
        }
        check_signs(*state, x, counts[n]);
        dp_free(x);
    }
}

static void a_nan_makes_the_scale_of_its_block_nan(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *both[] = {streams->ref, streams->tested[0]};
    struct dp_signs signs[2];

    for (size_t k = 0; k < DP_COUNT(both); k++) {
        float *x = uniform((size_t)2 * DP_SIGNS, 1, -1, 1);
        x[DP_SIGNS + 69] = NAN;
        x[2 * DP_SIGNS - 1] = -INFINITY;
        OK(both[k]->ops->take_signs(both[k], signs, x, (size_t)2 * DP_SIGNS));
        for (size_t b = 0; b < DP_SIGN_SCALES; b++) {
            assert_true(fabsf(signs[0].scale[b] - 0.5f) < 0.2f);
            assert_true(isnan(signs[1].scale[b]) == (b == 1));
            assert_true(isinf(signs[1].scale[b]) == (b + 1 == DP_SIGN_SCALES));
        }
        dp_free(x);
    }
}

/* ---- the largest ---- */

static void check_largest(const struct streams *streams, const float *x, size_t k, size_t count)
{
    uint32_t *expected = dp_zalloc(k, sizeof(*expected)), *index = dp_zalloc(k, sizeof(*index));
    float *wanted = zeros(k), *value = zeros(k), *left = copy_of(x, count);
    struct dp_stream *s;

    OK(streams->ref->ops->take_largest(streams->ref, expected, wanted, left, k, count));
    EACH_STREAM(s, streams)
    {
        float *rest = copy_of(x, count);
        OK(s->ops->take_largest(s, index, value, rest, k, count));
        assert_memory_equal(index, expected, k * sizeof(*index));
        assert_same_bits(value, wanted, k);
        assert_same_bits(rest, left, count);
        OK(s->ops->add_at(s, rest, index, value, k)); /* together they are what came */
        for (size_t i = 0; i < count; i++) {
            assert_true(rest[i] == x[i] || isnan(x[i]));
        }
        OK(s->ops->take_at(s, value, rest, index, k));
        assert_same_bits(value, wanted, k);
        assert_same_bits(rest, left, count);
        dp_free(rest);
    }
    dp_free(left);
    dp_free(value);
    dp_free(wanted);
    dp_free(index);
    dp_free(expected);
}

static void the_largest_are_those_of_the_reference(void **state)
{
    static const size_t counts[] = {0, 1, 5, 64, 1000, 40000};

    for (size_t n = 0; n < DP_COUNT(counts); n++) {
        const size_t count = counts[n];
        float *x = of_many_sizes(count, 1), *same = zeros(count), *near = zeros(count);
        for (size_t i = 0; i < count; i++) {
            same[i] = i % 5 == 0 ? -2.0f : i % 5 == 1 ? 2.0f : (float)(i % 3); /* many are equal */
            near[i] = 1.0f + (float)(i * 7919 % 1500) * FLT_EPSILON; /* in their last bits */
        }
        for (size_t k = 0; k <= count; k += count / 4 + 1) {
            check_largest(*state, x, k, count);
            check_largest(*state, same, k, count);
            check_largest(*state, near, k, count);
        }
        check_largest(*state, x, count, count);
        check_largest(*state, same, count, count);
        dp_free(near);
        dp_free(same);
        dp_free(x);
    }
}

/* By hand. */
static void a_nan_comes_first_and_of_equal_ones_the_first(void **state)
{
    static const float x[] = {1, -3, 2, NAN, 3, -INFINITY, 3, 0};
    static const uint32_t three[] = {1, 3, 5}, four[] = {1, 3, 4, 5};
    const struct streams *streams = *state;
    struct dp_stream *both[] = {streams->ref, streams->tested[0]};

    for (size_t k = 0; k < DP_COUNT(both); k++) {
        uint32_t index[4];
        float value[4], rest[8];
        memcpy(rest, x, sizeof(x));
        OK(both[k]->ops->take_largest(both[k], index, value, rest, 3, 8));
        assert_memory_equal(index, three, sizeof(three));
        assert_true(value[0] == -3 && isnan(value[1]) && value[2] == -INFINITY);
        assert_true(rest[1] == 0 && rest[3] == 0 && rest[4] == 3 && rest[6] == 3);
        memcpy(rest, x, sizeof(x));
        OK(both[k]->ops->take_largest(both[k], index, value, rest, 4, 8));
        assert_memory_equal(index, four, sizeof(four));
    }
}

/* One place in each stretch; over many steps each place comes up as often as the others: of 4000
 * steps a fifth, 800, with a deviation of sqrt(4000 0.2 0.8) = 25. */
static void sample_takes_every_place_equally_often(void **state)
{
    enum { COUNT = 35, K = 7, TURNS = 4000 };
    const struct streams *streams = *state;
    struct dp_stream *both[] = {streams->ref, streams->tested[0]};

    for (size_t d = 0; d < DP_COUNT(both); d++) {
        size_t found[COUNT] = {0};
        for (uint32_t turn = 0; turn < TURNS; turn++) {
            const struct dp_key key = {.seed = 3, .what = DP_RANDOM_CODE, .step = turn};
            uint32_t index[K];
            OK(both[d]->ops->sample(both[d], index, K, COUNT, &key));
            for (size_t i = 0; i < K; i++) {
                assert_in_range(index[i], 5 * i, 5 * i + 4);
                found[index[i]]++;
            }
        }
        for (size_t i = 0; i < COUNT; i++) {
            assert_in_range(found[i], 800 - 5 * 25, 800 + 5 * 25);
        }
    }
}

static void scale_add_is_momentum(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *s;

    for (size_t n = 0; n < DP_COUNT(sizes); n++) {
        float *x = uniform(sizes[n], 1, -1, 1), *expected = uniform(sizes[n], 2, -1, 1);
        OK(streams->ref->ops->scale_add(streams->ref, expected, x, 0.9f, sizes[n]));
        EACH_STREAM(s, streams)
        {
            float *y = uniform(sizes[n], 2, -1, 1);
            OK(s->ops->scale_add(s, y, x, 0.9f, sizes[n]));
            assert_same_bits(y, expected, sizes[n]);
            dp_free(y);
        }
        dp_free(x);
        dp_free(expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(narrow_equals_the_reference_for_all_kinds_of_numbers),
        cmocka_unit_test(widen_then_narrow_gives_all_16_bits_back),
        cmocka_unit_test(narrow_rounds_to_the_nearest_even),
        cmocka_unit_test(casts_write_only_their_range),
        cmocka_unit_test(quantize_equals_the_reference),
        cmocka_unit_test(the_smallest_scale_is_that_of_the_reference),
        cmocka_unit_test(a_block_with_a_nan_becomes_nan_and_no_other),
        cmocka_unit_test(quantize_is_right_in_the_mean),
        cmocka_unit_test(signs_plus_the_rest_are_the_number),
        cmocka_unit_test(a_nan_makes_the_scale_of_its_block_nan),
        cmocka_unit_test(the_largest_are_those_of_the_reference),
        cmocka_unit_test(a_nan_comes_first_and_of_equal_ones_the_first),
        cmocka_unit_test(sample_takes_every_place_equally_often),
        cmocka_unit_test(scale_add_is_momentum),
    };

    return run_reached_tests(tests, streams_open, streams_close);
}
