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
    bool any_order;  /* readers can be had at once; else after dp_samples_hold() */
    bool split;      /* the test set was a part of the training set */
    bool whole;      /* dp_samples_load() can be used */
    bool resized;    /* images of other sizes than the model's, or of any */
    size_t units;    /* of both sets: see source.h; 0: there are none */
    uint64_t copied; /* as in struct dp_source_info */
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

/* A data set whose files lie elsewhere: made of what dp_samples_info() and dp_samples_words() gave
 * there. Nothing of it can be read. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_samples_describe(const struct dp_samples_info *info, const char *words,
                                         size_t bytes, struct dp_samples **out);
bool dp_samples_absent(const struct dp_samples *samples);

/* The texts of the description: its note, and the names of the classes, each ended by a 0. Owned by
 * the caller (dp_free). Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_samples_words(const struct dp_samples *samples, char **words,
                                      size_t *bytes);

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

/* What units are, where info->units is above 0; `u` counts those of the training set first. As in
 * source.h. */
size_t dp_samples_unit_bytes(const struct dp_samples *samples, size_t u);
DP_CHECKED dp_status dp_samples_read_unit(const struct dp_samples *samples, size_t u, size_t bytes,
                                          uint8_t *out);

/* From now on readers take units from memory: `bytes`, where unit u begins at at[u], if there[u] is
 * not 0. All is borrowed until close. */
void dp_samples_keep(struct dp_samples *samples, const uint8_t *bytes, const uint64_t *at,
                     const uint8_t *there);

/* The most that a reader's buffers of files take, where the source can say it without reading; 0:
 * it cannot. */
size_t dp_samples_fetcher_bytes(const struct dp_samples *samples);

/* What rows of a window (window.h) of so many are read from, at most, in bytes: what readers want
 * to share. 0: nothing. */
size_t dp_samples_window_bytes(const struct dp_samples *samples, size_t rows);

/* From now on readers that take training rows from windows of so many share what they have read
 * and decompressed, in up to `bytes`; they give the same samples. At most once; where bytes is 0
 * nothing changes. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_samples_share(struct dp_samples *samples, size_t rows, size_t bytes);

/* Where sample `i` is to be found, for messages. */
void dp_samples_name(const struct dp_samples *samples, enum dp_set set, size_t i, char *text,
                     size_t size);

/* Where its label is to be found. */
void dp_samples_name_label(const struct dp_samples *samples, enum dp_set set, size_t i, char *text,
                           size_t size);

#endif
