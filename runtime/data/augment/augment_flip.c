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

static bool mirrors(const void *state, const struct dp_draw *draw)
{
    const struct flip *flip = state;
    uint32_t bits[4];

    dp_draw_block(draw, 0, bits);
    return (double)dp_random_unit(bits[0]) < flip->p;
}

/* Faster where the compiler knows the size of a pixel. */
static inline __attribute__((always_inline)) void mirror(const uint8_t *in, size_t width,
                                                         size_t pixel, uint8_t *out)
{
    for (size_t x = 0; x < width; x++) {
        memcpy(out + x * pixel, in + (width - 1 - x) * pixel, pixel);
    }
}

static void mirror_row(const uint8_t *in, size_t width, size_t pixel, uint8_t *out)
{
    switch (pixel) {
    case 1:
        mirror(in, width, 1, out);
        break;
    case 3:
        mirror(in, width, 3, out);
        break;
    default:
        mirror(in, width, pixel, out);
    }
}

static void apply(const void *state, const struct dp_sample_shape *shape,
                  const struct dp_draw *draw, const uint8_t *in, uint8_t *out)
{
    const size_t pixel = (size_t)shape->channels * dp_element_bytes(shape->element);
    const size_t width = (size_t)shape->width, row = width * pixel;

    if (!mirrors(state, draw)) {
        memcpy(out, in, dp_shape_bytes(shape));
        return;
    }
    for (int y = 0; y < shape->height; y++, in += row, out += row) {
        mirror_row(in, width, pixel, out);
    }
}

const struct dp_augmentation dp_augmentation_flip = {
    .plugin = {.name = "flip",
               .help = "left and right change places",
               .options = options,
               .state_bytes = sizeof(struct flip)},
    .mirrors = mirrors,
    .apply = apply,
};
