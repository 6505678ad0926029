/*
 * ops_cuda.h - the operations of the device `cuda`: cuBLAS, and kernels of our own.
 *
 * What each one means is in kernels/ops.h; prototypes are made from the slots of struct dp_ops.
 * Each queues its work and returns; none synchronises or allocates, but for *_prepare.
 */
#ifndef DP_KERNELS_CUDA_OPS_CUDA_H
#define DP_KERNELS_CUDA_OPS_CUDA_H

#include "base/status.h"
#include "kernels/ops.h"
#include "kernels/ref/ops_ref.h"

#define DP_OPS_CUDA(X) \
    DP_OPS_LIST(X) X(dense_backward_both) X(dense_backward_relu) X(norm_statistics) X(norm_backward)

#define X(name) DP_CHECKED DP_OP_TYPE(name) dp_cuda_##name;
DP_OPS_CUDA(X)
#undef X

extern const struct dp_ops dp_cuda_ops;

/* relu_backward to g and sum_rows of it, in one pass over memory: b->x, dw and in are not read. */
DP_CHECKED dp_status dp_cuda_sum_masked(struct dp_stream *s, const struct dp_dense_backward *b);

/* Image windows as rows of a matrix: columns [pixels, kernel_h, kernel_w, in_c] of `rows` images
 * x, pixels = rows out_h out_w. Both in the stream's compute type. */
DP_CHECKED dp_status dp_cuda_im2col(struct dp_stream *s, void *columns, const void *x,
                                    const struct dp_window *w, size_t rows);

/* The other way round: dx[i] = the sum of all columns that im2col made from x[i]; columns, at a
 * multiple of 32 bytes, are float32. */
DP_CHECKED dp_status dp_cuda_col2im(struct dp_stream *s, void *dx, const float *columns,
                                    const struct dp_window *w, size_t rows);

#endif
