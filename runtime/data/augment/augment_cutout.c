/*
 * augment_cutout.c - a black square, whose middle may be anywhere.
 *
 * Source: DeVries and Taylor, "Improved regularization of convolutional neural networks with
 * cutout", 2017, section 3.
 */
#include <string.h>

#include "runtime/data/augment/augmentation.h"

struct cutout {
    int size;
};

static const struct dp_option options[] = {
    DP_INT(struct cutout, size, "8", 1, 4096, "pixels in each direction"),
    {0},
};

/* The part of [middle - size / 2, + size) within [0, length). */
static void span(int middle, int size, int length, int *begin, int *end)
{
    *begin = middle - size / 2 > 0 ? middle - size / 2 : 0;
    *end = middle - size / 2 + size < length ? middle - size / 2 + size : length;
}

static void apply(const void *state, const struct dp_sample_shape *shape,
                  const struct dp_draw *draw, const uint8_t *in, uint8_t *out)
{
    const struct cutout *cutout = state;
    const size_t pixel = (size_t)shape->channels * dp_element_bytes(shape->element);
    int top, bottom, left, right;
    uint32_t bits[4];

    memcpy(out, in, dp_shape_bytes(shape));
    dp_draw_block(draw, 0, bits);
    span(dp_draw_below(bits[0], shape->height), cutout->size, shape->height, &top, &bottom);
    span(dp_draw_below(bits[1], shape->width), cutout->size, shape->width, &left, &right);
    for (int y = top; y < bottom; y++) {
        memset(out + ((size_t)y * (size_t)shape->width + (size_t)left) * pixel, 0,
               (size_t)(right - left) * pixel);
    }
}

const struct dp_augmentation dp_augmentation_cutout = {
    .plugin = {.name = "cutout",
               .help = "a black square",
               .options = options,
               .state_bytes = sizeof(struct cutout)},
    .apply = apply,
};
