/*
 * samples.h - an open data set: what every source gives, as the model takes it.
 *
 * Around a source this adds what all of them share: whether samples and classes fit the model, the
 * test set that is split off (split.h), decoding (decode.h), and reading several samples at once.
 */
#ifndef DP_RUNTIME_DATA_SAMPLES_H
#define DP_RUNTIME_DATA_SAMPLES_H

#include "runtime/data/source.h"

struct dp_samples;

struct dp_samples_info {
    size_t count[DP_SETS];        /* 1 or more each */
    struct dp_sample_shape shape; /* as they are given out; count 0: each has its own */
    int classes;                  /* as in struct dp_source_info */
    size_t targets;               /* a label is so many float32; 0: an int32, its class */
    const char *const *class_names;
    const char *note;
    bool any_order; /* readers can be had at once; else after dp_samples_hold() */
    bool whole;     /* dp_samples_load() can be used */
};

/*
 * Finds the files of a source, and reads their headers.
 *
 *   source  in   its name
 *   config  in   as in source.h; what it points to is borrowed until close
 *   out     out  owned by the caller, who gives it to dp_samples_close(); set only on success
 *
 * Errors: those of dp_source.open; DP_ERR_DATA (samples or classes do not fit the model, no test
 * set), DP_ERR_CONFIG (no such source).
 */
DP_CHECKED dp_status dp_samples_open(const char *source, const struct dp_source_config *config,
                                     struct dp_samples **out);
const struct dp_samples_info *dp_samples_info(const struct dp_samples *samples);

/* NULL is allowed. */
void dp_samples_close(struct dp_samples *samples);

/* Words of 4 bytes of a label, an int32 or float32 as above. */
static inline size_t dp_label_words(const struct dp_samples_info *info)
{
    return info->targets > 0 ? info->targets : 1;
}

/* Reads all samples in the order in which they lie, straight to where they belong. At most once.
 * Errors: those of dp_source.load; DP_ERR_DATA: a label is out of range. */
DP_CHECKED dp_status dp_samples_load(struct dp_samples *samples, uint8_t *const out[DP_SETS],
                                     int32_t *const labels[DP_SETS]);

/* Of a source without any_order: reads all of it into memory, so that it can be read from there.
 * Errors: those of dp_source.load. */
DP_CHECKED dp_status dp_samples_hold(struct dp_samples *samples);

/* Reads one sample after another, in any order; one thread uses it at a time. */
struct dp_sample_reader;

/* Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_sample_reader_create(struct dp_samples *samples,
                                             struct dp_sample_reader **out);
void dp_sample_reader_destroy(struct dp_sample_reader *reader);

/* The sample as the source has it, until the next call. Errors: those of dp_source.fetch;
 * DP_ERR_DATA: its label is out of range. */
DP_CHECKED dp_status dp_sample_reader_raw(struct dp_sample_reader *reader, enum dp_set set,
                                          size_t i, struct dp_raw *raw);

/* Sample `i` of a set, as the model takes it: out [dp_shape_bytes(shape)], and its label
 * [dp_label_words()]. Errors: as above, and DP_ERR_DATA: it is damaged. Each names the sample. */
DP_CHECKED dp_status dp_sample_reader_read(struct dp_sample_reader *reader, enum dp_set set,
                                           size_t i, void *out, int32_t *label);

/* Where sample `i` is to be found, for messages. */
void dp_samples_name(const struct dp_samples *samples, enum dp_set set, size_t i, char *text,
                     size_t size);

#endif
