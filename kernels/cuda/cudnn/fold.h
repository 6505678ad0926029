/*
 * fold.h - a convolution of few channels as one of more, which fills matrix units: stride x stride
 * pixels become one pixel of stride^2 times the channels ("space to depth"), and the stride 1.
 *
 *   x [rows, in_h, in_w, in_c]  ->  [rows, out_h + kernel_h' - 1, out_w + kernel_w' - 1, c]
 *   weights [out_c, kernel_h, kernel_w, in_c]  ->  [out_c, kernel_h', kernel_w', c]
 *
 * kernel' = kernel / stride, rounded up; c = stride^2 in_c, rounded up to 16 bytes of a type of 2
 * bytes. Channel (dy stride + dx) in_c + i of pixel (Y, X) is channel i of pixel (Y stride + dy -
 * padding, X stride + dx - padding) of x; what is outside of x, of the kernel, or of the stride^2
 * in_c channels, is 0. Products are those of the convolution and zeros, in another order. The first
 * one of resnet50, 224x224x3 by 7x7 with stride 2, becomes 115x115x16 by 4x4: 1.7 times the
 * products, but in vectors of 16 channels instead of 3.
 *
 * Folded images lie in scratch memory. Where those of a batch would be large, it is folded and
 * convolved in pieces, one after another: of that convolution in 4 of 64 rows at a batch of 256,
 * whose images are 26 MiB each (computed). Gradients of weights of all pieces are kept until the
 * last one, then added in float32; those in a narrow type were rounded once each.
 */
#ifndef DP_KERNELS_CUDA_CUDNN_FOLD_H
#define DP_KERNELS_CUDA_CUDNN_FOLD_H

#include "kernels/device.h"

/* Whether folding may pay. */
bool dp_cuda_folds(const struct dp_window *w, enum dp_type type);

/* The window after folding; its padding is 0. */
struct dp_window dp_cuda_folded(const struct dp_window *w);

/* Bytes of the folded images of a piece, at most. Tests make it smaller. */
enum { DP_FOLD_BYTES = 32 << 20 };
extern size_t dp_cuda_fold_bytes;

/* Rows of a piece, which divide `rows`: they depend on these and the window alone. */
size_t dp_cuda_fold_rows(const struct dp_window *w, size_t rows);

/* to [rows, folded image] = x, in the stream's type. Errors: DP_ERR_CUDA, as below. */
DP_CHECKED dp_status dp_cuda_fold_images(struct dp_stream *s, void *to, const void *x,
                                         const struct dp_window *w, size_t rows);

/* to [folded weights] = weights, in the stream's type. */
DP_CHECKED dp_status dp_cuda_fold_weights(struct dp_stream *s, void *to, const void *weights,
                                          const struct dp_window *w);

/* dw = keep dw + the sum of `pieces` gradients of folded weights, of `type`, in float32. */
DP_CHECKED dp_status dp_cuda_unfold_grad(struct dp_stream *s, float *dw, const void *folded,
                                         enum dp_type type, size_t pieces,
                                         const struct dp_window *w, float keep);

#endif
