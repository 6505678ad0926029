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

/* Sixteen vectors of sixteen 32-bit numbers become their columns. */
DP_AMX static inline void dp_amx_transpose(__m512i v[DP_AMX_ROWS])
{
    __m512i t[DP_AMX_ROWS];

    for (int i = 0; i < DP_AMX_ROWS; i += 2) {
        t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int i = 0; i < DP_AMX_ROWS; i += 4) {
        v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        v[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        v[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        v[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        v[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

#endif
#endif
