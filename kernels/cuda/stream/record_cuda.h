/*
 * record_cuda.h - recordings of device `cuda`: CUDA graphs. What each verb means is in device.h. It
 * also counts the bytes of copies, since a replay copies again what was recorded.
 */
#ifndef DP_KERNELS_CUDA_STREAM_RECORD_CUDA_H
#define DP_KERNELS_CUDA_STREAM_RECORD_CUDA_H

#include "kernels/device.h"

DP_CHECKED dp_status dp_cuda_recording_create(struct dp_recording **out);
void dp_cuda_recording_destroy(struct dp_recording *recording);
DP_CHECKED dp_status dp_cuda_record_begin(struct dp_stream *stream);
DP_CHECKED dp_status dp_cuda_record_end(struct dp_stream *stream, struct dp_recording *recording,
                                        const char **why_not);
DP_CHECKED dp_status dp_cuda_replay(const struct dp_recording *recording, struct dp_stream *stream);

/* A copy is queued on the stream, or recorded. */
void dp_cuda_count_copy(const struct dp_stream *stream, enum dp_copy_direction direction,
                        size_t bytes);
void dp_cuda_copied(uint64_t bytes[DP_COPY_DIRECTIONS]);

#endif
