/*
 * augment_random_crop.c - shifts a picture by up to `padding` pixels in each direction; what comes
 * in from outside is black. As torchvision's RandomCrop(size, padding) on pictures of that size.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/data/augment/augmentation.h"

struct random_crop {
    int padding;
};

static const struct dp_option options[] = {
    DP_INT(struct random_crop, padding, "4", 0, 4096, "pixels that are added on each side"),
    {0},
};

static const char *refuse(const void *state, const struct dp_sample_shape *shape)
{
    const struct random_crop *crop = state;

    return crop->padding < shape->height && crop->padding < shape->width
               ? NULL
               : "padding must be less than the height and the width of model.input";
}

static void apply(const void *state, const struct dp_sample_shape *shape,
                  const struct dp_draw *draw, const uint8_t *in, uint8_t *out)
{
    const struct random_crop *crop = state;
    const size_t pixel = (size_t)shape->channels * dp_element_bytes(shape->element);
    const size_t row = (size_t)shape->width * pixel;
    uint32_t bits[4];

    dp_draw_block(draw, 0, bits);
    /* Pixel (y, x) comes from (y + down, x + right). */
    const int down = dp_draw_below(bits[0], 2 * crop->padding + 1) - crop->padding;
    const int right = dp_draw_below(bits[1], 2 * crop->padding + 1) - crop->padding;
    const size_t shift = (size_t)abs(right) * pixel;

    for (int y = 0; y < shape->height; y++, out += row) {
        if (y + down < 0 || y + down >= shape->height) {
            memset(out, 0, row);
            continue;
        }
        const uint8_t *from = in + (size_t)(y + down) * row;
        if (right < 0) {
            memset(out, 0, shift);
            memcpy(out + shift, from, row - shift);
        } else {
            memcpy(out, from + shift, row - shift);
            memset(out + row - shift, 0, shift);
        }
    }
}

const struct dp_augmentation dp_augmentation_random_crop = {
    .plugin = {.name = "random_crop",
               .help = "shifted by up to `padding` pixels, black outside",
               .options = options,
               .state_bytes = sizeof(struct random_crop)},
    .refuse = refuse,
    .apply = apply,
};
