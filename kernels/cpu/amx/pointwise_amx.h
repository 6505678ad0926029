/*
 * pointwise_amx.h - convolutions of 1 x 1 in float32 by tiles that multiply bfloat16.
 *
 * They are products of matrices with a row for each pixel:
 *
 *   y = x w'     result             [pixels, out] from [pixels, in] and [out, in]
 *   dx = dy w    back to data
 *   dw = dy' x   back to weights    [out, in], a sum over all pixels
 *
 * in three bfloat16 for each float32, as in gemm_amx.h, with its errors and its limits. There are
 * many pixels and few weights, the other way round than in a dense layer. So the weights stay split
 * in the second cache, pixels are split while those before are multiplied. For dw the operand with
 * fewer channels stays there, some hundred pixels of it at a time.
 *
 * Bits do not depend on threads; those of a pixel not on how many there are.
 */
#ifndef DP_KERNELS_CPU_AMX_POINTWISE_AMX_H
#define DP_KERNELS_CPU_AMX_POINTWISE_AMX_H

#include "kernels/cpu/amx/conv_call.h"

/* Whether this processor can, for these sizes: 1 x 1, one group, stride 1, no padding, and
 * multiples of 32 channels. */
bool dp_pointwise_amx_can(const struct dp_window *w);

/* Bytes of scratch. */
size_t dp_pointwise_amx_bytes(const struct dp_conv_call *call, int threads);

/* Computes on `threads` threads. */
void dp_pointwise_amx(const struct dp_conv_call *call, int threads);

#endif
