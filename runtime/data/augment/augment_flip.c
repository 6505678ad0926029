/*
 * augment_flip.c - left and right change places, with probability p.
 */
#include <string.h>

#include "runtime/data/augment/augmentation.h"

struct flip {
    double p;
};

static const struct dp_option options[] = {
    DP_DOUBLE(struct flip, p, "0.5", 0, 1, "how often"),
    {0},
};

static void apply(const void *state, const struct dp_sample_shape *shape,
                  const struct dp_draw *draw, const uint8_t *in, uint8_t *out)
{
    const struct flip *flip = state;
    const size_t pixel = (size_t)shape->channels * dp_element_bytes(shape->element);
    const size_t width = (size_t)shape->width, row = width * pixel;
    uint32_t bits[4];

    dp_draw_block(draw, 0, bits);
    if ((double)dp_random_unit(bits[0]) >= flip->p) {
        memcpy(out, in, dp_shape_bytes(shape));
        return;
    }
    for (int y = 0; y < shape->height; y++, in += row, out += row) {
        for (size_t x = 0; x < width; x++) {
            memcpy(out + x * pixel, in + (width - 1 - x) * pixel, pixel);
        }
    }
}

const struct dp_augmentation dp_augmentation_flip = {
    .plugin = {.name = "flip",
               .help = "left and right change places",
               .options = options,
               .state_bytes = sizeof(struct flip)},
    .apply = apply,
};
