/*
 * normalize.h - how bytes of the input become numbers.
 */
#ifndef DP_RUNTIME_TRAINER_NORMALIZE_H
#define DP_RUNTIME_TRAINER_NORMALIZE_H

#include "base/option.h"
#include "kernels/device.h"

/* y = x * scale + shift, for each channel. */
struct dp_normalize {
    float *scale, *shift; /* owned; [channels]; device memory once placed */
    size_t channels;
    float *placed; /* owned; device memory of both, or NULL */
    const struct dp_device *device;
};

/* y = (x / 255 - mean) / std as one multiply-add. mean and std hold one number for all channels,
 * one for each, or none. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_normalize_init(struct dp_normalize *normalize, size_t channels,
                                       const struct dp_numbers *mean, const struct dp_numbers *std);
/* Moves it to the memory of the stream's device, where operations read it. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_normalize_place(struct dp_normalize *normalize, struct dp_stream *stream);
void dp_normalize_fini(struct dp_normalize *normalize);

#endif
