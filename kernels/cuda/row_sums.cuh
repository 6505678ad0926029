/*
 * row_sums.cuh - kernels of which each block takes a row at a time: the largest element of a row,
 * and the two sums over all rows that a loss has.
 *
 * Each block leaves its two sums in dp_cuda.partials; one block adds them, in their order. So the
 * bits depend on the number of blocks alone.
 */
#ifndef DP_KERNELS_CUDA_ROW_SUMS_CUH
#define DP_KERNELS_CUDA_ROW_SUMS_CUH

#include "kernels/cuda/stream/launch.h"

enum { DP_ROW_BLOCKS = 4096 /* at most */ };

/* Threads of a block for rows of so many elements. */
static inline unsigned dp_row_threads(size_t cols)
{
    return cols <= 32 ? 32 : cols <= 128 ? 128 : (unsigned)DP_THREADS;
}

/* The largest element, and the first place where it is. */
struct dp_best {
    float value;
    int at;
};

static __device__ __forceinline__ dp_best dp_better(dp_best a, dp_best b)
{
    return b.value > a.value || (b.value == a.value && b.at < a.at) ? b : a;
}

/* On every thread of the block. */
static __device__ dp_best dp_block_best(dp_best mine, dp_best *shared)
{
    const int warps = ((int)blockDim.x + warpSize - 1) / warpSize;

    for (int lanes = warpSize / 2; lanes > 0; lanes /= 2) {
        dp_best other;
        other.value = __shfl_xor_sync(~0u, mine.value, lanes);
        other.at = __shfl_xor_sync(~0u, mine.at, lanes);
        mine = dp_better(mine, other);
    }
    if ((int)threadIdx.x % warpSize == 0) {
        shared[(int)threadIdx.x / warpSize] = mine;
    }
    __syncthreads();
    for (int i = 0; i < warps; i++) {
        mine = i == 0 ? shared[0] : dp_better(mine, shared[i]);
    }
    __syncthreads();
    return mine;
}

/* Writes the sums of a block, which its first thread has. */
static __device__ __forceinline__ void dp_leave_sums(double *partials, double loss, double score)
{
    if (threadIdx.x == 0) {
        partials[2 * blockIdx.x] = loss;
        partials[2 * blockIdx.x + 1] = score;
    }
}

/* loss may be NULL; keep as in kernels/ops.h. */
static __global__ void dp_row_sums_kernel(float *loss, float *correct, const double *partials,
                                          int count, const float *scale, float keep)
{
    DP_SHARED(double, shared);
    double sums[2] = {0, 0};

    if (blockIdx.x != 0) {
        return;
    }
    for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x) {
        sums[0] += partials[2 * i];
        sums[1] += partials[2 * i + 1];
    }
    sums[0] = dp_block_sum(sums[0], shared);
    sums[1] = dp_block_sum(sums[1], shared);
    if (threadIdx.x == 0) {
        if (loss != nullptr) {
            *loss = (float)(sums[0] * (double)*scale + (keep != 0 ? (double)*loss : 0));
        }
        *correct = (float)(sums[1] + (keep != 0 ? (double)*correct : 0));
    }
}

/* Adds what `blocks` blocks have left; 0: there were no rows. A GPU may run fewer blocks
 * (DP_LAUNCH): clear `partials` before. */
static dp_status dp_add_rows(struct dp_stream *s, float *loss, float *score, const double *partials,
                             size_t blocks, const float *scale, float keep)
{
    DP_LAUNCH(dp_row_sums_kernel, 1, blocks <= 32 ? 32u : (unsigned)DP_THREADS, 32 * sizeof(double),
              s, loss, score, partials, (int)blocks, scale, keep);
    return DP_CUDA(cudaGetLastError());
}

#endif
