/*
 * decode.h - a raw sample becomes what the model takes: the stage between reading and batches.
 */
#ifndef DP_RUNTIME_DATA_DECODE_H
#define DP_RUNTIME_DATA_DECODE_H

#include "runtime/data/pictures/pixels.h"
#include "runtime/data/sample.h"

/* For one thread at a time. */
struct dp_decoder;

/* Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_decoder_create(struct dp_decoder **out);
void dp_decoder_destroy(struct dp_decoder *decoder);

/* Bytes that it works in by now, without those of libraries. */
size_t dp_decoder_memory(const struct dp_decoder *decoder);

/*
 * Whether samples of shape `have` can become those of shape `want`: arrays with as many elements
 * stay as they are; pictures, and images of bytes unless `resize` is auto, get another size. Grey
 * becomes colour, and colour grey.
 *
 * Errors: DP_ERR_DATA; `problem` says what would fit: "... do not fit ...: set ...".
 */
DP_CHECKED dp_status dp_decode_check(const struct dp_sample_shape *have,
                                     const struct dp_sample_shape *want, enum dp_resize resize,
                                     struct dp_problem *problem);

/*
 * Decodes a sample whose shape has been checked.
 *
 *   out  out  [dp_shape_bytes(want)]
 *
 * Errors: DP_ERR_DATA (a damaged picture), DP_ERR_NOMEM; `problem` says why, nothing is logged.
 */
DP_CHECKED dp_status dp_decode(struct dp_decoder *decoder, const struct dp_raw *raw,
                               const struct dp_sample_shape *want, enum dp_resize resize, void *out,
                               struct dp_problem *problem);

/* Which part of a picture becomes the sample. */
struct dp_crop {
    void (*choose)(void *context, int height, int width, struct dp_part *part);
    void *context;
};

/*
 * The same of part of a picture, or of an image of bytes, scaled to the size that is wanted. The
 * chosen part is read at half its size, a quarter or an eighth where the file allows it and that is
 * not smaller than what is wanted. What lies below the part is not looked at.
 */
DP_CHECKED dp_status dp_decode_part(struct dp_decoder *decoder, const struct dp_raw *raw,
                                    const struct dp_sample_shape *want, const struct dp_crop *crop,
                                    void *out, struct dp_problem *problem);

/* The pixels of a raw sample that is a picture, or an image of bytes, in its own size; valid until
 * the next call. channels 1: grey. Errors: as above. */
DP_CHECKED dp_status dp_decode_pixels(struct dp_decoder *decoder, const struct dp_raw *raw,
                                      int channels, struct dp_picture *out,
                                      struct dp_problem *problem);

#endif
