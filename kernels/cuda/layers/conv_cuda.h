/*
 * conv_cuda.h - the two engines behind the convolutions of device `cuda`.
 *
 * `cublas` (conv_cublas.c; for several groups group_conv.cu) is always there. `cudnn`
 * (conv_cudnn.c) is used where its library is found, unless the stream says otherwise, for every
 * convolution that it has a plan for.
 *
 * Which form of a convolution and which of cuDNN's engines is taken may be measured, and is a
 * choice then (algo_choices.h), whose value has five numbers: whether bias and rectifier are part
 * of the plan (2: and it may make 0 of a NaN; 3: cublas computes it; 4 more: images are folded),
 * the type of weights or their gradient, and struct dp_cudnn_pick.
 *
 * A plan may also fail when it is run. Unless cudnn was asked for, cublas then computes that
 * convolution from there on. Each rank decides that for itself: to ask the others would be a
 * message in every step, and they may differ, since what ranks share are sums of gradients, which
 * are the same on all of them whoever made the parts.
 */
#ifndef DP_KERNELS_CUDA_LAYERS_CONV_CUDA_H
#define DP_KERNELS_CUDA_LAYERS_CONV_CUDA_H

#include "kernels/cuda/ops_cuda.h"
#include "kernels/device.h"

/* struct dp_device.find_conv. */
DP_CHECKED dp_status dp_cuda_find_conv(enum dp_conv_engine wanted, const char **text);

/* For messages: "4x4x17 -> 4x4x8 by 3x3 of 2 rows". */
enum { DP_CONV_TEXT = 160 };
void dp_cuda_conv_text(char text[DP_CONV_TEXT], const struct dp_window *w, size_t rows);

/* ---- cublas: the contracts of kernels/ops.h ---- */

DP_CHECKED DP_OP_TYPE(conv_prepare) dp_cublas_conv_prepare;
DP_CHECKED DP_OP_TYPE(conv_forward) dp_cublas_conv_forward;
DP_CHECKED DP_OP_TYPE(conv_backward_data) dp_cublas_conv_backward_data;
DP_CHECKED DP_OP_TYPE(conv_backward_weights) dp_cublas_conv_backward_weights;

/* ---- of several groups, where cuDNN has no plan: group_conv.cu; nothing is prepared ---- */

DP_CHECKED DP_OP_TYPE(conv_forward) dp_cuda_group_conv_forward;
DP_CHECKED DP_OP_TYPE(conv_backward_data) dp_cuda_group_conv_backward_data;
DP_CHECKED dp_status dp_cuda_group_conv_backward_weights(struct dp_stream *s, float *dw,
                                                         const void *dy, const void *x,
                                                         const struct dp_window *w, size_t rows,
                                                         float keep);

/* ---- cudnn ---- */

struct dp_conv;  /* prepared; belongs to the stream */
struct dp_convs; /* all of a stream */

/* One use of a convolution: of `uses` one of forward and the two backwards, with what belongs to
 * it; rows above 0. found: whether there is a plan for it. Preparing again costs nothing.
 * Errors: DP_ERR_UNAVAILABLE (no library), DP_ERR_NOMEM, DP_ERR_CUDA. */
DP_CHECKED dp_status dp_cudnn_conv_prepare(struct dp_stream *s, const struct dp_window *w,
                                           size_t rows, unsigned uses, bool *found);

/* What was prepared, or NULL. */
const struct dp_conv *dp_cudnn_conv_find(const struct dp_stream *s, const struct dp_window *w,
                                         size_t rows, unsigned uses);

/* As the operations; weights and biases at multiples of 16 bytes, images as many samples after
 * one.
 *
 * Errors: DP_ERR_UNAVAILABLE (cuDNN does not run it; nothing was written, and it is not found any
 * more. Logged as an error where the stream asks for cudnn, else the first is a warning);
 * DP_ERR_ARG; DP_ERR_CUDA. */
DP_CHECKED dp_status dp_cudnn_conv_forward(struct dp_stream *s, const struct dp_conv *conv, void *y,
                                           const void *x, const void *weights, const void *bias);
DP_CHECKED dp_status dp_cudnn_conv_backward_data(struct dp_stream *s, const struct dp_conv *conv,
                                                 void *dx, const void *dy, const void *weights);
DP_CHECKED dp_status dp_cudnn_conv_backward_weights(struct dp_stream *s, const struct dp_conv *conv,
                                                    float *dw, const void *dy, const void *x,
                                                    float keep);

void dp_convs_destroy(struct dp_convs *convs); /* NULL is allowed */

/* Forgets what was prepared, which the stream is through with. NULL is allowed. */
void dp_convs_forget(struct dp_convs *convs);

/* ---- what is left to do after a plan: conv.cu ---- */

/* y = act(y + bias): y [pixels, channels], bias [channels] or NULL; both in the compute type. */
DP_CHECKED dp_status dp_cuda_bias_act(struct dp_stream *s, void *y, const void *bias, size_t pixels,
                                      size_t channels, enum dp_activation act);

/* dw = keep dw + x; x of `type`; [count]. */
DP_CHECKED dp_status dp_cuda_keep_grad(struct dp_stream *s, float *dw, const void *x,
                                       enum dp_type type, size_t count, float keep);

#endif
