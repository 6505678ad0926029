/*
 * samples.cpp - see samples.h.
 */
#include "samples.h"

static void meets(unsigned *memory)
{
    unsigned *shared = static_cast<unsigned *>(cuda_on_host_shared());
    unsigned sum = threadIdx.x;

    shared[threadIdx.x] = threadIdx.x;
    __syncthreads();
    for (int lanes = warpSize / 2; lanes > 0; lanes /= 2) {
        sum += __shfl_xor_sync(~0u, sum, lanes);
    }
    const unsigned votes = __ballot_sync(~0u, threadIdx.x % 2 == 0);
    memory[threadIdx.x] =
        1000 * shared[(threadIdx.x + 1) % blockDim.x] + sum % 500 + (votes == 0x55555555 ? 500 : 0);
}

static void leaves(unsigned *memory)
{
    if (threadIdx.x == 5) {
        return;
    }
    memory[threadIdx.x] = 0;
    __syncthreads();
}

static void parts(unsigned *memory)
{
    memory[threadIdx.x] = 0;
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        __syncthreads();
    }
}

static void lane(unsigned *memory)
{
    if (threadIdx.x % 32 == 31) {
        return;
    }
    memory[threadIdx.x] = __shfl_sync(~0u, threadIdx.x, 0);
}

static void mask(unsigned *memory)
{
    if (threadIdx.x % 32 < 16) {
        memory[threadIdx.x] = __shfl_sync(0xffffu, threadIdx.x, 20);
    }
}

void cuda_on_host_run_sample(enum cuda_on_host_sample which, unsigned *memory, cudaStream_t stream)
{
    static void (*const kernels[])(unsigned *) = {meets, leaves, parts, lane, mask, meets, meets};
    static const char *const names[] = {"meets", "leaves",    "parts", "lane",
                                        "mask",  "half_warp", "grid"};
    const unsigned threads = which == SAMPLE_HALF_WARP ? 48 : CUDA_ON_HOST_SAMPLE_THREADS;

    cuda_on_host_launch(names[which], kernels[which], which == SAMPLE_GRID ? 100000 : 1, threads,
                        threads * sizeof(unsigned), stream, memory);
}
