/*
 * elementwise_ref.c - operations on each element alone: the formulas of kernels/ops.h.
 *
 * The relu is written as x < 0 ? 0 : x, so that a NaN stays a NaN.
 */
#include <math.h>

#include "base/random.h"
#include "kernels/ref/element.h"
#include "kernels/ref/ops_ref.h"

static const double sqrt_half = 0.70710678118654752440;        /* sqrt(1 / 2) */
static const double inverse_sqrt_2pi = 0.39894228040143267794; /* 1 / sqrt(2 pi) */

dp_status dp_ref_relu_forward(struct dp_stream *s, void *y, const void *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const float v = dp_ref_get(s, x, i);
        dp_ref_put(s, y, i, v < 0 ? 0 : v);
    }
    return DP_OK;
}

dp_status dp_ref_relu_backward(struct dp_stream *s, void *dx, const void *dy, const void *y,
                               size_t count)
{
    for (size_t i = 0; i < count; i++) {
        dp_ref_put(s, dx, i, dp_ref_get(s, y, i) > 0 ? dp_ref_get(s, dy, i) : 0);
    }
    return DP_OK;
}

dp_status dp_ref_gelu_forward(struct dp_stream *s, void *y, const void *x, size_t count)
{
    /* erfc is precise where 1 + erf would cancel. */
    for (size_t i = 0; i < count; i++) {
        const double v = (double)dp_ref_get(s, x, i);
        dp_ref_put(s, y, i, (float)(v * 0.5 * erfc(-v * sqrt_half)));
    }
    return DP_OK;
}

dp_status dp_ref_gelu_backward(struct dp_stream *s, void *dx, const void *dy, const void *x,
                               size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const double v = (double)dp_ref_get(s, x, i);
        const double below = 0.5 * erfc(-v * sqrt_half);
        const double density = inverse_sqrt_2pi * exp(-0.5 * v * v);
        dp_ref_put(s, dx, i, (float)((double)dp_ref_get(s, dy, i) * (below + v * density)));
    }
    return DP_OK;
}

dp_status dp_ref_silu_forward(struct dp_stream *s, void *y, const void *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const double v = (double)dp_ref_get(s, x, i);
        dp_ref_put(s, y, i, (float)(v / (1 + exp(-v))));
    }
    return DP_OK;
}

dp_status dp_ref_silu_backward(struct dp_stream *s, void *dx, const void *dy, const void *x,
                               size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const double v = (double)dp_ref_get(s, x, i);
        const double on = 1 / (1 + exp(-v)), off = 1 / (1 + exp(v));
        dp_ref_put(s, dx, i, (float)((double)dp_ref_get(s, dy, i) * (on * (1 + v * off))));
    }
    return DP_OK;
}

dp_status dp_ref_leaky_forward(struct dp_stream *s, void *y, const void *x, float slope,
                               size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const float v = dp_ref_get(s, x, i);
        dp_ref_put(s, y, i, v > 0 ? v : slope * v);
    }
    return DP_OK;
}

dp_status dp_ref_leaky_backward(struct dp_stream *s, void *dx, const void *dy, const void *x,
                                float slope, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const float g = dp_ref_get(s, dy, i);
        dp_ref_put(s, dx, i, dp_ref_get(s, x, i) > 0 ? g : slope * g);
    }
    return DP_OK;
}

dp_status dp_ref_add_forward(struct dp_stream *s, void *y, const void *a, const void *b,
                             size_t count, enum dp_activation act)
{
    for (size_t i = 0; i < count; i++) {
        const float sum = dp_ref_get(s, a, i) + dp_ref_get(s, b, i);
        dp_ref_put(s, y, i, act == DP_ACT_RELU && sum < 0 ? 0 : sum);
    }
    return DP_OK;
}

dp_status dp_ref_accumulate(struct dp_stream *s, void *dx, const void *dy, size_t count)
{
    return dp_ref_add_forward(s, dx, dx, dy, count, DP_ACT_NONE);
}

dp_status dp_ref_dropout(struct dp_stream *s, void *y, const void *x, size_t count,
                         const struct dp_dropout *dropout, uint64_t first,
                         const struct dp_step_params *step_params)
{
    const float scale = 1.0f / (1.0f - dropout->rate);

    for (size_t i = 0; i < count; i++) {
        const uint32_t bits =
            dp_random_u32(dropout->seed, dropout->what, step_params->step, first + (uint64_t)i);
        dp_ref_put(s, y, i,
                   dp_random_unit(bits) >= dropout->rate ? dp_ref_get(s, x, i) * scale : 0);
    }
    return DP_OK;
}
