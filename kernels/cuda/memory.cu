/*
 * memory.cu - filling, copying, adding many arrays, and squares: see kernels/ops.h.
 *
 * Bytes moved per element: sum_tree 4 (n + outs), block_squares 4; zero and copy are the driver's.
 */
#include "kernels/cuda/launch.h"

extern "C" dp_status dp_cuda_zero(struct dp_stream *s, void *y, size_t bytes)
{
    return bytes == 0 ? DP_OK : DP_CUDA(cudaMemsetAsync(y, 0, bytes, dp_cuda_of(s)->queue));
}

extern "C" dp_status dp_cuda_copy(struct dp_stream *s, void *y, const void *x, size_t bytes)
{
    return bytes == 0 || y == x ? DP_OK
                                : DP_CUDA(cudaMemcpyAsync(y, x, bytes, cudaMemcpyDeviceToDevice,
                                                          dp_cuda_of(s)->queue));
}

enum { ARRAYS = 64, LEVELS = 7 };

/* Passed by value: 1 KiB of the 4 KiB that arguments may have. */
struct arrays {
    float *ys[ARRAYS];
    const float *xs[ARRAYS];
    int outs, n;
};

/* The tree is that of a binary counter: sums of 1, 2, 4 ... arrays are closed as soon as they are
 * complete, and what is left is added from the right. */
static __device__ float tree(const struct arrays &arrays, size_t i)
{
    float sums[LEVELS];
    int depth = 0;

    for (int k = 0; k < arrays.n; k++) {
        sums[depth++] = arrays.xs[k][i];
        for (int bits = k; (bits & 1) != 0; bits >>= 1) {
            depth--;
            sums[depth - 1] += sums[depth];
        }
    }
    while (depth > 1) {
        depth--;
        sums[depth - 1] += sums[depth];
    }
    return sums[0];
}

static __global__ void tree_kernel(const struct arrays arrays, size_t count)
{
    for (size_t i = dp_thread(); i < count; i += dp_threads()) {
        const float sum = tree(arrays, i); /* before any of ys, which may be one of xs */
        for (int out = 0; out < arrays.outs; out++) {
            arrays.ys[out][i] = sum;
        }
    }
}

extern "C" dp_status dp_cuda_sum_tree(struct dp_stream *s, float *const *ys, int outs,
                                      const float *const *xs, int n, size_t count)
{
    struct arrays arrays = {};

    if (n > ARRAYS || outs > ARRAYS) {
        return DP_FAIL(DP_ERR_UNAVAILABLE, "a sum of %d arrays on a GPU: at most %d", n, ARRAYS);
    }
    if (count == 0) {
        return DP_OK;
    }
    arrays.outs = outs;
    arrays.n = n;
    for (int i = 0; i < outs; i++) {
        arrays.ys[i] = ys[i];
    }
    for (int i = 0; i < n; i++) {
        arrays.xs[i] = xs[i];
    }
    DP_LAUNCH(tree_kernel, dp_blocks(s, count), DP_THREADS, 0, s, arrays, count);
    return DP_CUDA(cudaGetLastError());
}

/* One warp a block of DP_BLOCK elements: the order does not depend on where the range was cut. */
static __global__ void squares_kernel(float *out, const float *x, size_t count)
{
    const size_t lane = dp_thread() % (size_t)warpSize, warps = dp_threads() / (size_t)warpSize;

    for (size_t b = dp_thread() / (size_t)warpSize; b * DP_BLOCK < count; b += warps) {
        const size_t left = count - b * DP_BLOCK;
        float sum = 0;
        for (size_t i = lane; i < left && i < DP_BLOCK; i += (size_t)warpSize) {
            sum = __fmaf_rn(x[b * DP_BLOCK + i], x[b * DP_BLOCK + i], sum);
        }
        sum = dp_warp_sum(sum);
        if (lane == 0) {
            out[b] = sum;
        }
    }
}

extern "C" dp_status dp_cuda_block_squares(struct dp_stream *s, float *out, const float *x,
                                           size_t count)
{
    if (count == 0) {
        return DP_OK;
    }
    DP_LAUNCH(squares_kernel, dp_blocks(s, (count + DP_BLOCK - 1) / DP_BLOCK * 32), DP_THREADS, 0,
              s, out, x, count);
    return DP_CUDA(cudaGetLastError());
}
