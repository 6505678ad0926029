/*
 * test_prepared.c - what oneDNN prepares for device cpu: it leaves the threads of others alone, and
 * has products without a bias, and without rows.
 */
#include "tests/support/arrays.h"

#if DP_HAVE_ONEDNN

#include "kernels/cpu/bfloat.h"
#include "kernels/cpu/mixed.h"
#include "kernels/cpu/onednn/prepared_onednn.h"

enum { ROWS = 3, IN = 32, OUT = 48, OTHERS = 3 /* threads */ };

/* A stream of bfloats, NULL where the processor has none. */
static struct dp_stream *narrow_stream(void)
{
    struct dp_stream *s = dp_cpu_has_bf16() ? stream_on("cpu", 1) : NULL;

    if (s != NULL) {
        dp_stream_set_type(s, DP_TYPE_BF16);
    }
    return s;
}

static uint16_t *bfloats(size_t count, uint32_t seed)
{
    uint16_t *x = dp_zalloc(count, sizeof(*x));
    float *wide = uniform(count, seed, -1, 1);

    for (size_t i = 0; i < count; i++) {
        x[i] = dp_bfloat_of(wide[i]);
    }
    dp_free(wide);
    return x;
}

static void check_threads(void)
{
    assert_int_equal(dp_prepared_threads(OTHERS), OTHERS);
}

static void others_have_as_many_threads_as_before(void **state)
{
    const struct dp_window w = {8, 8, 16, 8, 8, 16, 3, 3, 1, 1, 0};
    const size_t pixels = (size_t)ROWS * 8 * 8 * 16;
    const int before = dp_prepared_threads(OTHERS);
    struct dp_stream *s = stream_on("cpu", 1);
    float *x = zeros(pixels), *y = zeros(pixels), *weights = zeros((size_t)3 * 3 * 16 * 16);
    (void)state;

    assert_int_equal(s->ops->conv_prepare(s, &w, ROWS, DP_CONV_FORWARD), DP_OK);
    check_threads();
    assert_int_equal(s->ops->conv_forward(s, y, x, weights, NULL, &w, ROWS, DP_ACT_NONE), DP_OK);
    check_threads();
    stream_close(s);
    s = narrow_stream();
    if (s != NULL) {
        assert_int_equal(s->ops->dense_prepare(s, ROWS, IN, OUT, DP_DENSE_BACKWARD_DATA), DP_OK);
        check_threads();
        assert_int_equal(s->ops->dense_backward_data(s, x, y, weights, ROWS, IN, OUT), DP_OK);
        check_threads();
        stream_close(s);
    }
    (void)dp_prepared_threads(before);
    dp_free(weights);
    dp_free(y);
    dp_free(x);
}

/* A bias of zeros changes nothing. */
static void a_product_of_bfloats_may_lack_a_bias(void **state)
{
    const size_t count = (size_t)ROWS * OUT;
    struct dp_stream *s = narrow_stream();
    uint16_t *x = bfloats((size_t)ROWS * IN, 1), *w = bfloats((size_t)IN * OUT, 2);
    uint16_t *without = dp_zalloc(count, sizeof(*without)), *y = dp_zalloc(count, sizeof(*y));
    float *b = zeros(OUT);
    (void)state;

    if (s != NULL) {
        OK(s->ops->dense_prepare(s, ROWS, IN, OUT, DP_DENSE_FORWARD));
        OK(s->ops->dense_forward(s, without, x, w, NULL, ROWS, IN, OUT, DP_ACT_NONE));
        OK(s->ops->dense_prepare(s, ROWS, IN, OUT, DP_DENSE_FORWARD | DP_DENSE_BIAS));
        OK(s->ops->dense_forward(s, y, x, w, b, ROWS, IN, OUT, DP_ACT_NONE));
        assert_memory_equal(y, without, count * sizeof(*y));
        assert_true(y[0] != 0);
        stream_close(s);
    }
    dp_free(b);
    dp_free(y);
    dp_free(without);
    dp_free(w);
    dp_free(x);
}

static void the_gradient_of_no_rows_is_what_is_kept(void **state)
{
    struct dp_stream *s = narrow_stream();
    uint16_t *none = bfloats(IN + OUT, 1);
    float *dw = uniform((size_t)IN * OUT, 2, 1, 2), *before = copy_of(dw, (size_t)IN * OUT);
    (void)state;

    if (s != NULL) {
        assert_int_equal(s->ops->dense_prepare(s, 0, IN, OUT, DP_DENSE_BACKWARD_WEIGHTS), DP_OK);
        assert_int_equal(s->ops->dense_backward_weights(s, dw, none, none, 0, IN, OUT, 1), DP_OK);
        assert_same_bits(dw, before, (size_t)IN * OUT);
        assert_int_equal(s->ops->dense_backward_weights(s, dw, none, none, 0, IN, OUT, 0), DP_OK);
        for (size_t i = 0; i < (size_t)IN * OUT; i++) {
            assert_true(dw[i] == 0.0f);
        }
        stream_close(s);
    }
    dp_free(before);
    dp_free(dw);
    dp_free(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_have_as_many_threads_as_before),
        cmocka_unit_test(a_product_of_bfloats_may_lack_a_bias),
        cmocka_unit_test(the_gradient_of_no_rows_is_what_is_kept),
    };

    return run_reached_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    print_message("skipped: built without oneDNN\n");
    return 77;
}

#endif
