/*
 * elementwise_ref.c - operations on each element alone: the formulas of kernels/ops.h.
 *
 * The rectifier is written as x < 0 ? 0 : x, so that a NaN stays a NaN.
 */
#include <math.h>

#include "base/random.h"
#include "kernels/ref/ops_ref.h"

static const double sqrt_half = 0.70710678118654752440;        /* sqrt(1 / 2) */
static const double inverse_sqrt_2pi = 0.39894228040143267794; /* 1 / sqrt(2 pi) */

dp_status dp_ref_relu_forward(struct dp_stream *s, void *y, const void *x, size_t count)
{
    const float *xs = x;
    float *ys = y;
    (void)s;

    for (size_t i = 0; i < count; i++) {
        ys[i] = xs[i] < 0 ? 0 : xs[i];
    }
    return DP_OK;
}

dp_status dp_ref_relu_backward(struct dp_stream *s, void *dx, const void *dy, const void *y,
                               size_t count)
{
    const float *dys = dy, *ys = y;
    float *dxs = dx;
    (void)s;

    for (size_t i = 0; i < count; i++) {
        dxs[i] = ys[i] > 0 ? dys[i] : 0;
    }
    return DP_OK;
}

dp_status dp_ref_gelu_forward(struct dp_stream *s, void *y, const void *x, size_t count)
{
    const float *xs = x;
    float *ys = y;
    (void)s;

    /* erfc keeps its precision where 1 + erf would cancel. */
    for (size_t i = 0; i < count; i++) {
        const double v = (double)xs[i];
        ys[i] = (float)(v * 0.5 * erfc(-v * sqrt_half));
    }
    return DP_OK;
}

dp_status dp_ref_gelu_backward(struct dp_stream *s, void *dx, const void *dy, const void *x,
                               size_t count)
{
    const float *dys = dy, *xs = x;
    float *dxs = dx;
    (void)s;

    for (size_t i = 0; i < count; i++) {
        const double v = (double)xs[i];
        const double below = 0.5 * erfc(-v * sqrt_half);
        const double density = inverse_sqrt_2pi * exp(-0.5 * v * v);
        dxs[i] = (float)((double)dys[i] * (below + v * density));
    }
    return DP_OK;
}

dp_status dp_ref_add_forward(struct dp_stream *s, void *y, const void *a, const void *b,
                             size_t count, enum dp_activation act)
{
    const float *as = a, *bs = b;
    float *ys = y;
    (void)s;

    for (size_t i = 0; i < count; i++) {
        const float sum = as[i] + bs[i];
        ys[i] = act == DP_ACT_RELU && sum < 0 ? 0 : sum;
    }
    return DP_OK;
}

dp_status dp_ref_accumulate(struct dp_stream *s, void *dx, const void *dy, size_t count)
{
    return dp_ref_add(s, dx, dy, count);
}

dp_status dp_ref_dropout(struct dp_stream *s, void *y, const void *x, size_t count,
                         const struct dp_dropout *dropout, uint64_t first,
                         const struct dp_knobs *knobs)
{
    const float scale = 1.0f / (1.0f - dropout->rate);
    const float *xs = x;
    float *ys = y;
    (void)s;

    for (size_t i = 0; i < count; i++) {
        const uint32_t bits =
            dp_random_u32(dropout->seed, dropout->what, knobs->step, first + (uint64_t)i);
        ys[i] = dp_random_unit(bits) >= dropout->rate ? xs[i] * scale : 0;
    }
    return DP_OK;
}
