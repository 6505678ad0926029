/*
 * memory_ref.c - filling, copying and adding arrays: the formulas of kernels/ops.h, one loop each.
 */
#include <assert.h>
#include <string.h>

#include "kernels/ref/element.h"
#include "kernels/ref/ops_ref.h"

dp_status dp_ref_zero(struct dp_stream *s, void *y, size_t bytes)
{
    (void)s;
    if (bytes > 0) {
        memset(y, 0, bytes);
    }
    return DP_OK;
}

dp_status dp_ref_copy(struct dp_stream *s, void *y, const void *x, size_t bytes)
{
    (void)s;
    if (bytes > 0) {
        memcpy(y, x, bytes);
    }
    return DP_OK;
}

dp_status dp_ref_put_columns(struct dp_stream *s, void *y, const void *x, size_t rows,
                             const struct dp_columns *columns)
{
    const struct dp_columns *c = columns;
    const size_t e = dp_type_bytes(s->type);

    for (size_t i = 0; i < rows; i++) {
        char *row = (char *)y + i * c->width * e;
        memset(row, 0, c->width * e);
        memcpy(row + c->at * e, (const char *)x + i * c->count * e, c->count * e);
    }
    return DP_OK;
}

dp_status dp_ref_take_columns(struct dp_stream *s, void *x, const void *y, size_t rows,
                              const struct dp_columns *columns)
{
    const struct dp_columns *c = columns;
    const size_t e = dp_type_bytes(s->type);

    for (size_t i = 0; i < rows; i++) {
        memcpy((char *)x + i * c->count * e, (const char *)y + (i * c->width + c->at) * e,
               c->count * e);
    }
    return DP_OK;
}

dp_status dp_ref_add(struct dp_stream *s, float *y, const float *x, size_t count)
{
    (void)s;
    for (size_t i = 0; i < count; i++) {
        y[i] += x[i];
    }
    return DP_OK;
}

dp_status dp_ref_scale(struct dp_stream *s, float *y, const float *x, float factor, size_t count)
{
    (void)s;
    for (size_t i = 0; i < count; i++) {
        y[i] = factor * x[i];
    }
    return DP_OK;
}

dp_status dp_ref_blend(struct dp_stream *s, float *y, const float *x, float weight, size_t count)
{
    (void)s;
    for (size_t i = 0; i < count; i++) {
        y[i] = (1.0f - weight) * y[i] + weight * x[i];
    }
    return DP_OK;
}

/* The sum of element i of n arrays, in float32: here the order of additions is the contract. */
static float tree(const float *const *xs, int n, size_t i)
{
    int left = 1;

    if (n == 1) {
        return xs[0][i];
    }
    while (left * 2 < n) {
        left *= 2;
    }
    return tree(xs, left, i) + tree(xs + left, n - left, i);
}

dp_status dp_ref_sum_tree(struct dp_stream *s, float *const *ys, int outs, const float *const *xs,
                          int n, size_t count)
{
    (void)s;
    assert(n >= 1);
    for (size_t i = 0; i < count; i++) {
        const float sum = tree(xs, n, i); /* before any of ys is written, which may be one of xs */
        for (int out = 0; out < outs; out++) {
            ys[out][i] = sum;
        }
    }
    return DP_OK;
}

dp_status dp_ref_block_squares(struct dp_stream *s, float *out, const float *x, size_t count)
{
    (void)s;
    for (size_t begin = 0; begin < count; begin += DP_BLOCK) {
        double sum = 0;
        for (size_t i = begin; i < count && i < begin + DP_BLOCK; i++) {
            sum += (double)x[i] * (double)x[i];
        }
        out[begin / DP_BLOCK] = (float)sum;
    }
    return DP_OK;
}

dp_status dp_ref_sum_all(struct dp_stream *s, double *out, const float *x, size_t count)
{
    double sum = 0;

    (void)s;
    for (size_t i = 0; i < count; i++) {
        sum += (double)x[i];
    }
    *out = sum;
    return DP_OK;
}

dp_status dp_ref_bytes_load(struct dp_stream *s, void *y, const uint8_t *x, const float *scale,
                            const float *shift, size_t channels, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        dp_ref_put(s, y, i, (float)x[i] * scale[i % channels] + shift[i % channels]);
    }
    return DP_OK;
}

dp_status dp_ref_floats_load(struct dp_stream *s, void *y, const float *x, const float *scale,
                             const float *shift, size_t channels, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        dp_ref_put(s, y, i, x[i] * scale[i % channels] + shift[i % channels]);
    }
    return DP_OK;
}
