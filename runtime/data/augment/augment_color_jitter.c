/*
 * augment_color_jitter.c - random brightness, contrast and saturation, in this order.
 *
 * Each factor is drawn from 1 - x to 1 + x. As torchvision's ColorJitter, which changes the order
 * at random, and has a hue as well. Luma is that of ITU-R BT.601.
 */
#include <math.h>
#include <string.h>

#include "runtime/data/augment/augmentation.h"

struct color_jitter {
    double brightness, contrast, saturation;
};

static const struct dp_option options[] = {
    DP_DOUBLE(struct color_jitter, brightness, "0.4", 0, 1, "0: unchanged"),
    DP_DOUBLE(struct color_jitter, contrast, "0.4", 0, 1, "0: unchanged"),
    DP_DOUBLE(struct color_jitter, saturation, "0.4", 0, 1, "0: unchanged"),
    {0},
};

static const char *refuse(const void *state, const struct dp_sample_shape *shape)
{
    (void)state;
    if (shape->element != DP_ELEMENT_BYTE) {
        return "only of bytes, whose range is known";
    }
    return shape->channels == 1 || shape->channels == 3 ? NULL : "only of 1 or 3 channels";
}

static float luma(const float *pixel, size_t channels)
{
    return channels == 3 ? 0.299f * pixel[0] + 0.587f * pixel[1] + 0.114f * pixel[2] : pixel[0];
}

/* Brightened, and within the range of a byte. */
static void brighten(const uint8_t *in, size_t channels, float factor, float *pixel)
{
    for (size_t i = 0; i < channels; i++) {
        pixel[i] = fminf((float)in[i] * factor, 255.0f);
    }
}

static float factor(uint32_t bits, double most)
{
    return 1.0f + (2.0f * dp_random_unit(bits) - 1.0f) * (float)most;
}

static void apply(const void *state, const struct dp_sample_shape *shape,
                  const struct dp_draw *draw, const uint8_t *in, uint8_t *out)
{
    const struct color_jitter *jitter = state;
    const size_t channels = (size_t)shape->channels;
    const size_t pixels = (size_t)shape->height * (size_t)shape->width;
    float pixel[3] = {0}, gray, mean;
    double sum = 0.0;
    uint32_t bits[4];

    dp_draw_block(draw, 0, bits);
    const float bright = factor(bits[0], jitter->brightness);
    const float contrast = factor(bits[1], jitter->contrast);
    const float saturation = factor(bits[2], jitter->saturation);

    for (size_t p = 0; p < pixels; p++) {
        brighten(in + p * channels, channels, bright, pixel);
        sum += (double)luma(pixel, channels);
    }
    mean = (float)(sum / (double)pixels);
    for (size_t p = 0; p < pixels; p++) {
        brighten(in + p * channels, channels, bright, pixel);
        for (size_t i = 0; i < channels; i++) {
            pixel[i] = fminf(fmaxf(mean + (pixel[i] - mean) * contrast, 0.0f), 255.0f);
        }
        gray = luma(pixel, channels);
        for (size_t i = 0; i < channels; i++) {
            const float value = gray + (pixel[i] - gray) * saturation;
            out[p * channels + i] = (uint8_t)(fminf(fmaxf(value, 0.0f), 255.0f) + 0.5f);
        }
    }
}

const struct dp_augmentation dp_augmentation_color_jitter = {
    .plugin = {.name = "color_jitter",
               .help = "random brightness, contrast and saturation",
               .options = options,
               .state_bytes = sizeof(struct color_jitter)},
    .refuse = refuse,
    .apply = apply,
};
