/*
 * lowrank.cu - thin matrices: see kernels/ops.h for the contracts.
 *
 * lowrank_split moves 12 bytes per element, and reads the thin matrices from the cache; 4 rank
 * FLOPs per element. orthogonalize is one block, since its columns are short and each waits for the
 * last, and no larger than they are long: 4 rows cols^2 FLOPs in double.
 */
#include "base/random.h"
#include "kernels/cuda/stream/launch.h"

enum { THREADS = 1024, WARP = 32 };

/* Rows go to threads in turn, so each thread reads only what it wrote itself. */
static __device__ double dot(const float *y, size_t rows, size_t cols, size_t a, size_t b,
                             double *shared)
{
    double sum = 0;

    for (size_t i = threadIdx.x; i < rows; i += blockDim.x) {
        sum += (double)y[i * cols + a] * (double)y[i * cols + b];
    }
    return dp_block_sum(sum, shared);
}

/* Takes off column k what lies in the space of the columns before it, which are orthonormal. */
static __device__ void take_off(float *y, size_t rows, size_t cols, size_t k, double *shared)
{
    for (size_t j = 0; j < k; j++) {
        const double along = dot(y, rows, cols, j, k, shared);
        for (size_t i = threadIdx.x; i < rows; i += blockDim.x) {
            const double rest = (double)y[i * cols + k] - along * (double)y[i * cols + j];
            y[i * cols + k] = (float)rest;
        }
    }
}

/* Divides column k by `length`; 0 instead, if that is no length. */
static __device__ void make_unit(float *y, size_t rows, size_t cols, size_t k, double length)
{
    const bool finite = length > 0 && isfinite(length);

    for (size_t i = threadIdx.x; i < rows; i += blockDim.x) {
        y[i * cols + k] = finite ? (float)((double)y[i * cols + k] / length) : 0.0f;
    }
}

/* Twice, so that it is orthogonal to float32's precision. false, on all threads: nothing is left of
 * the column. */
static __device__ bool settle(float *y, size_t rows, size_t cols, size_t k, double *shared)
{
    for (int turn = 0; turn < 2; turn++) {
        const double before = sqrt(dot(y, rows, cols, k, k, shared));
        take_off(y, rows, cols, k, shared);
        const double length = sqrt(dot(y, rows, cols, k, k, shared));
        if (!(length > DP_ORTHO_NOTHING * before)) {
            return false;
        }
        make_unit(y, rows, cols, k, length);
    }
    return true;
}

static __device__ void random_column(float *y, size_t rows, size_t cols, size_t k, double *shared)
{
    uint32_t turn = 0;

    do {
        for (size_t i = threadIdx.x; i < rows; i += blockDim.x) {
            const uint32_t bits = dp_random_u32(k, DP_RANDOM_CODE, turn, i);
            y[i * cols + k] = 2.0f * dp_random_unit(bits) - 1.0f;
        }
        turn++;
    } while (!settle(y, rows, cols, k, shared));
}

/* Takes off the columns after column k what lies along it, and makes its length 1. */
static __device__ void settle_and_pass_on(float *y, size_t rows, size_t cols, size_t k,
                                          double *shared)
{
    double own = dot(y, rows, cols, k, k, shared);

    if (!(own > DP_ORTHO_NOTHING * DP_ORTHO_NOTHING)) {
        random_column(y, rows, cols, k, shared);
        own = dot(y, rows, cols, k, k, shared);
    }
    const double scale = 1.0 / sqrt(own);
    for (size_t j = k + 1; j < cols; j++) {
        const double along = dot(y, rows, cols, k, j, shared) * scale;
        for (size_t i = threadIdx.x; i < rows; i += blockDim.x) {
            const float unit = (float)((double)y[i * cols + k] * scale);
            y[i * cols + j] = (float)((double)y[i * cols + j] - along * (double)unit);
        }
    }
    for (size_t i = threadIdx.x; i < rows; i += blockDim.x) {
        y[i * cols + k] = (float)((double)y[i * cols + k] * scale);
    }
}

/* The order of kernels/ref/lowrank_ref.c, but for sums. */
static __global__ void orthogonalize_kernel(float *y, size_t rows, size_t cols)
{
    DP_SHARED(double, shared); /* one for each warp */

    for (size_t k = 0; blockIdx.x == 0 && k < cols; k++) {
        make_unit(y, rows, cols, k, sqrt(dot(y, rows, cols, k, k, shared)));
    }
    for (size_t at = 0; blockIdx.x == 0 && at < 2 * cols; at++) {
        settle_and_pass_on(y, rows, cols, at % cols, shared);
    }
}

extern "C" dp_status dp_cuda_orthogonalize(struct dp_stream *s, float *y, size_t rows, size_t cols)
{
    const size_t warps = rows < THREADS ? (rows + WARP - 1) / WARP : THREADS / WARP;

    if (rows * cols == 0) {
        return DP_OK;
    }
    DP_LAUNCH(orthogonalize_kernel, 1, (unsigned)(warps * WARP), warps * sizeof(double), s, y, rows,
              cols);
    return DP_CUDA(cudaGetLastError());
}

/* A warp a row. */
static __global__ void split_kernel(float *sum, float *kept, const float *p, const float *q,
                                    const float *mine, size_t rows, size_t cols, size_t rank)
{
    const size_t lane = dp_thread() % (size_t)warpSize, warps = dp_threads() / (size_t)warpSize;

    for (size_t i = dp_thread() / (size_t)warpSize; i < rows; i += warps) {
        for (size_t j = lane; j < cols; j += (size_t)warpSize) {
            float total = 0, rest = kept[i * cols + j];
            for (size_t k = 0; k < rank; k++) {
                total += p[i * rank + k] * q[k * cols + j];
                rest -= p[i * rank + k] * mine[k * cols + j];
            }
            sum[i * cols + j] = total;
            kept[i * cols + j] = rest;
        }
    }
}

extern "C" dp_status dp_cuda_lowrank_split(struct dp_stream *s, float *sum, float *kept,
                                           const float *p, const float *q, const float *mine,
                                           size_t rows, size_t cols, size_t rank)
{
    if (rows * cols == 0) {
        return DP_OK;
    }
    DP_LAUNCH(split_kernel, dp_blocks(s, rows * 32), DP_THREADS, 0, s, sum, kept, p, q, mine, rows,
              cols, rank);
    return DP_CUDA(cudaGetLastError());
}
