/*
 * augment_random_resized_crop.c - a part of random area and proportions, scaled to the whole size.
 *
 * As torchvision's RandomResizedCrop: up to ten tries for a part that fits, else the largest in the
 * middle with proportions within the bounds. Here it is scaled where the picture has the size
 * already; of others the part is chosen here, and scaled when they are decoded (decode.h).
 *
 * Source: Szegedy et al., "Going deeper with convolutions", CVPR 2015, section 6.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/augment/augmentation.h"

enum { TRIES = 10 };

static const double ratio_low = 3.0 / 4.0, ratio_high = 4.0 / 3.0;

struct random_resized_crop {
    int size;
    double scale;
};

static const struct dp_option options[] = {
    DP_INT(struct random_resized_crop, size, "0", 0, 65536,
           "height and width of what is made; 0: those of model.input"),
    DP_DOUBLE(struct random_resized_crop, scale, "0.08", 0.0001, 1,
              "the least part of the area; the largest is all of it"),
    {0},
};

static const char *refuse(const void *state, const struct dp_sample_shape *shape)
{
    const struct random_resized_crop *crop = state;

    return crop->size == 0 || (crop->size == shape->height && crop->size == shape->width)
               ? NULL
               : "size must be the height and the width of model.input, or 0";
}

static struct dp_part middle_part(int height, int width)
{
    const double ratio = (double)width / height;
    struct dp_part part = {.height = height, .width = width};

    if (ratio < ratio_low) {
        part.height = (int)lround(part.width / ratio_low);
    } else if (ratio > ratio_high) {
        part.width = (int)lround(part.height * ratio_high);
    }
    part.top = (height - part.height) / 2;
    part.left = (width - part.width) / 2;
    return part;
}

static struct dp_part choose_part(const struct random_resized_crop *crop, int height, int width,
                                  const struct dp_draw *draw)
{
    const double all = (double)height * width;
    const double low = log(ratio_low), high = log(ratio_high);

    for (uint32_t i = 0; i < TRIES; i++) {
        uint32_t bits[4];

        dp_draw_block(draw, i, bits);
        const double unit = (double)dp_random_unit(bits[0]);
        const double area = all * (crop->scale + (1.0 - crop->scale) * unit);
        const double ratio = exp(low + (high - low) * (double)dp_random_unit(bits[1]));
        struct dp_part part = {.height = (int)lround(sqrt(area / ratio)),
                               .width = (int)lround(sqrt(area * ratio))};

        if (part.height > 0 && part.height <= height && part.width > 0 && part.width <= width) {
            part.top = dp_draw_below(bits[2], height - part.height + 1);
            part.left = dp_draw_below(bits[3], width - part.width + 1);
            return part;
        }
    }
    return middle_part(height, width);
}

/* Where output pixel `i` of `count` lies among `from` pixels from `begin` on: between *first and
 * *second, *second's share in return. Middles of pixels lie at halves. */
static float place(int i, int count, int begin, int from, size_t *first, size_t *second)
{
    const double at = fmax(((double)i + 0.5) * from / count - 0.5, 0.0);
    const int whole = (int)at;

    *first = (size_t)begin + (size_t)whole;
    *second = *first + (whole + 1 < from ? 1 : 0);
    return (float)(at - whole);
}

static float mix(float a, float b, float share)
{
    return a + (b - a) * share;
}

static void scale_bytes(const struct dp_sample_shape *shape, const struct dp_part *part,
                        const uint8_t *in, uint8_t *out)
{
    const size_t channels = (size_t)shape->channels, row = (size_t)shape->width * channels;
    size_t up, down, left, right;

    for (int y = 0; y < shape->height; y++) {
        const float low = place(y, shape->height, part->top, part->height, &up, &down);
        const uint8_t *above = in + up * row, *below = in + down * row;

        for (int x = 0; x < shape->width; x++) {
            const float far = place(x, shape->width, part->left, part->width, &left, &right);
            const uint8_t *a = above + left * channels, *b = above + right * channels;
            const uint8_t *c = below + left * channels, *d = below + right * channels;

            for (size_t i = 0; i < channels; i++) {
                *out++ = (uint8_t)(mix(mix(a[i], b[i], far), mix(c[i], d[i], far), low) + 0.5f);
            }
        }
    }
}

static void scale_floats(const struct dp_sample_shape *shape, const struct dp_part *part,
                         const float *in, float *out)
{
    const size_t channels = (size_t)shape->channels, row = (size_t)shape->width * channels;
    size_t up, down, left, right;

    for (int y = 0; y < shape->height; y++) {
        const float low = place(y, shape->height, part->top, part->height, &up, &down);
        const float *above = in + up * row, *below = in + down * row;

        for (int x = 0; x < shape->width; x++) {
            const float far = place(x, shape->width, part->left, part->width, &left, &right);
            const float *a = above + left * channels, *b = above + right * channels;
            const float *c = below + left * channels, *d = below + right * channels;

            for (size_t i = 0; i < channels; i++) {
                *out++ = mix(mix(a[i], b[i], far), mix(c[i], d[i], far), low);
            }
        }
    }
}

static void apply(const void *state, const struct dp_sample_shape *shape,
                  const struct dp_draw *draw, const uint8_t *in, uint8_t *out)
{
    const struct dp_part part = choose_part(state, shape->height, shape->width, draw);

    if (shape->element == DP_ELEMENT_BYTE) {
        scale_bytes(shape, &part, in, out);
    } else {
        scale_floats(shape, &part, (const float *)(const void *)in, (float *)(void *)out);
    }
}

static void part_of(const void *state, int height, int width, const struct dp_draw *draw,
                    struct dp_part *part)
{
    *part = choose_part(state, height, width, draw);
}

const struct dp_augmentation dp_augmentation_random_resized_crop = {
    .plugin = {.name = "random_resized_crop",
               .help = "a random part, scaled to the whole size",
               .options = options,
               .state_bytes = sizeof(struct random_resized_crop)},
    .refuse = refuse,
    .part = part_of,
    .apply = apply,
};
