/*
 * test_conv_weights_amx.c - the gradient of weights by AMX is the sum that it should be, exactly:
 * of small integers, which neither bfloat16 nor float32 rounds.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS, in memory_end.h */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/amx/amx.h"
#include "kernels/cpu/amx/conv_weights_amx.h"
#include "kernels/ref/window.h"
#include "tests/support/memory/guarded.h"
#include "tests/support/memory/memory_end.h"
#include "tests/support/tiles/conv_shape.h"

static const struct shape shapes[] = {
    {4, 14, 14, 32, 64, 5, 5, 1, 2}, /* lenet */
    {3, 28, 28, 1, 32, 5, 5, 1, 2},  /* positions as rows of a tile */
    {2, 28, 28, 16, 16, 3, 3, 1, 1}, /* an odd number of sets, and of blocks */
    {2, 28, 28, 16, 32, 3, 3, 2, 1}, /* planes of remainders */
    {3, 14, 14, 32, 64, 1, 1, 2, 0}, /* a plane that no position needs */
    {9, 7, 7, 64, 64, 3, 3, 1, 1},   /* more than one image at a time */
    {2, 30, 31, 3, 20, 7, 7, 2, 3},  /* few channels and a stride; channels that fill no tile */
    {2, 9, 11, 40, 24, 3, 5, 1, 1},  /* neither square nor a multiple of anything */
    {1, 12, 12, 17, 33, 4, 2, 3, 1}, /* a stride that leaves pixels out */
    {1, 5, 5, 15, 1, 5, 5, 1, 0},    /* one pixel */
    {2, 6, 40, 2, 17, 1, 16, 1, 0},  /* as many positions as a tile has rows */
    {1, 3, 3, 130, 18, 3, 3, 1, 1},  /* more channels than a vector has */
    {40, 2, 3, 700, 18, 1, 1, 1, 0}, /* a step that is larger than the cache's part */
};

/* Integers from -7 to 7, as bfloats, after which memory ends. */
static uint16_t *numbers(struct memory_end *end, size_t count, uint32_t seed)
{
    uint16_t *x = memory_end(end, count * sizeof(*x));

    for (size_t i = 0; i < count; i++) {
        union {
            float number;
            uint32_t bits;
        } value;
        seed = seed * 1664525u + 1013904223u;
        value.number = (float)((int)(seed >> 16) % 15 - 7);
        x[i] = (uint16_t)(value.bits >> 16);
    }
    return x;
}

static float number_of(uint16_t b)
{
    union {
        uint32_t bits;
        float number;
    } value = {.bits = (uint32_t)b << 16};

    return value.number;
}

/* One weight, by the definition. */
static float weight(const struct dp_conv_weights_amx *call, size_t o, size_t ky, size_t kx,
                    size_t c)
{
    const struct dp_window *w = call->w;
    float sum = 0;

    for (size_t i = 0; i < call->rows * w->out_h * w->out_w; i++) {
        const size_t n = i / w->out_w / w->out_h;
        const size_t y = i / w->out_w % w->out_h * w->stride + ky - w->padding;
        const size_t x = i % w->out_w * w->stride + kx - w->padding;
        if (y < w->in_h && x < w->in_w) {
            sum += number_of(call->x[((n * w->in_h + y) * w->in_w + x) * w->in_c + c]) *
                   number_of(call->dy[i * w->out_c + o]);
        }
    }
    return sum;
}

static size_t wrong_weights(const struct dp_conv_weights_amx *call, float before)
{
    const struct dp_window *w = call->w;
    size_t wrong = 0, i = 0;

    for (size_t o = 0; o < w->out_c; o++) {
        for (size_t k = 0; k < w->kernel_h * w->kernel_w; k++) {
            for (size_t c = 0; c < w->in_c; c++, i++) {
                wrong +=
                    call->dw[i] != before + weight(call, o, k / w->kernel_w, k % w->kernel_w, c);
            }
        }
    }
    return wrong;
}

static size_t wrong_biases(const struct dp_conv_weights_amx *call, float before)
{
    const struct dp_window *w = call->w;
    size_t wrong = 0;

    for (size_t o = 0; o < w->out_c; o++) {
        float sum = before;
        for (size_t i = 0; i < call->rows * w->out_h * w->out_w; i++) {
            sum += number_of(call->dy[i * w->out_c + o]);
        }
        wrong += call->db[o] != sum;
    }
    return wrong;
}

static void check(const struct shape *shape, int threads, bool adds)
{
    const struct dp_window w = window_of(shape);
    const size_t weights = w.out_c * w.kernel_h * w.kernel_w * w.in_c * sizeof(float);
    const size_t bias = w.out_c * sizeof(float);
    const size_t scratch = dp_conv_weights_amx_bytes(&w, shape->rows);
    struct memory_end x_end, dy_end;
    uint16_t *x = numbers(&x_end, shape->rows * dp_window_in(&w), 1);
    uint16_t *dy = numbers(&dy_end, shape->rows * dp_window_out(&w), 2);
    const struct dp_conv_weights_amx call = {.w = &w,
                                             .rows = shape->rows,
                                             .x = x,
                                             .dy = dy,
                                             .dw = (float *)(void *)guarded(weights),
                                             .db = (float *)(void *)guarded(bias),
                                             .adds = adds,
                                             .scratch = guarded(scratch)};

    for (size_t i = 0; adds && i < weights / sizeof(float); i++) {
        call.dw[i] = 3;
    }
    for (size_t i = 0; adds && i < w.out_c; i++) {
        call.db[i] = 3;
    }
    assert_true(dp_conv_weights_amx_can(&w));
    dp_conv_weights_amx(&call, threads);
    assert_int_equal(wrong_weights(&call, adds ? 3.0f : 0.0f), 0);
    assert_int_equal(wrong_biases(&call, adds ? 3.0f : 0.0f), 0);
    release_guarded((char *)call.dw, weights);
    release_guarded((char *)call.db, bias);
    release_guarded(call.scratch, scratch);
    memory_end_release(&x_end);
    memory_end_release(&dy_end);
}

static void weights_and_biases_are_the_exact_sums(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        print_message("shape %zu\n", i);
        check(&shapes[i], 1, false);
        check(&shapes[i], 1, true);
        check(&shapes[i], 3, false);
    }
}

/* They are a block, which 17 of them are two of. */
static void sixteen_output_channels_take_room_for_no_more(void **state)
{
    const struct shape shape = {2, 8, 8, 64, 16, 1, 1, 1, 0};
    struct dp_window w = window_of(&shape);
    size_t bytes;
    (void)state;

    bytes = dp_conv_weights_amx_bytes(&w, shape.rows);
    w.out_c++;
    assert_true(dp_conv_weights_amx_bytes(&w, shape.rows) > bytes);
}

static void sizes_that_do_not_fit_are_refused(void **state)
{
    struct dp_window groups = window_of(&shapes[0]), wide = window_of(&shapes[10]);
    (void)state;

    groups.groups = 2;
    assert_false(dp_conv_weights_amx_can(&groups));
    wide.kernel_w++;
    wide.out_w--;
    assert_false(dp_conv_weights_amx_can(&wide));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_and_biases_are_the_exact_sums),
        cmocka_unit_test(sixteen_output_channels_take_room_for_no_more),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused),
    };

    if (!dp_amx_has()) {
        puts("skipped: this processor has no AMX, or a virtual machine hides it");
        return 77;
    }
    return cmocka_run_group_tests_name("conv_weights_amx", tests, NULL, NULL);
}
