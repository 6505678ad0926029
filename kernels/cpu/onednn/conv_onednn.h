/*
 * conv_onednn.h - convolutions by oneDNN, in a type for which it has arithmetic: float32, and
 * bfloat16 where dp_cpu_has_bf16(). Contracts are those of kernels/ops.h, for any type of the
 * stream.
 */
#ifndef DP_KERNELS_CPU_ONEDNN_CONV_ONEDNN_H
#define DP_KERNELS_CPU_ONEDNN_CONV_ONEDNN_H

#include "base/status.h"
#include "kernels/device.h"

DP_CHECKED dp_status dp_conv_prepare(struct dp_stream *s, enum dp_type type,
                                     const struct dp_window *w, size_t rows, unsigned uses);
/* Without an activation: the maximum that oneDNN could append to the convolution turns a NaN into
 * 0, which would hide that training has diverged. */
DP_CHECKED dp_status dp_conv_forward(struct dp_stream *s, enum dp_type type, void *y, const void *x,
                                     const void *weights, const void *bias,
                                     const struct dp_window *w, size_t rows);
DP_CHECKED dp_status dp_conv_backward_data(struct dp_stream *s, enum dp_type type, void *dx,
                                           const void *dy, const void *weights,
                                           const struct dp_window *w, size_t rows);
DP_CHECKED dp_status dp_conv_backward_weights(struct dp_stream *s, enum dp_type type, float *dw,
                                              float *db, const void *dy, const void *x,
                                              const struct dp_window *w, size_t rows, float keep);

#endif
