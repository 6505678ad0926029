/*
 * scratch_cuda.h - what preparing products and convolutions has in common: scratch memory that
 * grows, lists that grow, and the time that a call takes on the GPU.
 */
#ifndef DP_KERNELS_CUDA_SCRATCH_CUDA_H
#define DP_KERNELS_CUDA_SCRATCH_CUDA_H

#include <cuda_runtime.h>

#include "kernels/cuda/stream_cuda.h"

/* Room for `bytes`; what it held is lost. Waits for the stream where it has to grow. `what` names
 * it in messages; NULL: there is none for DP_ERR_NOMEM. Errors: DP_ERR_NOMEM, with what there was
 * left as it was. */
DP_CHECKED dp_status dp_cuda_scratch_grow(struct dp_stream *s, struct dp_cuda_scratch *scratch,
                                          size_t bytes, const char *what);
void dp_cuda_scratch_release(struct dp_cuda_scratch *scratch);

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

/* The least time of `rounds` calls of run(context), which queues on the stream, behind one that
 * warms up. INFINITY where run gave DP_ERR_UNAVAILABLE, which it need not log, and the GPU goes on.
 * Errors: other ones of run; DP_ERR_CUDA. */
DP_CHECKED dp_status dp_cuda_clock_time(const struct dp_cuda_clock *clock, struct dp_stream *s,
                                        dp_status (*run)(void *context), void *context, int rounds,
                                        float *best_ms);

#endif
