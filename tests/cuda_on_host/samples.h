/*
 * samples.h - small kernels for tests of the emulation itself, most of which a GPU would not run as
 * their author means.
 */
#ifndef DP_TESTS_CUDA_ON_HOST_SAMPLES_H
#define DP_TESTS_CUDA_ON_HOST_SAMPLES_H

#include "cuda_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Each writes at most CUDA_ON_HOST_SAMPLE_THREADS numbers. */
enum { CUDA_ON_HOST_SAMPLE_THREADS = 256 };

enum cuda_on_host_sample {
    SAMPLE_MEETS,     /* number 1000 a + b: a of the next thread, from shared memory after a
                       * barrier; b the sum of its warp's lanes, by shuffles, and their votes */
    SAMPLE_LEAVES,    /* thread 5 returns before a barrier */
    SAMPLE_PARTS,     /* threads come to two barriers */
    SAMPLE_LANE,      /* a mask names a lane that has returned */
    SAMPLE_MASK,      /* a lane takes from one that the mask does not name */
    SAMPLE_HALF_WARP, /* a block of 48 threads */
    SAMPLE_GRID       /* more blocks than a device runs at a time */
};

/* Queues it, as blocks of so many threads. */
void cuda_on_host_run_sample(enum cuda_on_host_sample which, unsigned *memory, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
