/*
 * test_fold.c - convolutions of few channels that are folded first, and those that cublas computes
 * since it is faster, equal the reference. tests/cuda_on_host/costs.h makes these forms the
 * fastest; on a GPU it is whatever was measured.
 */
#include "tests/support/conv_work.h"

enum { FOLDED = 4, BY_CUBLAS = 3 }; /* conv_cuda.h */

static const struct dp_window windows[] = {
    {.in_h = 10,
     .in_w = 9,
     .in_c = 3,
     .out_c = 8,
     .kernel_h = 7,
     .kernel_w = 7,
     .stride = 2,
     .padding = 3},
    {.in_h = 9,
     .in_w = 6,
     .in_c = 3,
     .out_c = 8,
     .kernel_h = 3,
     .kernel_w = 2,
     .stride = 2,
     .padding = 1},
    {.in_h = 8, .in_w = 8, .in_c = 3, .out_c = 16, .kernel_h = 4, .kernel_w = 4, .stride = 4},
    {.in_h = 11,
     .in_w = 8,
     .in_c = 2,
     .out_c = 8,
     .kernel_h = 5,
     .kernel_w = 4,
     .stride = 3,
     .padding = 2},
    {.in_h = 7, .in_w = 5, .in_c = 1, .out_c = 8, .kernel_h = 1, .kernel_w = 3, .stride = 2},
};

/* A GPU measures for a second at each shape. */
static bool is_quick(void)
{
    return getenv("DP_TEST_QUICK") != NULL;
}

/* How many choices of convolutions are at least `least` in their first number, of how many. */
static int count(const struct dp_algo_choices *choices, int least, int *all)
{
    struct dp_algo_choice choice;
    size_t at = 0;
    int found = 0;

    *all = 0;
    while (dp_algo_choices_next(choices, &at, &choice)) {
        if (strstr(choice.name, "\nconvolution") != NULL) {
            *all += 1;
            found += strtol(choice.value, NULL, 10) >= least ? 1 : 0;
        }
    }
    return found;
}

/* Measures and computes twice: then the choices are known. `least`: of how many choices. */
static void check(enum dp_type type, const struct dp_window *w, size_t n, int least, int wanted)
{
    const double step = type == DP_TYPE_F32 ? 0 : type == DP_TYPE_BF16 ? 0x1p-8 : 0x1p-11;
    struct dp_stream *ref = typed_stream("ref", type);
    struct work truth = work_open(ref, w, 2);
    const size_t pixels = truth.rows * truth.w.out_h * truth.w.out_w;
    const size_t taps = w->kernel_h * w->kernel_w;
    struct dp_algo_choices *choices = NULL;

    truth.bias = n % 2 == 0;
    truth.relu = n % 3 != 0;
    truth.keep = n % 2 != 0 ? 1.0f : 0.0f;
    compute(ref, &truth);
    OK(dp_algo_choices_create("here", &choices));
    for (int again = 0; again < 2; again++) {
        struct dp_stream *s = typed_stream(tested_device(), type);
        struct work k = work_open(ref, w, 2);
        int all;
        s->algo_choices = choices;
        k.bias = truth.bias;
        k.relu = truth.relu;
        k.keep = truth.keep;
        OK(prepare(s, &k));
        if (libraries_on_host()) {
            assert_int_equal(count(choices, least, &all), wanted);
            assert_int_equal(all, 3);
        }
        compute(s, &k);
        assert_typed(ref, k.y, truth.y, k.ys,
                     near_sum(taps * w->in_c) + rounding_before_bias(ref, &truth));
        assert_typed(ref, k.dx, truth.dx, k.xs, near_sum(taps * w->out_c));
        assert_near(k.dw, truth.dw, k.ws, near_sum(pixels) + step, step);
        work_close(&k);
        stream_close(s);
        dp_algo_choices_freeze(choices);
    }
    dp_algo_choices_destroy(choices);
    work_close(&truth);
    stream_close(ref);
}

/* Forward and the gradient of weights; that of images is not folded. */
static void folded_convolutions_equal_the_reference(void **state)
{
    (void)state;

    assert_int_equal(setenv("DP_HOST_SLOW", "few", 1), 0);
    for (size_t n = 0; n < (is_quick() ? 1 : 2 * DP_COUNT(windows)); n++) {
        check(DP_TYPE_BF16, &windows[n % DP_COUNT(windows)], n, FOLDED, 2);
        check(DP_TYPE_F16, &windows[n % DP_COUNT(windows)], n, FOLDED, 2);
    }
    assert_int_equal(unsetenv("DP_HOST_SLOW"), 0);
}

static void convolutions_are_not_folded_where_that_is_slower(void **state)
{
    (void)state;

    check(DP_TYPE_BF16, &windows[0], 0, FOLDED, 0);
}

/* In float32 alone, where few engines of cuDNN are allowed. */
static void cublas_computes_what_it_does_faster(void **state)
{
    (void)state;

    assert_int_equal(setenv("DP_HOST_SLOW", "cudnn", 1), 0);
    for (size_t n = 0; n < (is_quick() ? 1 : DP_COUNT(windows)); n++) {
        check(DP_TYPE_F32, &windows[n], n, BY_CUBLAS, 3);
        check(DP_TYPE_BF16, &windows[n], n, BY_CUBLAS, 0);
    }
    assert_int_equal(unsetenv("DP_HOST_SLOW"), 0);
    check(DP_TYPE_F32, &windows[0], 0, BY_CUBLAS, 0);
}

static int nothing_is_left(void **state)
{
    (void)state;
    return (int)blocks_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folded_convolutions_equal_the_reference),
        cmocka_unit_test(convolutions_are_not_folded_where_that_is_slower),
        cmocka_unit_test(cublas_computes_what_it_does_faster),
    };
    const struct dp_device *device = NULL;

    if (dp_device_find(tested_device_or("ref"), &device) != DP_OK || device->find_conv == NULL) {
        puts("skipped: it is about the engines of a GPU");
        return 77;
    }
    return run_reached_tests(tests, NULL, nothing_is_left);
}
