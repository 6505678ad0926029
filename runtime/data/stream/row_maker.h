/*
 * row_maker.h - a row of a batch: a sample of the training set, changed at random where that is
 * wanted, and its label. For one thread at a time.
 */
#ifndef DP_RUNTIME_DATA_STREAM_ROW_MAKER_H
#define DP_RUNTIME_DATA_STREAM_ROW_MAKER_H

#include "runtime/data/augment/augment.h"
#include "runtime/data/sample_reader.h"
#include "runtime/data/stream/stage.h"

struct dp_row_maker_config {
    const uint8_t *images;  /* borrowed; [count, sample_bytes]; NULL: `samples` are read */
    const int32_t *labels;  /* borrowed; [count, label_words] */
    const uint32_t *prints; /* borrowed; [count]: row_print.h; NULL: rows are not checked */
    size_t count, sample_bytes, label_words;
    struct dp_samples *samples;       /* borrowed */
    bool skips;                       /* another sample takes the place of a bad one */
    const struct dp_augment *augment; /* borrowed; NULL: samples stay as they are */
    bool pairs; /* where `augment` mixes: labels are classes, which become pairs (kernels/ops.h) */
};

struct dp_row_maker;

/* Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_row_maker_create(const struct dp_row_maker_config *config,
                                         struct dp_row_maker **out);

/* Has a row of images in memory brought to the caches, since rows lie in any order: call it before
 * another one is made. */
void dp_row_maker_expect(const struct dp_row_maker *maker, uint64_t row);

/*
 * Makes sample `row` as epoch `epoch` sees it.
 *
 *   image    out  [sample_bytes]
 *   label    out  [label_words], or DP_PAIR_WORDS of pairs; mixed numbers are weighted means
 *   skipped  in, out  counts bad samples in whose place another one stands
 *
 * Errors: those of dp_sample_reader_read(); DP_ERR_DISAGREE: an image in memory is another than
 * was read.
 */
DP_CHECKED dp_status dp_row_maker_make(struct dp_row_maker *maker, uint64_t epoch, uint64_t row,
                                       uint8_t *image, int32_t *label, size_t *skipped);

/* What it has done since the last call. */
void dp_row_maker_take_times(struct dp_row_maker *maker, struct dp_stage_times *out);

/* NULL is allowed. */
void dp_row_maker_destroy(struct dp_row_maker *maker);

#endif
