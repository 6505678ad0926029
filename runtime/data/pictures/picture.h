/*
 * picture.h - PNG and JPEG files into pixels.
 *
 * Taken are grey and colour pictures of 8 bits a channel. Palettes are looked up, transparency is
 * dropped, profiles, gamma and EXIF's orientation are ignored: as torchvision's ImageFolder reads
 * pictures. What is damaged in any way is refused: also where a decoder would go on with a warning.
 */
#ifndef DP_RUNTIME_DATA_PICTURES_PICTURE_H
#define DP_RUNTIME_DATA_PICTURES_PICTURE_H

#include "runtime/data/pictures/jpeg.h"

/*
 * Decodes a file that lies in memory.
 *
 *   jpeg      a decoder, which one thread uses at a time
 *   channels  1: colour becomes grey; otherwise as the file has it
 *   memory    gets the pixels
 *
 * Errors: DP_ERR_DATA (no such file, damaged, or of a kind or size that is not taken),
 * DP_ERR_NOMEM; `problem` says why, and nothing is logged.
 */
DP_CHECKED dp_status dp_picture_decode(struct dp_jpeg *jpeg, const uint8_t *bytes, size_t count,
                                       int channels, struct dp_buffer *memory,
                                       struct dp_picture *out, struct dp_problem *problem);

#endif
