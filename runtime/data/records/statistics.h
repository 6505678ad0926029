/*
 * statistics.h - mean and standard deviation of each channel of many samples: what data.normalize
 * takes. Bytes are summed as whole numbers, so that neither order nor threads change a bit.
 */
#ifndef DP_RUNTIME_DATA_RECORDS_STATISTICS_H
#define DP_RUNTIME_DATA_RECORDS_STATISTICS_H

#include "runtime/data/records/records_index.h"

/* Begins with zeros, but for `channels`, at most DP_RECORDS_CHANNELS. */
struct dp_statistics {
    int channels;
    uint64_t count;                                                  /* of each channel */
    uint64_t sum[DP_RECORDS_CHANNELS], squares[DP_RECORDS_CHANNELS]; /* of bytes */
    double mean[DP_RECORDS_CHANNELS], m2[DP_RECORDS_CHANNELS];       /* of float32 */
};

/* Channels that samples of a shape have statistics of: pictures 3, flat features 1 for all. */
int dp_statistics_channels(const struct dp_sample_shape *shape);

/* Adds `pixels` times as many bytes as `stride`; grey (1) counts for each of several channels. */
void dp_statistics_bytes(struct dp_statistics *s, const uint8_t *x, size_t pixels, int stride);

/* Adds float32 of `channels` channels; samples must come in one order. */
void dp_statistics_floats(struct dp_statistics *s, const float *x, size_t pixels);

/* Adds what another thread has of bytes. */
void dp_statistics_merge(struct dp_statistics *to, const struct dp_statistics *from);

/* Writes channels, mean and std; bytes are scaled to 0..1. */
void dp_statistics_finish(const struct dp_statistics *s, enum dp_element element,
                          struct dp_records_index *index);

#endif
