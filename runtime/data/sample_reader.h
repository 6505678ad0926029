/*
 * sample_reader.h - reads samples of an open data set in any order, as the model takes them. One
 * thread uses a reader at a time.
 */
#ifndef DP_RUNTIME_DATA_SAMPLE_READER_H
#define DP_RUNTIME_DATA_SAMPLE_READER_H

#include "runtime/data/decode.h"
#include "runtime/data/samples.h"
#include "runtime/data/stream/stage.h"

struct dp_sample_reader;

/* Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_sample_reader_create(struct dp_samples *samples,
                                             struct dp_sample_reader **out);

/* While `samples` is open. */
void dp_sample_reader_destroy(struct dp_sample_reader *reader);

/* Bytes that a reader will work in, without those of libraries: found by reading a few samples that
 * are spread over the training set. No copies are made for them in data.local_cache. 0: samples
 * cannot be read by themselves, or not these. */
size_t dp_sample_reader_need(struct dp_samples *samples);

/* From now on samples are parts of pictures, as dp_decode_part() makes them; NULL: whole ones.
 * `crop` is borrowed. */
void dp_sample_reader_crop(struct dp_sample_reader *reader, const struct dp_crop *crop);

/* Whether samples that are read from now on will not be read again soon, and neither those near
 * them: then they take no room that dp_samples_share() gives to others. */
void dp_sample_reader_pass(struct dp_sample_reader *reader, bool passes);

/* The sample as the source has it, until the next call. Errors: those of dp_source.fetch;
 * DP_ERR_DATA: its label is out of range. */
DP_CHECKED dp_status dp_sample_reader_raw(struct dp_sample_reader *reader, enum dp_set set,
                                          size_t i, struct dp_raw *raw);

/* The same, with its label as the model takes it [dp_label_words()]. */
DP_CHECKED dp_status dp_sample_reader_label(struct dp_sample_reader *reader, enum dp_set set,
                                            size_t i, struct dp_raw *raw, int32_t *label);

/* Sample `i` of a set, as the model takes it: out [dp_shape_bytes(shape)], and its label
 * [dp_label_words()]. Errors: as above, and DP_ERR_DATA: it is damaged. Each names the sample. */
DP_CHECKED dp_status dp_sample_reader_read(struct dp_sample_reader *reader, enum dp_set set,
                                           size_t i, void *out, int32_t *label);

/* The same; in the place of a bad sample (DP_ERR_DATA) stands the next good one of its set, counted
 * from its end to its begin. So what stands there depends on the data set alone. Counts the sample
 * in *skipped, and warns of the first few. Errors: as above; DP_ERR_DATA: hundreds in a row are
 * bad. */
DP_CHECKED dp_status dp_sample_reader_read_good(struct dp_sample_reader *reader, enum dp_set set,
                                                size_t i, void *out, int32_t *label,
                                                size_t *skipped);

/* Adds what the reader has done since the last call. */
void dp_sample_reader_take_times(struct dp_sample_reader *reader, struct dp_stage_times *sum);

#endif
