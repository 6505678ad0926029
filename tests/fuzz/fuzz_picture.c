/*
 * fuzz_picture.c - libFuzzer: whatever bytes a file holds, it is a picture of a size that is taken,
 * or refused with a text; and neither harms the decoder.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/pictures/jpeg_part.h"
#include "runtime/data/pictures/picture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A small PNG of 1 x 1 pixels, which must be read after whatever came before. */
static const uint8_t small[] = {
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48,
    0x44, 0x52, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00, 0x00, 0x00,
    0x00, 0x3a, 0x7e, 0x9b, 0x55, 0x00, 0x00, 0x00, 0x0a, 0x49, 0x44, 0x41, 0x54, 0x78,
    0x9c, 0x63, 0x60, 0x00, 0x00, 0x00, 0x02, 0x00, 0x01, 0x48, 0xaf, 0xa4, 0x71, 0x00,
    0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82};

static void decode(struct dp_jpeg *jpeg, struct dp_buffer *memory, const uint8_t *data, size_t size,
                   int channels)
{
    struct dp_problem problem = {.text = ""};
    struct dp_picture picture;
    unsigned sum = 0;

    if (dp_picture_decode(jpeg, data, size, channels, memory, &picture, &problem) != DP_OK) {
        if (problem.text[0] == '\0') {
            abort(); /* nothing says why */
        }
        return;
    }
    if (picture.width < 1 || picture.width > DP_PICTURE_SIDE || picture.height < 1 ||
        picture.height > DP_PICTURE_SIDE || (picture.channels != 1 && picture.channels != 3)) {
        abort();
    }
    for (size_t i = 0; i < (size_t)picture.width * (size_t)picture.height; i++) {
        sum += picture.pixels[i * (size_t)picture.channels];
    }
    (void)sum;
}

/* A part of a JPEG file, which its last bytes choose. */
static void decode_part(const uint8_t *data, size_t size)
{
    static struct dp_buffer memory;
    static struct dp_jpeg_part *decoder;
    struct dp_problem problem = {.text = ""};
    struct dp_picture whole, out;
    const int scale = 1 << data[size - 1] % 4;
    struct dp_part part = {.mirrored = false};
    bool parts;

    if (decoder == NULL && dp_jpeg_part_create(&decoder) != DP_OK) {
        abort();
    }
    if (dp_jpeg_part_open(decoder, data, size, 3, &whole, &parts, &problem) != DP_OK || !parts) {
        return;
    }
    whole.width = (whole.width + scale - 1) / scale;
    whole.height = (whole.height + scale - 1) / scale;
    part.left = data[size - 2] * whole.width / 256;
    part.top = data[size - 3] * whole.height / 256;
    part.width = 1 + data[size - 4] * (whole.width - part.left - 1) / 255;
    part.height = 1 + data[size - 5] * (whole.height - part.top - 1) / 255;
    if (dp_jpeg_part_decode(decoder, scale, &part, &memory, &out, &problem) == DP_OK &&
        (out.width != part.width || out.height != part.height)) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct dp_buffer memory;
    static struct dp_jpeg *jpeg;
    struct dp_problem problem;
    struct dp_picture picture;

    if (jpeg == NULL && dp_jpeg_create(&jpeg) != DP_OK) {
        abort();
    }
    decode(jpeg, &memory, data, size, 1);
    decode(jpeg, &memory, data, size, 3);
    if (size > 8 && dp_jpeg_is(data, size)) {
        decode_part(data, size);
    }
    if (dp_picture_decode(jpeg, small, sizeof(small), 3, &memory, &picture, &problem) != DP_OK) {
        abort();
    }
    return 0;
}
