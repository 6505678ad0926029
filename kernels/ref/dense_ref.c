/*
 * dense_ref.c - products of matrices, and column sums: the formulas of kernels/ops.h.
 */
#include "kernels/ref/ops_ref.h"

dp_status dp_ref_dense_prepare(struct dp_stream *s, size_t rows, size_t in, size_t out,
                               unsigned uses)
{
    (void)s;
    (void)rows;
    (void)in;
    (void)out;
    (void)uses;
    return DP_OK;
}

dp_status dp_ref_dense_forward(struct dp_stream *s, void *y, const void *x, const void *w,
                               const void *b, size_t rows, size_t in, size_t out,
                               enum dp_activation act)
{
    const float *xs = x, *ws = w, *bs = b;
    float *ys = y;
    (void)s;

    for (size_t r = 0; r < rows; r++) {
        for (size_t o = 0; o < out; o++) {
            double sum = bs != NULL ? (double)bs[o] : 0;
            for (size_t i = 0; i < in; i++) {
                sum += (double)xs[r * in + i] * (double)ws[o * in + i];
            }
            ys[r * out + o] = act == DP_ACT_RELU && sum < 0 ? 0.0f : (float)sum;
        }
    }
    return DP_OK;
}

dp_status dp_ref_dense_backward_data(struct dp_stream *s, void *dx, const void *dy, const void *w,
                                     size_t rows, size_t in, size_t out)
{
    const float *dys = dy, *ws = w;
    float *dxs = dx;
    (void)s;

    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < in; i++) {
            double sum = 0;
            for (size_t o = 0; o < out; o++) {
                sum += (double)dys[r * out + o] * (double)ws[o * in + i];
            }
            dxs[r * in + i] = (float)sum;
        }
    }
    return DP_OK;
}

dp_status dp_ref_dense_backward_weights(struct dp_stream *s, float *dw, const void *dy,
                                        const void *x, size_t rows, size_t in, size_t out,
                                        float keep)
{
    const float *dys = dy, *xs = x;
    (void)s;

    for (size_t o = 0; o < out; o++) {
        for (size_t i = 0; i < in; i++) {
            double sum = keep != 0 ? (double)dw[o * in + i] : 0;
            for (size_t r = 0; r < rows; r++) {
                sum += (double)dys[r * out + o] * (double)xs[r * in + i];
            }
            dw[o * in + i] = (float)sum;
        }
    }
    return DP_OK;
}

dp_status dp_ref_sum_rows(struct dp_stream *s, float *db, const void *dy, size_t rows, size_t cols,
                          float keep)
{
    const float *dys = dy;
    (void)s;

    for (size_t c = 0; c < cols; c++) {
        double sum = keep != 0 ? (double)db[c] : 0;
        for (size_t r = 0; r < rows; r++) {
            sum += (double)dys[r * cols + c];
        }
        db[c] = (float)sum;
    }
    return DP_OK;
}
