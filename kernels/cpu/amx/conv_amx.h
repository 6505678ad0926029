/*
 * conv_amx.h - convolutions by tiles that multiply bfloat16, of bfloat16, or of float32 as sums of
 * three bfloats with the errors and limits of gemm_amx.h: as products of matrices, by the planes of
 * conv_grid.h.
 *
 * For y and dx a row of A is a pixel's 32 channels, and blocks of weights, in the order in which
 * sums need them, are B. For dw, sums over pixels, A are 32 channels of dy, and B pairs of pixels
 * of 16 channels of x: each pixel is in two pairs, so that any distance in a plane is one of rows.
 *
 * A step of 32 products has the rounding errors of one addition, also where most of them are
 * beyond the end of a row: with few outputs a row, dw's errors are larger than those of adding up
 * one after the other (test_conv_amx).
 *
 * Bits do not depend on threads; those of y and dx not on how many images there are.
 */
#ifndef DP_KERNELS_CPU_AMX_CONV_AMX_H
#define DP_KERNELS_CPU_AMX_CONV_AMX_H

#include "kernels/cpu/amx/conv_call.h"

/* Whether this processor can, for these sizes: one group, stride 1 or 2, at most 25 kernel
 * positions, and multiples of 32 channels. */
bool dp_conv_amx_can(const struct dp_window *w);

/* Bytes of scratch. */
size_t dp_conv_amx_bytes(const struct dp_conv_call *call, int threads);

/* Computes on `threads` threads. */
void dp_conv_amx(const struct dp_conv_call *call, int threads);

/* Of these, the gradient of weights: conv_gradient_amx.c. Only where dp_conv_amx_can(). */
size_t dp_conv_gradient_amx_bytes(const struct dp_conv_call *call, int threads);
void dp_conv_gradient_amx(const struct dp_conv_call *call, int threads);

#endif
