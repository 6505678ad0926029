/*
 * conv_grid.h - a convolution as products of matrices without a matrix of windows.
 *
 * An image is copied into planes, with its padding: for stride s into s x s of them, plane (a, b)
 * with the pixels [i s + a][j s + b]. In its plane, what kernel position (ky, kx) reads for output
 * (oy, ox) is pixel [oy + ky / s][ox + kx / s]. Rows of all planes are equally long, so if outputs
 * are counted with that length, too, the pixels that a kernel position reads for outputs one after
 * the other lie one after the other: it is a distance in a plane. Outputs beyond the end of a row
 * are computed, and left out.
 *
 * The gradient of the input has the same form, from one plane of dy: inputs whose places differ by
 * multiples of s make a pass, with the kernel positions that reach them.
 */
#ifndef DP_KERNELS_CPU_AMX_CONV_GRID_H
#define DP_KERNELS_CPU_AMX_CONV_GRID_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/device.h"

enum { DP_CONV_TAPS = 25, DP_CONV_STRIDE = 2, DP_CONV_PASSES = DP_CONV_STRIDE * DP_CONV_STRIDE };

/* A kernel position of a pass. */
struct dp_conv_tap {
    size_t plane, row; /* what it reads for the first output: a pixel of a plane */
    size_t at;         /* its place in the kernel */
};

/* Outputs [y + i step][x + j step] for i below `height` and j below `width`. */
struct dp_conv_pass {
    size_t y, x, height, width;
    size_t count; /* of taps */
    struct dp_conv_tap tap[DP_CONV_TAPS];
};

struct dp_conv_grid {
    size_t from_h, from_w, to_h, to_w; /* images that are read, and written */
    size_t stride;                     /* of planes in the image that is read */
    size_t pad_y, pad_x;               /* before it */
    size_t across, planes;             /* planes in a row of them, and all */
    size_t width, rows;                /* a plane's row, and its pixels, with those after its end */
    size_t step;                       /* between outputs of a pass */
    size_t panels;                     /* 32 outputs each, of the longest pass */
    size_t passes;
    struct dp_conv_pass pass[DP_CONV_PASSES];
};

/* Whether there is one: one group, stride 1 or 2, at most 25 kernel positions. */
bool dp_conv_grid_can(const struct dp_window *w);

/* That of dx from dy, or of y from x, whose planes and outputs those of dw are, too. */
void dp_conv_grid_set(struct dp_conv_grid *g, const struct dp_window *w, bool back);

/* Bytes of dp_conv_grid_places(), in whole cache lines. */
size_t dp_conv_grid_bytes(const struct dp_conv_grid *g);

/* Sets where[planes][rows]: the pixel of the image that lies there; -1: padding. */
void dp_conv_grid_places(const struct dp_conv_grid *g, int *where);

#endif
