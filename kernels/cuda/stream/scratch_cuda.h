/*
 * scratch_cuda.h - what preparing products and convolutions has in common: scratch memory that
 * grows, lists that grow, and the time that a call takes on the GPU.
 */
#ifndef DP_KERNELS_CUDA_STREAM_SCRATCH_CUDA_H
#define DP_KERNELS_CUDA_STREAM_SCRATCH_CUDA_H

#include <cuda_runtime.h>

#include "kernels/cuda/stream/stream_cuda.h"

/* Grows the scratch memory to `bytes`, if it is smaller; its content is lost. Waits for the stream
 * if it has to grow. The old memory is released; but if the stream has recorded operations, which
 * may use it, it is kept until the stream is destroyed. `what` names it in messages; NULL:
 * DP_ERR_NOMEM is not reported. Errors: DP_ERR_NOMEM, with the old memory unchanged. */
DP_CHECKED dp_status dp_cuda_scratch_grow(struct dp_stream *s, struct dp_cuda_scratch *scratch,
                                          size_t bytes, const char *what);
void dp_cuda_scratch_release(struct dp_cuda_scratch *scratch);

/* Called when the stream is destroyed, after its recordings. */
void dp_cuda_release_kept(struct dp_cuda *cuda);

/* `list` with room for one element more than `count`, and its capacity; its elements of `size`
 * bytes are moved if they have to. NULL: no memory, and the list is as it was. */
void *dp_cuda_list_room(void *list, int count, int *capacity, size_t size);

/* Random numbers in [-1, 1) of a type, for what is timed: a GPU multiplies zeros faster. */
DP_CHECKED dp_status dp_cuda_fill(struct dp_stream *s, void *x, enum dp_type type, size_t count,
                                  uint32_t seed);

/* Device memory to measure on, zeroed, for device->release(); NULL: that would be more than a
 * quarter of what is free, which others may be about to need. */
void *dp_cuda_trial_alloc(size_t bytes);

/* Two events around what is timed. A zeroed one is closed. */
struct dp_cuda_clock {
    cudaEvent_t begin, end;
};

DP_CHECKED dp_status dp_cuda_clock_open(struct dp_cuda_clock *clock);
void dp_cuda_clock_close(struct dp_cuda_clock *clock);

/* The least time of `rounds` calls of run(context), which queues on the stream, after one that
 * warms up; fewer, once one has taken more than twice `enough_ms`, which it is compared with.
 * INFINITY where run gave DP_ERR_UNAVAILABLE, which it need not log, and the GPU goes on.
 * Errors: other ones of run; DP_ERR_CUDA. */
DP_CHECKED dp_status dp_cuda_clock_time(const struct dp_cuda_clock *clock, struct dp_stream *s,
                                        dp_status (*run)(void *context), void *context, int rounds,
                                        float enough_ms, float *best_ms);

#endif
