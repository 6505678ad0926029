/*
 * stream_cuda.h - what a stream of device `cuda` holds.
 */
#ifndef DP_KERNELS_CUDA_STREAM_CUDA_H
#define DP_KERNELS_CUDA_STREAM_CUDA_H

#include <cuda_runtime.h>

#include "kernels/device.h"

enum {
    DP_THREADS = 256,            /* of a block, unless a kernel says otherwise */
    DP_CUDA_PARTIALS = 1 << 17,  /* doubles for sums on their way: 1 MiB */
    DP_CUDA_COLUMNS = 32 << 20,  /* bytes of image windows written out at a time */
    DP_CUDA_WORKSPACE = 32 << 20 /* bytes for matrix products at most; what cuBLAS recommends for
                                    sm_90 */
};

struct dp_convs;
struct dp_matmuls;

struct dp_cuda {
    cudaStream_t queue;
    cudaEvent_t mark; /* for order() */
    int blocks;       /* of DP_THREADS threads, as many as the GPU runs at a time */
    double *partials; /* device; [DP_CUDA_PARTIALS] */
    struct dp_matmuls *matmuls;
    struct dp_convs *convs; /* of cuDNN; NULL: none was prepared */
    void *columns;          /* device; grows only in conv_prepare */
    size_t columns_bytes;
};

extern const struct dp_device dp_device_cuda;

static inline struct dp_cuda *dp_cuda_of(const struct dp_stream *s)
{
    return (struct dp_cuda *)s->state;
}

#endif
