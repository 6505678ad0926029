/*
 * block.h - the threads of a block.
 */
#ifndef DP_TESTS_CUDA_ON_HOST_BLOCK_H
#define DP_TESTS_CUDA_ON_HOST_BLOCK_H

#include <functional>

enum { CUDA_ON_HOST_THREADS = 1024, CUDA_ON_HOST_WARP = 32 }; /* of a block at most; of a warp */

/* Runs body() once for each thread of the block blockIdx, each with its threadIdx: one after
 * another, in an order of this block's own, until one waits for others. A number of threads that is
 * no multiple of a warp's ends the program. */
void cuda_on_host_run_block(const char *kernel, unsigned threads,
                            const std::function<void()> &body);

#endif
