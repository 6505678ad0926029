/*
 * test_code_ops.c - the operations of compressors: those of `cpu` give the bits of `ref`, with one
 * and with two threads, and both do what kernels/ops.h says.
 */
#include "tests/arrays.h"

static const size_t sizes[] = {0, 1, 3, 15, 16, 17, 63, 64, 65, 1000, 70000};

static const enum dp_type types[] = {DP_TYPE_F16, DP_TYPE_BF16};

#define EACH_STREAM(s, streams)                                                                 \
    for (size_t nth = 0; nth < DP_COUNT((streams)->cpu) && ((s) = (streams)->cpu[nth]) != NULL; \
         nth++)

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
    static const float x[] = {1,     1.00048828125f, 1.00049f,       1.00146484375f, -65519,
                              65520, 1e-8f,          2.98023224e-8f, 3e-8f,          6.1e-5f,
                              -0.0f, 1e38f,          INFINITY};
    static const uint16_t halves[] = {0x3c00, 0x3c00, 0x3c01, 0x3c02, 0xfbff, 0x7c00, 0,
                                      0,      1,      0x03ff, 0x8000, 0x7c00, 0x7c00};
    static const float wide[] = {1.00390625f, 1.01171875f, 3.3961775e38f, INFINITY};
    static const uint16_t bfloats[] = {0x3f80, 0x3f82, 0x7f80, 0x7f80};
    struct dp_stream *both[] = {streams->ref, streams->cpu[0]};
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

static void casts_touch_their_range_alone(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(narrow_equals_the_reference_for_all_kinds_of_numbers),
        cmocka_unit_test(widen_then_narrow_gives_all_16_bits_back),
        cmocka_unit_test(narrow_rounds_to_the_nearest_even),
        cmocka_unit_test(casts_touch_their_range_alone),
    };

    return cmocka_run_group_tests_name("code_ops", tests, streams_open, streams_close);
}
