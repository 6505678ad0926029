/*
 * elementwise.c - operations on each element alone, at the speed of memory.
 *
 * Bytes moved per element: 8 with one input, 12 with two. gelu costs about 40 operations per
 * element and dropout 30 integer operations; the others are limited by memory. Results do not
 * depend on the number of threads or the instruction set.
 */
#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/random_blocks.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/device.h"

/* y may be a or b. */
struct arrays {
    float *y;
    const float *a, *b;
    float slope; /* of the leaky rectifier */
};

DP_HOT static void relu_part(void *arg, size_t begin, size_t end)
{
    const struct arrays *v = arg;
    float *y = v->y;
    const float *a = v->a;

    DP_INDEPENDENT
    for (size_t i = begin; i < end; i++) {
        y[i] = a[i] < 0 ? 0 : a[i]; /* a NaN stays a NaN */
    }
}

DP_HOT static void relu_backward_part(void *arg, size_t begin, size_t end)
{
    const struct arrays *v = arg;
    float *y = v->y;
    const float *a = v->a, *b = v->b;

    DP_INDEPENDENT
    for (size_t i = begin; i < end; i++) {
        const float dy = a[i]; /* always loaded, so that no branch is needed */
        y[i] = b[i] > 0 ? dy : 0;
    }
}

DP_HOT static void gelu_part(void *arg, size_t begin, size_t end)
{
    const struct arrays *v = arg;
    float *y = v->y;
    const float *a = v->a;

    DP_INDEPENDENT
    for (size_t i = begin; i < end; i++) {
        float bell;
        y[i] = a[i] * dp_normal_below(a[i], &bell);
    }
}

DP_HOT static void gelu_backward_part(void *arg, size_t begin, size_t end)
{
    const struct arrays *v = arg;
    float *y = v->y;
    const float *a = v->a, *b = v->b;

    DP_INDEPENDENT
    for (size_t i = begin; i < end; i++) {
        float bell;
        const float below = dp_normal_below(b[i], &bell);
        y[i] = a[i] * (below + b[i] * (0.398942280f * bell)); /* 1 / sqrt(2 pi) */
    }
}

DP_HOT static void silu_part(void *arg, size_t begin, size_t end)
{
    const struct arrays *v = arg;
    float *y = v->y;
    const float *a = v->a;

    DP_INDEPENDENT
    for (size_t i = begin; i < end; i++) {
        float off;
        y[i] = a[i] * dp_logistic(a[i], &off);
    }
}

DP_HOT static void silu_backward_part(void *arg, size_t begin, size_t end)
{
    const struct arrays *v = arg;
    float *y = v->y;
    const float *a = v->a, *b = v->b;

    DP_INDEPENDENT
    for (size_t i = begin; i < end; i++) {
        float off;
        const float on = dp_logistic(b[i], &off);
        y[i] = a[i] * (on * (1.0f + b[i] * off));
    }
}

/* Forward is backward of x itself. */
DP_HOT static void leaky_part(void *arg, size_t begin, size_t end)
{
    const struct arrays *v = arg;
    float *y = v->y;
    const float *a = v->a, *b = v->b, slope = v->slope;

    DP_INDEPENDENT
    for (size_t i = begin; i < end; i++) {
        y[i] = b[i] > 0 ? a[i] : slope * a[i];
    }
}

DP_HOT static void add_part(void *arg, size_t begin, size_t end)
{
    const struct arrays *v = arg;
    float *y = v->y;
    const float *a = v->a, *b = v->b;

    DP_INDEPENDENT
    for (size_t i = begin; i < end; i++) {
        y[i] = a[i] + b[i];
    }
}

DP_HOT static void add_relu_part(void *arg, size_t begin, size_t end)
{
    const struct arrays *v = arg;
    float *y = v->y;
    const float *a = v->a, *b = v->b;

    DP_INDEPENDENT
    for (size_t i = begin; i < end; i++) {
        const float sum = a[i] + b[i];
        y[i] = sum < 0 ? 0 : sum;
    }
}

static dp_status each(struct dp_stream *s, void (*part)(void *arg, size_t begin, size_t end),
                      void *y, const void *a, const void *b, size_t count)
{
    struct arrays v = {.y = y, .a = a, .b = b};

    dp_parallel(s->threads, count, DP_BLOCK, part, &v);
    return DP_OK;
}

dp_status dp_cpu_relu_forward(struct dp_stream *s, void *y, const void *x, size_t count)
{
    return each(s, relu_part, y, x, NULL, count);
}

dp_status dp_cpu_relu_backward(struct dp_stream *s, void *dx, const void *dy, const void *y,
                               size_t count)
{
    return each(s, relu_backward_part, dx, dy, y, count);
}

dp_status dp_cpu_gelu_forward(struct dp_stream *s, void *y, const void *x, size_t count)
{
    return each(s, gelu_part, y, x, NULL, count);
}

dp_status dp_cpu_gelu_backward(struct dp_stream *s, void *dx, const void *dy, const void *x,
                               size_t count)
{
    return each(s, gelu_backward_part, dx, dy, x, count);
}

dp_status dp_cpu_silu_forward(struct dp_stream *s, void *y, const void *x, size_t count)
{
    return each(s, silu_part, y, x, NULL, count);
}

dp_status dp_cpu_silu_backward(struct dp_stream *s, void *dx, const void *dy, const void *x,
                               size_t count)
{
    return each(s, silu_backward_part, dx, dy, x, count);
}

dp_status dp_cpu_leaky_backward(struct dp_stream *s, void *dx, const void *dy, const void *x,
                                float slope, size_t count)
{
    struct arrays v = {dx, dy, x, slope};

    dp_parallel(s->threads, count, DP_BLOCK, leaky_part, &v);
    return DP_OK;
}

dp_status dp_cpu_leaky_forward(struct dp_stream *s, void *y, const void *x, float slope,
                               size_t count)
{
    return dp_cpu_leaky_backward(s, y, x, x, slope, count);
}

dp_status dp_cpu_add_forward(struct dp_stream *s, void *y, const void *a, const void *b,
                             size_t count, enum dp_activation act)
{
    return each(s, act == DP_ACT_RELU ? add_relu_part : add_part, y, a, b, count);
}

dp_status dp_cpu_accumulate(struct dp_stream *s, void *dx, const void *dy, size_t count)
{
    return each(s, add_part, dx, dx, dy, count);
}

/* ---- dropout ---- */

struct drop {
    float *y;
    const float *x;
    uint64_t seed, first;
    uint32_t what, step;
    float rate, scale;
};

static inline float drop_one(const struct drop *d, float x, uint32_t bits)
{
    const float kept = x * d->scale;

    return dp_random_unit(bits) >= d->rate ? kept : 0;
}

DP_HOT static void drop_part(void *arg, size_t begin, size_t end)
{
    const struct drop *d = arg;
    float *y = d->y;
    const float *x = d->x;
    _Alignas(DP_MEM_ALIGN) uint32_t bits[DP_RANDOM_NUMBERS];
    size_t i = begin;

    while (i < end) {
        const uint64_t index = d->first + i;
        const size_t skip = (size_t)(index & 3); /* numbers of the first block that belong to
                                                  * earlier elements */
        const size_t left = DP_RANDOM_NUMBERS - skip, count = end - i < left ? end - i : left;
        dp_random_blocks(d->seed, d->what, d->step, index >> 2, bits);
        DP_INDEPENDENT
        for (size_t j = 0; j < count; j++) {
            y[i + j] = drop_one(d, x[i + j], bits[skip + j]);
        }
        i += count;
    }
}

dp_status dp_cpu_dropout(struct dp_stream *s, void *y, const void *x, size_t count,
                         const struct dp_dropout *dropout, uint64_t first,
                         const struct dp_step_params *step_params)
{
    struct drop d = {.y = y,
                     .x = x,
                     .seed = dropout->seed,
                     .first = first,
                     .what = dropout->what,
                     .step = step_params->step,
                     .rate = dropout->rate,
                     .scale = 1.0f / (1.0f - dropout->rate)};

    dp_parallel(s->threads, count, DP_BLOCK, drop_part, &d);
    return DP_OK;
}
