/*
 * stream_cuda.h - what a stream of device `cuda` holds.
 */
#ifndef DP_KERNELS_CUDA_STREAM_STREAM_CUDA_H
#define DP_KERNELS_CUDA_STREAM_STREAM_CUDA_H

#include <cuda_runtime.h>

#include "kernels/device.h"

enum {
    DP_THREADS = 256,             /* of a block, unless a kernel says otherwise */
    DP_CUDA_PARTIALS = 1 << 17,   /* doubles for sums on their way: 1 MiB, at least */
    DP_CUDA_PARTIALS_EACH = 8192, /* and of each processor: two sums of 2048 columns and two chunks.
                                    With 1 MiB they ran on 64 of an H100's 132 */
    DP_CUDA_COLUMNS = 32 << 20,   /* bytes of image windows written out at a time */
    DP_CUDA_WORKSPACE = 32 << 20  /* bytes for matrix products at most; what cuBLAS recommends for
                                    sm_90 */
};

struct dp_convs;
struct dp_matmuls;

/* Device memory of a stream, for what runs on it one after another. A zeroed one is empty:
 * scratch_cuda.h. */
struct dp_cuda_scratch {
    void *memory; /* owned */
    size_t bytes;
};

/* How many blocks of a kernel the GPU runs at a time: resident_cuda.h. */
struct dp_cuda_fit {
    const void *kernel; /* NULL: none was asked for */
    unsigned threads;
    size_t shared, blocks;
};

enum { DP_CUDA_FITS = 256 }; /* that are kept: a power of two */

/* Old scratch memory that recordings of the stream may use. */
struct dp_cuda_kept {
    struct dp_cuda_kept *next;
    void *memory; /* owned */
};

struct dp_cuda {
    int unit; /* which GPU */
    cudaStream_t queue;
    cudaEvent_t mark; /* for order() */
    int processors;
    int blocks; /* of DP_THREADS threads, as many as the GPU runs at a time at most */
    struct dp_cuda_fit fits[DP_CUDA_FITS];
    double *partials; /* device; [dp_cuda_partials(processors)] */
    struct dp_matmuls *matmuls;
    struct dp_convs *convs;                 /* of cuDNN; NULL: none was prepared */
    struct dp_cuda_scratch columns;         /* grows only in conv_prepare, and where cuDNN fails */
    uint64_t to_record[DP_COPY_DIRECTIONS]; /* bytes that copies of this recording move */
    bool recorded;                          /* there may be recordings of it */
    struct dp_cuda_kept *kept;              /* owned */
};

static inline size_t dp_cuda_partials(int processors)
{
    const size_t all = (size_t)processors * DP_CUDA_PARTIALS_EACH, least = DP_CUDA_PARTIALS;

    return all > least ? all : least;
}

extern const struct dp_device dp_device_cuda;

/* units_cuda.c: the GPU that this thread makes things on, and that on which its calls work now. */
extern __thread int dp_cuda_current;
int dp_cuda_unit(void);
void dp_cuda_enter(int unit);
extern const struct dp_units dp_cuda_units;

/* CUDA knows a current GPU of each thread, and a stream takes work on its own GPU alone. */
static inline struct dp_cuda *dp_cuda_of(const struct dp_stream *s)
{
    struct dp_cuda *cuda = (struct dp_cuda *)s->state;

    if (dp_cuda_current != cuda->unit) {
        dp_cuda_enter(cuda->unit);
    }
    return cuda;
}

#endif
