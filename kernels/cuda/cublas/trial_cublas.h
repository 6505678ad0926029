/*
 * trial_cublas.h - arrays of the size of a product, to measure it on.
 */
#ifndef DP_KERNELS_CUDA_CUBLAS_TRIAL_CUBLAS_H
#define DP_KERNELS_CUDA_CUBLAS_TRIAL_CUBLAS_H

#include "kernels/cuda/cublas/matmul_shape.h"
#include "kernels/cuda/stream/scratch_cuda.h"

/* A zeroed one is empty. */
struct dp_cublas_trial {
    struct dp_stream *stream;
    struct dp_cuda_scratch workspace;
    char *a, *b, *d, *beside; /* of the shape; bias or sums; at multiples of 256 bytes */
    char *y;                  /* like a, if it was asked for */
    struct dp_cuda_clock clock;
};

/* Allocates the arrays, filled with random numbers, and up to `workspace` bytes of workspace. `y`
 * only if `masks`. If there is no memory, `a` is NULL: no error. Errors: DP_ERR_CUDA. The caller
 * destroys it in any case. */
DP_CHECKED dp_status dp_cublas_trial_create(struct dp_cublas_trial *trial, struct dp_stream *s,
                                            const struct dp_matmul *shape, size_t workspace,
                                            bool masks);
void dp_cublas_trial_destroy(struct dp_cublas_trial *trial);

#endif
