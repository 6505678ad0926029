/*
 * conv_shape.h - the convolutions that tests go through, as rows of a table.
 */
#ifndef DP_TESTS_SUPPORT_TILES_CONV_SHAPE_H
#define DP_TESTS_SUPPORT_TILES_CONV_SHAPE_H

#include "kernels/device.h"

struct shape {
    size_t rows, height, width, in_c, out_c, kernel_h, kernel_w, stride, padding;
};

static inline struct dp_window window_of(const struct shape *s)
{
    return (struct dp_window){
        .in_h = s->height,
        .in_w = s->width,
        .in_c = s->in_c,
        .out_h = (s->height + 2 * s->padding - s->kernel_h) / s->stride + 1,
        .out_w = (s->width + 2 * s->padding - s->kernel_w) / s->stride + 1,
        .out_c = s->out_c,
        .kernel_h = s->kernel_h,
        .kernel_w = s->kernel_w,
        .stride = s->stride,
        .padding = s->padding,
        .groups = 1,
    };
}

#endif
