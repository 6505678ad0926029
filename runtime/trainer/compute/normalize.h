/*
 * normalize.h - how samples become the numbers that a model takes.
 */
#ifndef DP_RUNTIME_TRAINER_COMPUTE_NORMALIZE_H
#define DP_RUNTIME_TRAINER_COMPUTE_NORMALIZE_H

#include "base/option.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

/* y = x * scale + shift, for each channel. */
struct dp_normalize {
    float *scale, *shift; /* owned; [channels]; device memory once placed */
    size_t channels;
    float *placed; /* owned; device memory of both, or NULL */
    const struct dp_device *device;
};

/* y = (x / white - mean) / std as one multiply-add. mean and std hold one number for all channels,
 * one for each, or none. white: 255 for bytes, 1 for float32. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_normalize_init(struct dp_normalize *normalize, size_t channels,
                                       double white, const struct dp_numbers *mean,
                                       const struct dp_numbers *std);

/* Channels that mean and std are for: those of an image; of a flat input its features where there
 * is a number for each, else 1. */
size_t dp_normalize_channels(const struct dp_shape *input, const struct dp_numbers *mean,
                             const struct dp_numbers *std);

/* Moves it to the memory of the stream's device, where operations read it. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_normalize_place(struct dp_normalize *normalize, struct dp_stream *stream);
void dp_normalize_fini(struct dp_normalize *normalize);

#endif
