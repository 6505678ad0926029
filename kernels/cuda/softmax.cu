/*
 * softmax.cu - softmax cross-entropy and its gradient: see kernels/ops.h for the contract.
 *
 * A block takes a row at a time, in three passes over it, of which the cache serves two: 2 e bytes
 * an element of type size e. The sums of the blocks are added by one block, in their order.
 */
#include "kernels/cuda/launch.h"

enum { ROWS_AT_A_TIME = 4096 };

/* The largest element, and the first place where it is. */
struct best {
    float value;
    int at;
};

static __device__ __forceinline__ best better(best a, best b)
{
    return b.value > a.value || (b.value == a.value && b.at < a.at) ? b : a;
}

/* On every thread of the block. */
static __device__ best block_best(best mine, best *shared)
{
    const int warps = ((int)blockDim.x + warpSize - 1) / warpSize;

    for (int lanes = warpSize / 2; lanes > 0; lanes /= 2) {
        best other;
        other.value = __shfl_xor_sync(~0u, mine.value, lanes);
        other.at = __shfl_xor_sync(~0u, mine.at, lanes);
        mine = better(mine, other);
    }
    if ((int)threadIdx.x % warpSize == 0) {
        shared[(int)threadIdx.x / warpSize] = mine;
    }
    __syncthreads();
    for (int i = 0; i < warps; i++) {
        mine = i == 0 ? shared[0] : better(mine, shared[i]);
    }
    __syncthreads();
    return mine;
}

/* One row: its loss on every thread; writes the gradient where dx is wanted (dx may be x). */
template <typename T>
static __device__ float row_loss(T *dx, const T *x, int label, int classes, float scale,
                                 void *shared, int *place)
{
    best mine = {-INFINITY, INT32_MAX};
    float sum = 0;

    for (int c = (int)threadIdx.x; c < classes; c += (int)blockDim.x) {
        mine = better(mine, best{dp_wide(x[c]), c});
    }
    const best top = block_best(mine, static_cast<best *>(shared));
    const float largest = top.at == INT32_MAX ? dp_wide(x[0]) : top.value; /* all NaN */
    for (int c = (int)threadIdx.x; c < classes; c += (int)blockDim.x) {
        sum += c != top.at ? expf(dp_wide(x[c]) - largest) : 0.0f;
    }
    sum = dp_block_sum(sum, static_cast<float *>(shared));
    /* log1p keeps what exp(largest) = 1 would drown; the term of the largest is that 1. */
    const float rest = log1pf(sum), wanted = dp_wide(x[label]) - largest, total = 1.0f + sum;
    *place = top.at == INT32_MAX ? 0 : top.at;
    __syncthreads(); /* all have read x, which dx may be */
    for (int c = (int)threadIdx.x; dx != nullptr && c < classes; c += (int)blockDim.x) {
        const float p = expf(dp_wide(x[c]) - largest) / total;
        dp_narrow(&dx[c], (p - (c == label ? 1.0f : 0.0f)) * scale);
    }
    return rest - wanted;
}

template <typename T>
static __global__ void softmax_kernel(double *partials, T *dx, const T *x, const int32_t *labels,
                                      size_t rows, int classes, const float *scale)
{
    DP_SHARED(double, shared);
    double loss = 0, correct = 0;

    for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const int label = labels[row];
        int place;
        loss += (double)row_loss(dx != nullptr ? dx + row * (size_t)classes : nullptr,
                                 x + row * (size_t)classes, label, classes, *scale, shared, &place);
        correct += place == label ? 1 : 0;
    }
    if (threadIdx.x == 0) {
        partials[2 * blockIdx.x] = loss;
        partials[2 * blockIdx.x + 1] = correct;
    }
}

static __global__ void sums_kernel(float *loss, float *correct, const double *partials, int count,
                                   const float *scale, float keep)
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
        *loss = (float)(sums[0] * (double)*scale + (keep != 0 ? (double)*loss : 0));
        *correct = (float)(sums[1] + (keep != 0 ? (double)*correct : 0));
    }
}

extern "C" dp_status dp_cuda_softmax_loss(struct dp_stream *s, void *dx, float *loss,
                                          float *correct, const void *x, const int32_t *labels,
                                          size_t rows, size_t classes, const float *scale,
                                          float keep)
{
    const unsigned threads = classes <= 32 ? 32 : classes <= 128 ? 128 : (unsigned)DP_THREADS;
    const size_t blocks = dp_least(rows, ROWS_AT_A_TIME);
    double *partials = dp_cuda_of(s)->partials;

    if (classes > INT32_MAX) {
        return DP_FAIL(DP_ERR_ARG, "%zu classes", classes);
    }
    DP_TRY(dp_cuda_zero(s, partials, 2 * blocks * sizeof(double)));
    if (rows > 0) {
        DP_BY_TYPE(s->type, T, {
            DP_LAUNCH(softmax_kernel<T>, blocks, threads, 32 * sizeof(double), s, partials, (T *)dx,
                      (const T *)x, labels, rows, (int)classes, scale);
        });
        DP_TRY(DP_CUDA(cudaGetLastError()));
    }
    DP_LAUNCH(sums_kernel, 1, DP_THREADS, 32 * sizeof(double), s, loss, correct,
              (const double *)partials, (int)blocks, scale, keep);
    return DP_CUDA(cudaGetLastError());
}
