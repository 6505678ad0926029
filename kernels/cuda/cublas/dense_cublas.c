/*
 * dense_cublas.c - dense layers as products of matrices: see kernels/ops.h for the contracts.
 *
 * 2 rows in out FLOPs each. The gradient of the bias comes with that of the weights if cuBLASLt
 * has such products and they are faster; else a pass over dy computes it (dense.cu).
 *
 * A rectifier after the layer is undone by a pass of its own, or by the one that sums, whichever is
 * measured to be faster. cuBLASLt would do it with the gradient of the next layer (DRELU), but
 * wants a mask of bits that forward writes. Its GELU is the approximation by tanh, ours is exact,
 * so neither direction uses it.
 */
#include "kernels/cuda/cublas/matmul_cublas.h"
#include "kernels/cuda/layers/conv_cuda.h"
#include "kernels/cuda/ops_cuda.h"
#include "kernels/cuda/stream/stream_cuda.h"

static struct dp_matmul forward_shape(size_t rows, size_t in, size_t out, bool bias,
                                      enum dp_activation act)
{
    return (struct dp_matmul){
        .m = rows, .n = out, .k = in, .b_order = DP_TRANSPOSED, .bias = bias, .act = (uint32_t)act};
}

static struct dp_matmul data_shape(size_t rows, size_t in, size_t out)
{
    return (struct dp_matmul){.m = rows, .n = in, .k = out};
}

static struct dp_matmul weights_shape(size_t rows, size_t in, size_t out)
{
    return (struct dp_matmul){.m = out, .n = in, .k = rows, .a_order = DP_TRANSPOSED, .wide = 1};
}

/* cuBLASLt describes no matrix without elements. */
static bool is_empty(const struct dp_matmul *shape)
{
    return shape->m == 0 || shape->n == 0 || shape->k == 0;
}

dp_status dp_cuda_dense_prepare(struct dp_stream *s, size_t rows, size_t in, size_t out,
                                unsigned uses)
{
    const enum dp_activation act = (uses & DP_DENSE_RELU) != 0 ? DP_ACT_RELU : DP_ACT_NONE;
    const struct dp_matmul forward = forward_shape(rows, in, out, (uses & DP_DENSE_BIAS) != 0, act);
    const struct dp_matmul data = data_shape(rows, in, out);
    const struct dp_matmul weights = weights_shape(rows, in, out);

    if (is_empty(&forward)) {
        return DP_OK;
    }
    if ((uses & DP_DENSE_FORWARD) != 0) {
        DP_TRY(dp_matmul_prepare(s, &forward));
    }
    if ((uses & DP_DENSE_BACKWARD_DATA) != 0) {
        DP_TRY(dp_matmul_prepare(s, &data));
    }
    if ((uses & DP_DENSE_BACKWARD_WEIGHTS) != 0) {
        DP_TRY(dp_matmul_prepare(s, &weights));
        if ((uses & DP_DENSE_BIAS) != 0) {
            struct dp_matmul sums = weights;
            sums.sums = 1;
            DP_TRY(dp_matmul_prepare(s, &sums));
            DP_TRY(act == DP_ACT_RELU ? dp_matmul_choose_mask(s, &weights) : DP_OK);
        }
    }
    return DP_OK;
}

dp_status dp_cuda_dense_forward(struct dp_stream *s, void *y, const void *x, const void *w,
                                const void *b, size_t rows, size_t in, size_t out,
                                enum dp_activation act)
{
    const struct dp_matmul shape = forward_shape(rows, in, out, b != NULL, act);

    if (is_empty(&shape)) { /* a sum of nothing, and the bias */
        DP_TRY(dp_cuda_zero(s, y, rows * out * dp_type_bytes(s->type)));
        return b != NULL ? dp_cuda_bias_act(s, y, b, rows, out, act) : DP_OK;
    }
    return dp_matmul_run(s, &shape, y, x, w, b, NULL, 0.0f);
}

dp_status dp_cuda_dense_backward_data(struct dp_stream *s, void *dx, const void *dy, const void *w,
                                      size_t rows, size_t in, size_t out)
{
    const struct dp_matmul shape = data_shape(rows, in, out);

    return is_empty(&shape) ? dp_cuda_zero(s, dx, rows * in * dp_type_bytes(s->type))
                            : dp_matmul_run(s, &shape, dx, dy, w, NULL, NULL, 0.0f);
}

dp_status dp_cuda_dense_backward_weights(struct dp_stream *s, float *dw, const void *dy,
                                         const void *x, size_t rows, size_t in, size_t out,
                                         float keep)
{
    const struct dp_matmul shape = weights_shape(rows, in, out);

    if (is_empty(&shape)) {
        return keep != 0.0f ? DP_OK : dp_cuda_zero(s, dw, out * in * sizeof(float));
    }
    return dp_matmul_run(s, &shape, dw, dy, x, NULL, NULL, keep);
}

/* Sums are only ever written: those that are to be added go through scratch memory. */
dp_status dp_cuda_dense_backward_both(struct dp_stream *s, float *dw, float *db, const void *dy,
                                      const void *x, size_t rows, size_t in, size_t out, float keep)
{
    struct dp_matmul shape = weights_shape(rows, in, out);
    float *sums = keep != 0.0f ? (float *)(void *)dp_cuda_of(s)->partials : db;

    shape.sums = 1;
    if (rows == 0 || out > DP_CUDA_PARTIALS || !dp_matmul_has(s, &shape)) {
        DP_TRY(dp_cuda_sum_rows(s, db, dy, rows, out, keep));
        return dp_cuda_dense_backward_weights(s, dw, dy, x, rows, in, out, keep);
    }
    DP_TRY(dp_matmul_run(s, &shape, dw, dy, x, NULL, sums, keep));
    return keep != 0.0f ? dp_cuda_add(s, db, sums, out) : DP_OK;
}

dp_status dp_cuda_dense_backward_relu(struct dp_stream *s, const struct dp_dense_backward *b)
{
    const struct dp_matmul shape = weights_shape(b->rows, b->in, b->out);

    if (dp_matmul_masks_in_sums(s, &shape)) {
        DP_TRY(dp_cuda_sum_masked(s, b));
        return dp_cuda_dense_backward_weights(s, b->dw, b->g, b->x, b->rows, b->in, b->out,
                                              b->keep);
    }
    DP_TRY(dp_cuda_relu_backward(s, b->g, b->dy, b->y, b->rows * b->out));
    return dp_cuda_dense_backward_both(s, b->dw, b->db, b->g, b->x, b->rows, b->in, b->out,
                                       b->keep);
}
