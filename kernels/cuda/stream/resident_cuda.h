/*
 * resident_cuda.h - how many blocks of a kernel a GPU runs at a time. A grid of so many keeps all
 * of it busy from the first block to the last; of a larger one the last blocks run on an empty GPU.
 */
#ifndef DP_KERNELS_CUDA_STREAM_RESIDENT_CUDA_H
#define DP_KERNELS_CUDA_STREAM_RESIDENT_CUDA_H

#include <stddef.h>

struct dp_cuda;

/* Blocks of so many threads and bytes of shared memory; asked for once, then kept. At least 1. */
size_t dp_cuda_resident(struct dp_cuda *cuda, const void *kernel, unsigned threads, size_t shared);

#endif
