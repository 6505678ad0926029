/*
 * block.h - some samples after one another, as one piece of a shard that is hashed, and may be
 * compressed.
 *
 * Decompressed a block holds, of n samples: n labels, each of one or more float64; where samples
 * are of several sizes, n ends of samples, 4 bytes each, counted in the samples' bytes; the
 * samples. Those are the bytes of an array, the file of a picture, or the pixels of one behind 12
 * bytes: height, width, channels.
 */
#ifndef DP_RUNTIME_DATA_RECORDS_BLOCK_H
#define DP_RUNTIME_DATA_RECORDS_BLOCK_H

#include "runtime/data/buffer.h"
#include "runtime/data/records/shard_format.h"

enum { DP_BLOCK_PIXELS_HEAD = 12 };

/* What all samples of a folder have in common. */
struct dp_block_form {
    size_t sample_bytes;  /* of each sample; 0: each has its own size */
    size_t label_numbers; /* of each label, 1 or more */
};

/* ---- writing ---- */

/* A block that is being filled. Begins with zeros, but for its form. */
struct dp_block_builder {
    struct dp_block_form form;
    struct dp_buffer data, labels, payload;
    size_t used;
    uint32_t samples;
    uint32_t ends[DP_SHARD_BLOCK_SAMPLES];
};

/* Whether a sample of so many bytes still fits a block that is to have `most` bytes; an empty
 * block takes any. Labels of several numbers count, so that a block of them is no larger. */
bool dp_block_fits(const struct dp_block_builder *builder, size_t bytes, size_t most);

/* Adds a sample that fits, and its label [label_numbers]. False: there is no memory. */
bool dp_block_add(struct dp_block_builder *builder, const void *data, size_t bytes,
                  const double *label, size_t most);

/* The block's bytes, in `payload`; it is empty afterwards. Returns how many; 0: no memory. */
size_t dp_block_finish(struct dp_block_builder *builder);
void dp_block_builder_release(struct dp_block_builder *builder);

/* Compresses by zstd into `out`. Returns the bytes, 0 where that saves less than a sixteenth.
 * Errors: DP_ERR_NOMEM. */
struct dp_block_packer;
DP_CHECKED dp_status dp_block_packer_create(int level, struct dp_block_packer **out);
void dp_block_packer_destroy(struct dp_block_packer *packer);
DP_CHECKED dp_status dp_block_pack(struct dp_block_packer *packer, const void *raw, size_t bytes,
                                   struct dp_buffer *out, size_t *packed);

/* The levels of zstd. */
void dp_block_levels(int *least, int *most);

/* ---- reading ---- */

/* Decompresses. `memory` also holds what zstd works with.
 *
 *   raw  out  [block->raw] in `memory`
 *
 * Errors: DP_ERR_DATA, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_block_unpack(const struct dp_shard_block *block, const void *stored,
                                     struct dp_buffer *memory, const uint8_t **raw,
                                     struct dp_problem *problem);

/* The same to where the caller wants a compressed block; `memory` holds what zstd works with.
 *
 *   out  out  [block->raw] */
DP_CHECKED dp_status dp_block_unpack_to(const struct dp_shard_block *block, const void *stored,
                                        struct dp_buffer *memory, uint8_t *out,
                                        struct dp_problem *problem);

/* The most of `memory` that either of them takes; where `out` is elsewhere, without the block. */
size_t dp_block_work_bytes(void);

/* What a decompressed block holds; borrows its bytes. */
struct dp_block_view {
    const uint8_t *labels, *ends, *data;
    struct dp_block_form form;
    uint32_t samples;
};

/* Errors: DP_ERR_DATA: its parts do not make up its bytes; `sample` is the first that is wrong. */
DP_CHECKED dp_status dp_block_open(const struct dp_shard_block *block, const uint8_t *raw,
                                   const struct dp_block_form *form, struct dp_block_view *view,
                                   struct dp_problem *problem);

/* Sample i < samples: its bytes, and their number. */
const uint8_t *dp_block_sample(const struct dp_block_view *view, uint32_t i, size_t *bytes);

/* Number `k` of its label; and all of them [label_numbers], borrowed: where the block's bytes begin
 * as memory of doubles must. */
double dp_block_label(const struct dp_block_view *view, uint32_t i, size_t k);
const double *dp_block_numbers(const struct dp_block_view *view, uint32_t i);

/* Of pixels: writes and reads what stands before them. Errors: DP_ERR_DATA: no picture has that
 * size, or so many bytes. */
void dp_block_pixels_head(uint8_t out[DP_BLOCK_PIXELS_HEAD], int height, int width, int channels);
DP_CHECKED dp_status dp_block_pixels(const uint8_t *sample, size_t bytes,
                                     struct dp_sample_shape *shape, struct dp_problem *problem);

#endif
