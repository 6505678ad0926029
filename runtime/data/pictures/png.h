/*
 * png.h - PNG files, by libpng.
 */
#ifndef DP_RUNTIME_DATA_PICTURES_PNG_H
#define DP_RUNTIME_DATA_PICTURES_PNG_H

#include <stdbool.h>

#include "runtime/data/pictures/pixels.h"
#include "runtime/data/sample.h"

/* Whether a file begins as a PNG does. */
bool dp_png_is(const uint8_t *bytes, size_t count);

/* As dp_picture_decode(), of such a file. */
DP_CHECKED dp_status dp_png_decode(const uint8_t *bytes, size_t count, int channels,
                                   struct dp_buffer *memory, struct dp_picture *out,
                                   struct dp_problem *problem);

/*
 * Makes a file of pixels of 1 or 3 channels, without a loss.
 *
 *   memory  gets the file
 *   bytes   out  its length
 *
 * Errors: DP_ERR_NOMEM (also where libpng says something else).
 */
DP_CHECKED dp_status dp_png_encode(const struct dp_sample_shape *shape, const void *pixels,
                                   struct dp_buffer *memory, size_t *bytes);

#endif
