/*
 * pixels_amx.h - copies of a convolution's arrays from which tiles are loaded: planes of pixels of
 * x, and pairs of pixels of dy. See conv_weights_amx.h for what they are for.
 *
 * The copy of x holds, for each image and channel, a plane for each remainder that a padded
 * coordinate leaves when it is divided by the stride: stride * stride of them. Position (ky, kx) of
 * the kernel begins at pixel (ky / stride, kx / stride) of plane (ky % stride, kx % stride), and
 * the next output pixel is the next one there. Rows of planes and of dy have the same `pitch`; what
 * dy lacks of it is 0, so the pixels that only the pitch brings together do not count.
 */
#ifndef DP_KERNELS_CPU_AMX_PIXELS_AMX_H
#define DP_KERNELS_CPU_AMX_PIXELS_AMX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/amx/amx.h"
#include "kernels/device.h"

struct dp_amx_pixels {
    const struct dp_window *w;
    size_t rows;
    const uint16_t *from_x, *from_dy;
    size_t stride, pitch, plane; /* pitch and plane in bfloats */
    bool few;                    /* fewer input channels than a tile has rows */
    size_t channels;             /* of the copy of x: a multiple of DP_AMX_ROWS, or few */
    size_t channel;              /* bfloats of a channel's planes */
    size_t steps;                /* of DP_AMX_DEPTH pixels, that an image takes */
    size_t blocks;               /* of DP_AMX_ROWS output channels */

    /* [image, channel, plane, row, pitch], and [image, block, step, pair of pixels, channel, 2]. */
    size_t x_bytes, dy_bytes;
    uint16_t *x, *dy;
    float *totals; /* [block, channel]: the sums of dy over images and pixels */
};

/* The sizes, for `rows` images; the caller sets the pointers. `blocks` is rounded up to a multiple
 * of `across`. */
struct dp_amx_pixels dp_amx_pixels_of(const struct dp_window *w, size_t rows, size_t across);

#if DP_AMX_CODE

/* Copies part `part` of the images of x and of the blocks of dy. */
void dp_amx_pixels_copy(const struct dp_amx_pixels *p, int part, int parts);

#endif
#endif
