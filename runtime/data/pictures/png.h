/*
 * png.h - PNG files, by libpng.
 */
#ifndef DP_RUNTIME_DATA_PICTURES_PNG_H
#define DP_RUNTIME_DATA_PICTURES_PNG_H

#include <stdbool.h>

#include "runtime/data/pictures/pixels.h"

/* Whether a file begins as a PNG does. */
bool dp_png_is(const uint8_t *bytes, size_t count);

/* As dp_picture_decode(), of such a file. */
DP_CHECKED dp_status dp_png_decode(const uint8_t *bytes, size_t count, int channels,
                                   struct dp_buffer *memory, struct dp_picture *out,
                                   struct dp_problem *problem);

#endif
