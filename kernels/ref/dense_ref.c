/*
 * dense_ref.c - products of matrices, and column sums: the formulas of kernels/ops.h.
 */
#include "kernels/op_path.h"
#include "kernels/ref/element.h"
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
    dp_op_path_note(s, "ref", "loops");
    for (size_t r = 0; r < rows; r++) {
        for (size_t o = 0; o < out; o++) {
            double sum = b != NULL ? (double)dp_ref_get(s, b, o) : 0;
            for (size_t i = 0; i < in; i++) {
                sum += (double)dp_ref_get(s, x, r * in + i) * (double)dp_ref_get(s, w, o * in + i);
            }
            dp_ref_put(s, y, r * out + o, act == DP_ACT_RELU && sum < 0 ? 0.0f : (float)sum);
        }
    }
    return DP_OK;
}

dp_status dp_ref_dense_backward_data(struct dp_stream *s, void *dx, const void *dy, const void *w,
                                     size_t rows, size_t in, size_t out)
{
    dp_op_path_note(s, "ref", "loops");
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < in; i++) {
            double sum = 0;
            for (size_t o = 0; o < out; o++) {
                sum +=
                    (double)dp_ref_get(s, dy, r * out + o) * (double)dp_ref_get(s, w, o * in + i);
            }
            dp_ref_put(s, dx, r * in + i, (float)sum);
        }
    }
    return DP_OK;
}

dp_status dp_ref_dense_backward_weights(struct dp_stream *s, float *dw, const void *dy,
                                        const void *x, size_t rows, size_t in, size_t out,
                                        float keep)
{
    dp_op_path_note(s, "ref", "loops");
    for (size_t o = 0; o < out; o++) {
        for (size_t i = 0; i < in; i++) {
            double sum = keep != 0 ? (double)dw[o * in + i] : 0;
            for (size_t r = 0; r < rows; r++) {
                sum +=
                    (double)dp_ref_get(s, dy, r * out + o) * (double)dp_ref_get(s, x, r * in + i);
            }
            dw[o * in + i] = (float)sum;
        }
    }
    return DP_OK;
}

dp_status dp_ref_sum_rows(struct dp_stream *s, float *db, const void *dy, size_t rows, size_t cols,
                          float keep)
{
    for (size_t c = 0; c < cols; c++) {
        double sum = keep != 0 ? (double)db[c] : 0;
        for (size_t r = 0; r < rows; r++) {
            sum += (double)dp_ref_get(s, dy, r * cols + c);
        }
        db[c] = (float)sum;
    }
    return DP_OK;
}
