/*
 * conv_weights_amx.h - the gradient of a convolution's weights by AMX: bfloat16, sums in float32.
 *
 * The weight of kernel position (ky, kx) from channel i to channel o has the gradient
 *
 *   sum over images, oy, ox of  x[oy stride + ky - padding][ox stride + kx - padding][i]
 *                             * dy[oy][ox][o]
 *
 * which is a product of matrices with the pixels as the inner dimension. x is copied with a plane
 * of pixels for each channel, so that a row of a tile is 32 pixels of one channel, and another
 * kernel position is another address in that plane; dy is copied as pairs of pixels. Tiles of the
 * result stay in registers over the pixels that fit into the first cache.
 */
#ifndef DP_KERNELS_CPU_AMX_CONV_WEIGHTS_AMX_H
#define DP_KERNELS_CPU_AMX_CONV_WEIGHTS_AMX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/device.h"

/* Whether this processor can, for these sizes: one group. */
bool dp_conv_weights_amx_can(const struct dp_window *w);

/* Bytes of scratch for `rows` images. */
size_t dp_conv_weights_amx_bytes(const struct dp_window *w, size_t rows);

/* Arrays as those of conv_backward_weights in kernels/ops.h. */
struct dp_conv_weights_amx {
    const struct dp_window *w;
    size_t rows;
    const uint16_t *x, *dy;
    float *dw;
    float *db;     /* NULL: not wanted */
    bool adds;     /* dw and db are added to, else set */
    void *scratch; /* dp_conv_weights_amx_bytes(), aligned to 64 bytes */
};

/* Computes on `threads` threads. The result does not depend on their number. */
void dp_conv_weights_amx(const struct dp_conv_weights_amx *call, int threads);

#endif
