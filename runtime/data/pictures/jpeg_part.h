/*
 * jpeg_part.h - part of a JPEG file, by libjpeg-turbo's libjpeg API: lines above it are only
 * parsed, lines below it not even read, and columns beside it not transformed.
 *
 * What comes out is that part of the whole picture (jpeg.h), bit for bit; but at half, a quarter or
 * an eighth of the size, where the library leaves out the fine frequencies of each block.
 */
#ifndef DP_RUNTIME_DATA_PICTURES_JPEG_PART_H
#define DP_RUNTIME_DATA_PICTURES_JPEG_PART_H

#include <stdbool.h>

#include "runtime/data/pictures/pixels.h"
#include "runtime/data/sample.h"

struct dp_jpeg_part;

/* A decoder, used by one thread at a time. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_jpeg_part_create(struct dp_jpeg_part **out);
void dp_jpeg_part_destroy(struct dp_jpeg_part *decoder);

/*
 * Reads the header of a file in memory, which must stay there until dp_jpeg_part_decode() has
 * returned.
 *
 *   channels  1: colour becomes grey; otherwise as the file has it
 *   size      out  height and width
 *   parts     out  false: parts of such a file cannot be decoded (progressive ones): decode it
 *                  whole
 *
 * Errors: as dp_picture_decode().
 */
DP_CHECKED dp_status dp_jpeg_part_open(struct dp_jpeg_part *decoder, const uint8_t *bytes,
                                       size_t count, int channels, struct dp_picture *size,
                                       bool *parts, struct dp_problem *problem);

/*
 * Decodes part of the file that was opened last.
 *
 *   scale   1, 2, 4 or 8: the whole picture has so much smaller sides, rounded up
 *   part    of the scaled picture
 *   memory  gets the pixels
 *   out     out  of the part's size; its lines may be further apart
 *
 * Errors: as above.
 */
DP_CHECKED dp_status dp_jpeg_part_decode(struct dp_jpeg_part *decoder, int scale,
                                         const struct dp_part *part, struct dp_buffer *memory,
                                         struct dp_picture *out, struct dp_problem *problem);

#endif
