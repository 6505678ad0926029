/*
 * test_winograd.c - convolutions by tiles are those of the definition but for rounding, for each
 * instruction set, on any number of threads.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "kernels/cpu/winograd/code.h"
#include "kernels/cpu/winograd/winograd.h"
#include "kernels/ref/window.h"
#include "tests/support/tiles/conv_shape.h"

enum { GUARD = 64, MARK = 0x5a };

/* Of the root of the mean square of the exact values: here gradients of weights are at 2.3e-5 at
 * most, pixels at 8e-6. */
static const double bound = 3e-5;

static const struct shape shapes[] = {
    {4, 14, 14, 32, 64, 5, 5, 1, 2}, /* lenet */
    {2, 28, 28, 16, 16, 3, 3, 1, 1}, /* one vector of channels, whole tiles */
    {9, 7, 7, 64, 32, 3, 3, 1, 1},   /* tiles of which a part lies outside; several blocks */
    {3, 9, 13, 48, 16, 3, 3, 1, 0},  /* not square; vectors by two and one left */
    {2, 8, 5, 16, 48, 5, 5, 1, 4},   /* as much padding as there can be */
    {1, 5, 6, 32, 16, 5, 5, 1, 0},   /* fewer pixels than a tile has */
    {5, 1, 1, 16, 32, 3, 3, 1, 1},   /* one pixel */
    {1, 6, 6, 256, 16, 3, 3, 1, 2},  /* as many channels as there can be */
};

/* From -1 to 1. */
static float *numbers(size_t count, uint32_t seed)
{
    float *x = dp_mem_arena(DP_MEM_OTHER, count * sizeof(*x));

    assert_non_null(x);
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) / (float)(1u << 23) - 1.0f;
    }
    return x;
}

/* The arrays of one convolution, its sums by the definition, and what is computed. */
struct work {
    struct dp_window w;
    size_t rows, xs, ys, ws;
    float *x, *y, *weights, *bias;
    double *exact_x, *exact_y, *exact_weights, *exact_bias;
};

static struct work work_open(const struct shape *s)
{
    struct work k = {.w = window_of(s), .rows = s->rows};

    k.xs = k.rows * dp_window_in(&k.w);
    k.ys = k.rows * dp_window_out(&k.w);
    k.ws = dp_window_weights(&k.w);
    k.x = numbers(k.xs, 1);
    k.y = numbers(k.ys, 2);
    k.weights = numbers(k.ws, 3);
    k.bias = numbers(s->out_c, 4);
    k.exact_x = dp_zalloc(k.xs, sizeof(double));
    k.exact_y = dp_zalloc(k.ys, sizeof(double));
    k.exact_weights = dp_zalloc(k.ws, sizeof(double));
    k.exact_bias = dp_zalloc(s->out_c, sizeof(double));
    return k;
}

static void work_close(struct work *k)
{
    void *const arrays[] = {k->x,       k->y,       k->weights,       k->bias,
                            k->exact_x, k->exact_y, k->exact_weights, k->exact_bias};

    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++) {
        dp_free(arrays[i]);
    }
}

/* What one element of y, with its gradient, is made of and adds to. */
static void add_element(struct work *k, size_t i)
{
    const struct dp_window *w = &k->w;
    const size_t o = i % w->out_c, ox = i / w->out_c % w->out_w;
    const size_t oy = i / w->out_c / w->out_w % w->out_h;
    const size_t image = i / w->out_c / w->out_w / w->out_h;

    k->exact_y[i] = (double)k->bias[o];
    k->exact_bias[o] += (double)k->y[i];
    for (size_t at = 0; at < w->kernel_h * w->kernel_w; at++) {
        const size_t y = oy + at / w->kernel_w - w->padding;
        const size_t x = ox + at % w->kernel_w - w->padding;
        if (y >= w->in_h || x >= w->in_w) {
            continue;
        }
        const size_t pixel = ((image * w->in_h + y) * w->in_w + x) * w->in_c;
        const size_t weight = (o * w->kernel_h * w->kernel_w + at) * w->in_c;
        for (size_t c = 0; c < w->in_c; c++) {
            k->exact_y[i] += (double)k->x[pixel + c] * (double)k->weights[weight + c];
            k->exact_x[pixel + c] += (double)k->y[i] * (double)k->weights[weight + c];
            k->exact_weights[weight + c] += (double)k->y[i] * (double)k->x[pixel + c];
        }
    }
}

static void check_close(const char *what, const struct work *k, const float *got,
                        const double *exact, size_t count, double before)
{
    double squares = 0, worst = 0;

    for (size_t i = 0; i < count; i++) {
        squares += exact[i] * exact[i];
        worst = fmax(worst, fabs((double)got[i] - before - exact[i]));
        worst = isnan(got[i]) ? (double)INFINITY : worst;
    }
    if (!(worst <= bound * sqrt(squares / (double)count))) {
        fail_msg("%s of %zux%zux%zu by %zux%zu: off by %.3g, of %.3g", what, k->w.in_h, k->w.in_w,
                 k->w.in_c, k->w.kernel_h, k->w.kernel_w, worst, sqrt(squares / (double)count));
    }
}

/* An array between guards, filled with a number. */
static float *guarded(size_t count, float fill)
{
    char *block = dp_mem_arena(DP_MEM_OTHER, count * sizeof(float) + (size_t)2 * GUARD);
    float *array = (float *)(void *)(block + GUARD);

    assert_non_null(block);
    memset(block, MARK, count * sizeof(float) + (size_t)2 * GUARD);
    for (size_t i = 0; i < count; i++) {
        array[i] = fill;
    }
    return array;
}

static void release(float *array, size_t count)
{
    char *block = (char *)array - GUARD;

    for (size_t i = 0; i < GUARD; i++) {
        assert_int_equal(block[i], MARK);
        assert_int_equal(block[GUARD + count * sizeof(float) + i], MARK);
    }
    dp_free(block);
}

static void run(const struct dp_winograd *call, int threads)
{
    struct dp_winograd mine = *call;
    const size_t floats = dp_winograd_bytes(call->w, call->use, threads) / sizeof(float);

    mine.scratch = guarded(floats, NAN);
    dp_winograd_run(&mine, threads);
    release(mine.scratch, floats);
}

static struct dp_winograd call_of(const struct work *k, const struct dp_winograd_code *code,
                                  unsigned use)
{
    return (struct dp_winograd){.w = &k->w,
                                .code = code,
                                .rows = k->rows,
                                .use = use,
                                .x = k->x,
                                .y = k->y,
                                .weights = k->weights};
}

static void check_work(struct work *k, const struct dp_winograd_code *code, int threads)
{
    float *y = guarded(k->ys, NAN), *x = guarded(k->xs, NAN);
    float *weights = guarded(k->ws, NAN), *bias = guarded(k->w.out_c, NAN);
    struct dp_winograd call = call_of(k, code, DP_CONV_FORWARD);

    call.y = y;
    call.bias = k->bias;
    run(&call, threads);
    check_close("the result", k, y, k->exact_y, k->ys, 0);
    call = call_of(k, code, DP_CONV_BACKWARD_DATA);
    call.x = x;
    run(&call, threads);
    check_close("the gradient of x", k, x, k->exact_x, k->xs, 0);
    call = call_of(k, code, DP_CONV_BACKWARD_WEIGHTS);
    call.weights = weights;
    call.bias = bias;
    run(&call, threads);
    check_close("the gradient of weights", k, weights, k->exact_weights, k->ws, 0);
    check_close("the gradient of biases", k, bias, k->exact_bias, k->w.out_c, 0);
    for (size_t i = 0; i < k->ws; i++) {
        weights[i] = 2;
    }
    call.adds = true;
    call.bias = NULL;
    run(&call, threads);
    check_close("the sum with what was there", k, weights, k->exact_weights, k->ws, 2);
    release(bias, k->w.out_c);
    release(weights, k->ws);
    release(x, k->xs);
    release(y, k->ys);
}

static void check_all(const struct dp_winograd_code *code)
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct work k = work_open(&shapes[i]);
        assert_true(dp_winograd_can(&k.w));
        for (size_t e = 0; e < k.ys; e++) {
            add_element(&k, e);
        }
        for (int threads = 1; threads <= 3; threads++) {
            check_work(&k, code, threads);
        }
        work_close(&k);
    }
}

static void with_avx512_it_is_the_definition(void **state)
{
    (void)state;
#if DP_WINOGRAD_CODE
    if (__builtin_cpu_supports("avx512bw") != 0) {
        check_all(&dp_winograd_avx512);
        return;
    }
#endif
    skip();
}

static void with_avx2_it_is_the_definition(void **state)
{
    (void)state;
#if DP_WINOGRAD_CODE
    if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0) {
        check_all(&dp_winograd_avx2);
        return;
    }
#endif
    skip();
}

static void pixels_do_not_depend_on_threads_or_on_other_rows(void **state)
{
    struct work k = work_open(&shapes[2]);
    float *all = guarded(k.ys, NAN), *one = guarded(k.ys / k.rows, NAN);
    struct dp_winograd call = call_of(&k, NULL, DP_CONV_FORWARD);
    const size_t last = k.rows - 1;
    (void)state;

    if (!dp_winograd_can(&k.w)) {
        skip();
    }
    call.y = all;
    run(&call, 3);
    call.rows = 1;
    call.x = k.x + last * dp_window_in(&k.w);
    call.y = one;
    run(&call, 1);
    assert_memory_equal(one, all + last * dp_window_out(&k.w), k.ys / k.rows * sizeof(float));
    release(one, k.ys / k.rows);
    release(all, k.ys);
    work_close(&k);
}

static void other_convolutions_are_left_to_others(void **state)
{
    const struct dp_window good = window_of(&shapes[0]);
    struct dp_window w = good;
    const bool here = dp_winograd_can(&good);
    (void)state;

    w.stride = 2;
    assert_false(dp_winograd_can(&w));
    w = good;
    w.groups = 2;
    assert_false(dp_winograd_can(&w));
    w = good;
    w.in_c = 24;
    assert_false(dp_winograd_can(&w));
    w = good;
    w.out_c = 272;
    assert_false(dp_winograd_can(&w));
    w = good;
    w.kernel_w = 3;
    assert_false(dp_winograd_can(&w));
    w = good;
    w.kernel_h = w.kernel_w = 1;
    assert_false(dp_winograd_can(&w));
    w = good;
    w.padding = 5;
    assert_false(dp_winograd_can(&w));
    w.padding = 4;
    assert_true(dp_winograd_can(&w) == here);
}

static void the_share_of_products_is_that_of_tiles(void **state)
{
    const struct dp_window lenet = window_of(&shapes[0]), small = window_of(&shapes[2]);
    (void)state;

    assert_true(fabs(dp_winograd_share(&lenet) - 36.0 / 100) < 1e-12);
    assert_true(fabs(dp_winograd_share(&small) - 4 * 36.0 / (49 * 9)) < 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_avx512_it_is_the_definition),
        cmocka_unit_test(with_avx2_it_is_the_definition),
        cmocka_unit_test(pixels_do_not_depend_on_threads_or_on_other_rows),
        cmocka_unit_test(other_convolutions_are_left_to_others),
        cmocka_unit_test(the_share_of_products_is_that_of_tiles),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
