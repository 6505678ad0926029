/*
 * bfloat.c - operations on each element of arrays of bfloat16, converted in registers: the bits of
 * mixed.c, which goes through the first-level cache. 4 bytes are moved per element with one input,
 * 6 with two.
 *
 * A rectifier selects, so it needs no numbers: bits without the sign compare as magnitudes do.
 */
#include "kernels/cpu/bfloat.h"
#include "kernels/cpu/mixed.h"
#include "kernels/cpu/parallel.h"

enum { INFINITE = 0x7f80, MINUS = 0x8000 };

/* y may be a or b. */
struct arrays {
    uint16_t *y;
    const uint16_t *a, *b;
};

DP_HOT static void relu_part(void *arg, size_t begin, size_t end)
{
    const struct arrays *v = arg;
    uint16_t *y = v->y;
    const uint16_t *a = v->a;

    DP_INDEPENDENT
    for (size_t i = begin; i < end; i++) {
        y[i] = a[i] > MINUS && a[i] <= (MINUS | INFINITE) ? 0 : a[i]; /* a NaN stays a NaN */
    }
}

DP_HOT static void relu_backward_part(void *arg, size_t begin, size_t end)
{
    const struct arrays *v = arg;
    uint16_t *y = v->y;
    const uint16_t *a = v->a, *b = v->b;

    DP_INDEPENDENT
    for (size_t i = begin; i < end; i++) {
        const uint16_t dy = a[i]; /* always loaded, so that no branch is needed */
        y[i] = b[i] > 0 && b[i] <= INFINITE ? dy : 0;
    }
}

DP_INLINE float sum_of(float a, float b, bool relu)
{
    const float sum = a + b;

    return relu ? dp_rectified(sum) : sum;
}

DP_INLINE void add_elements(const struct arrays *v, size_t begin, size_t end, bool relu)
{
    dp_bfloat_pair *y = (dp_bfloat_pair *)(v->y + begin);
    const dp_bfloat_pair *a = (const dp_bfloat_pair *)(v->a + begin);
    const dp_bfloat_pair *b = (const dp_bfloat_pair *)(v->b + begin);

    DP_INDEPENDENT
    for (size_t i = 0; i < (end - begin) / 2; i++) {
        float sums[2];
        for (size_t h = 0; h < 2; h++) {
            sums[h] = sum_of(dp_half_of(a[i], h), dp_half_of(b[i], h), relu);
        }
        y[i] = dp_bfloat_pair_of(sums);
    }
    if ((end - begin) % 2 > 0) {
        const float last = dp_of_bfloat(v->a[end - 1]);
        v->y[end - 1] = dp_bfloat_of(sum_of(last, dp_of_bfloat(v->b[end - 1]), relu));
    }
}

DP_HOT static void add_part(void *arg, size_t begin, size_t end)
{
    add_elements(arg, begin, end, false);
}

DP_HOT static void add_relu_part(void *arg, size_t begin, size_t end)
{
    add_elements(arg, begin, end, true);
}

dp_status dp_cpu_bfloat_relu_forward(struct dp_stream *s, void *y, const void *x, size_t count)
{
    struct arrays v = {.y = y, .a = x};

    dp_parallel(s->threads, count, DP_BLOCK, relu_part, &v);
    return DP_OK;
}

dp_status dp_cpu_bfloat_relu_backward(struct dp_stream *s, void *dx, const void *dy, const void *y,
                                      size_t count)
{
    struct arrays v = {.y = dx, .a = dy, .b = y};

    dp_parallel(s->threads, count, DP_BLOCK, relu_backward_part, &v);
    return DP_OK;
}

dp_status dp_cpu_bfloat_add_forward(struct dp_stream *s, void *y, const void *a, const void *b,
                                    size_t count, enum dp_activation act)
{
    struct arrays v = {y, a, b};

    dp_parallel(s->threads, count, DP_BLOCK, act == DP_ACT_RELU ? add_relu_part : add_part, &v);
    return DP_OK;
}

dp_status dp_cpu_bfloat_accumulate(struct dp_stream *s, void *dx, const void *dy, size_t count)
{
    return dp_cpu_bfloat_add_forward(s, dx, dx, dy, count, DP_ACT_NONE);
}
