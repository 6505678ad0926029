/*
 * jpeg.h - JPEG files, by libjpeg-turbo's TurboJPEG API.
 */
#ifndef DP_RUNTIME_DATA_PICTURES_JPEG_H
#define DP_RUNTIME_DATA_PICTURES_JPEG_H

#include <stdbool.h>

#include "runtime/data/pictures/pixels.h"

struct dp_jpeg;

/* A decoder and encoder, used by one thread at a time. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_jpeg_create(struct dp_jpeg **out);
void dp_jpeg_destroy(struct dp_jpeg *jpeg);

/* Whether a file begins as a JPEG does. */
bool dp_jpeg_is(const uint8_t *bytes, size_t count);

/* As dp_picture_decode(), of such a file. */
DP_CHECKED dp_status dp_jpeg_decode(struct dp_jpeg *jpeg, const uint8_t *bytes, size_t count,
                                    int channels, struct dp_buffer *memory, struct dp_picture *out,
                                    struct dp_problem *problem);

/*
 * Makes a file of pixels: with colour at half the resolution, as most files have it.
 *
 *   quality  1 to 100
 *   memory   gets the file
 *   bytes    out  its length
 *
 * Errors: DP_ERR_NOMEM (also where the library says something else).
 */
DP_CHECKED dp_status dp_jpeg_encode(struct dp_jpeg *jpeg, const struct dp_picture *picture,
                                    int quality, struct dp_buffer *memory, size_t *bytes);

#endif
