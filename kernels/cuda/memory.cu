/*
 * memory.cu - filling, copying, adding many arrays, and squares: see kernels/ops.h.
 *
 * Bytes moved per element: sum_tree 4 (n + outs), block_squares and sum_all 4; zero and copy are
 * the driver's.
 */
#include "kernels/cuda/stream/launch.h"

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

/* An element of the larger array a thread; neighbours are neighbours in both. */
template <typename T>
static __global__ void put_kernel(T *y, const T *x, struct dp_columns c, size_t count)
{
    for (size_t i = dp_thread(); i < count; i += dp_threads()) {
        const size_t row = i / c.width, column = i % c.width - c.at; /* wraps to very large */
        float value[1] = {};
        if (column < c.count) {
            dp_read<1>(value, x + row * c.count + column);
        }
        dp_write<1>(y + i, value);
    }
}

template <typename T>
static __global__ void take_kernel(T *x, const T *y, struct dp_columns c, size_t count)
{
    for (size_t i = dp_thread(); i < count; i += dp_threads()) {
        float value[1];
        dp_read<1>(value, y + i / c.count * c.width + c.at + i % c.count);
        dp_write<1>(x + i, value);
    }
}

extern "C" dp_status dp_cuda_put_columns(struct dp_stream *s, void *y, const void *x, size_t rows,
                                         const struct dp_columns *columns)
{
    const size_t count = rows * columns->width;

    if (count == 0) {
        return DP_OK;
    }
    DP_BY_TYPE(s->type, T, {
        DP_LAUNCH((put_kernel<T>), dp_blocks(s, count), DP_THREADS, 0, s, (T *)y, (const T *)x,
                  *columns, count);
    });
    return DP_CUDA(cudaGetLastError());
}

extern "C" dp_status dp_cuda_take_columns(struct dp_stream *s, void *x, const void *y, size_t rows,
                                          const struct dp_columns *columns)
{
    const size_t count = rows * columns->count;

    if (count == 0) {
        return DP_OK;
    }
    DP_BY_TYPE(s->type, T, {
        DP_LAUNCH((take_kernel<T>), dp_blocks(s, count), DP_THREADS, 0, s, (T *)x, (const T *)y,
                  *columns, count);
    });
    return DP_CUDA(cudaGetLastError());
}

enum { ARRAYS = 64, LEVELS = 7 };

/* Passed by value: 1 KiB of the 4 KiB that arguments may have. */
struct arrays {
    float *ys[ARRAYS];
    const float *xs[ARRAYS];
    int outs, n;
};

template <int P> static __device__ __forceinline__ void add_to(float (&y)[P], const float (&x)[P])
{
#pragma unroll
    for (int p = 0; p < P; p++) {
        y[p] += x[p];
    }
}

/* The tree is that of a binary counter: sums of 1, 2, 4 ... arrays are closed as soon as they are
 * complete, and what is left is added from the right. With N known all of it is unrolled, and the
 * sums are registers. */
template <int P, int N>
static __device__ __forceinline__ void tree(float (&sums)[LEVELS][P], const struct arrays &arrays,
                                            size_t i)
{
    const int n = N > 0 ? N : arrays.n;
    int depth = 0;

#pragma unroll
    for (int k = 0; k < n; k++) {
        dp_read<P>(sums[depth++], arrays.xs[k] + i);
#pragma unroll
        for (int bits = k; (bits & 1) != 0; bits >>= 1) {
            depth--;
            add_to(sums[depth - 1], sums[depth]);
        }
    }
#pragma unroll
    while (depth > 1) {
        depth--;
        add_to(sums[depth - 1], sums[depth]);
    }
}

/* Of N arrays, or, 0, of arrays.n; `count` is a multiple of P. */
template <int P, int N> static __global__ void tree_kernel(const struct arrays arrays, size_t count)
{
    for (size_t i = dp_thread() * P; i < count; i += dp_threads() * P) {
        float sums[LEVELS][P];
        tree<P, N>(sums, arrays, i); /* before any of ys, which may be one of xs */
        for (int out = 0; out < arrays.outs; out++) {
            dp_write<P>(arrays.ys[out] + i, sums[0]);
        }
    }
}

typedef void kernel_of_trees(const struct arrays arrays, size_t count);

/* As many ranks as a node has GPUs, lanes as a rule, and their halves. */
template <int P> static kernel_of_trees *tree_kernel_of(int n)
{
    static kernel_of_trees *const kernels[] = {
        tree_kernel<P, 0>, tree_kernel<P, 1>, tree_kernel<P, 2>,
        tree_kernel<P, 3>, tree_kernel<P, 4>, tree_kernel<P, 5>,
        tree_kernel<P, 6>, tree_kernel<P, 7>, tree_kernel<P, 8>};

    return kernels[n < 9 ? n : 0];
}

extern "C" dp_status dp_cuda_sum_tree(struct dp_stream *s, float *const *ys, int outs,
                                      const float *const *xs, int n, size_t count)
{
    struct arrays arrays = {};
    bool wide = count % 4 == 0;

    if (n > ARRAYS || outs > ARRAYS) {
        return DP_FAIL(DP_ERR_UNAVAILABLE, "a sum of %d arrays for %d on a GPU: at most %d", n,
                       outs, ARRAYS);
    }
    if (count == 0) {
        return DP_OK;
    }
    arrays.outs = outs;
    arrays.n = n;
    for (int i = 0; i < outs; i++) {
        arrays.ys[i] = ys[i];
        wide = wide && dp_aligned(ys[i]);
    }
    for (int i = 0; i < n; i++) {
        arrays.xs[i] = xs[i];
        wide = wide && dp_aligned(xs[i]);
    }
    if (wide) {
        DP_LAUNCH(tree_kernel_of<4>(n), dp_blocks(s, count / 4), DP_THREADS, 0, s, arrays, count);
    } else {
        DP_LAUNCH(tree_kernel_of<1>(n), dp_blocks(s, count), DP_THREADS, 0, s, arrays, count);
    }
    return DP_CUDA(cudaGetLastError());
}

/* Squares of elements at .. at + 3 of a block, of which `left` are there. */
static __device__ __forceinline__ float squares(const float *x, size_t at, size_t left, bool wide,
                                                float sum)
{
    float values[4] = {};

    if (wide && at + 4 <= left) {
        dp_read<4>(values, x + at);
    } else {
        for (size_t i = 0; i < 4 && at + i < left; i++) {
            values[i] = x[at + i];
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sum = __fmaf_rn(values[i], values[i], sum);
    }
    return sum;
}

/* So many threads of a warp a block of DP_BLOCK elements, 16 bytes each; all threads of a warp go
 * round equally often, since they add up together. The order of additions depends neither on where
 * the range was cut nor on its address. */
static __global__ void squares_kernel(float *out, const float *x, size_t count, bool wide)
{
    const int threads = warpSize < DP_BLOCK / 4 ? warpSize : DP_BLOCK / 4;
    const size_t lane = dp_thread() % (size_t)threads, groups = (size_t)(warpSize / threads);
    const size_t warp = dp_thread() / (size_t)warpSize, warps = dp_threads() / (size_t)warpSize;
    const size_t group = dp_thread() % (size_t)warpSize / (size_t)threads;

    for (size_t first = warp * groups; first * DP_BLOCK < count; first += warps * groups) {
        const size_t begin = (first + group) * DP_BLOCK, left = begin < count ? count - begin : 0;
        const size_t most = left < DP_BLOCK ? left : (size_t)DP_BLOCK;
        float sum = 0;
        for (size_t at = lane * 4; at < DP_BLOCK; at += (size_t)threads * 4) {
            sum = squares(x + begin, at, most, wide, sum);
        }
        for (int lanes = threads / 2; lanes > 0; lanes /= 2) {
            sum += __shfl_xor_sync(~0u, sum, lanes);
        }
        if (lane == 0 && left > 0) {
            out[first + group] = sum;
        }
    }
}

extern "C" dp_status dp_cuda_block_squares(struct dp_stream *s, float *out, const float *x,
                                           size_t count)
{
    if (count == 0) {
        return DP_OK;
    }
    DP_LAUNCH(squares_kernel, dp_blocks(s, (count + 3) / 4), DP_THREADS, 0, s, out, x, count,
              dp_aligned(x));
    return DP_CUDA(cudaGetLastError());
}

/* Of sum_all: elements that a block adds up at least, and parts that another block adds up. */
enum { PART = 16384, PARTS = 1024 };

/* Part `part` of so many; they begin at multiples of 4. */
static __host__ __device__ inline size_t part_begin(size_t count, size_t parts, size_t part)
{
    return (count / 4 * part / parts) * 4;
}

static __device__ double sum_range(const float *x, size_t begin, size_t end, bool wide,
                                   double *shared)
{
    double sum = 0;

    for (size_t at = begin + (size_t)threadIdx.x * 4; at < end; at += (size_t)blockDim.x * 4) {
        float values[4] = {};
        if (wide && at + 4 <= end) {
            dp_read<4>(values, x + at);
        } else {
            for (size_t i = 0; i < 4 && at + i < end; i++) {
                values[i] = x[at + i];
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            sum += (double)values[i];
        }
    }
    return dp_block_sum(sum, shared);
}

/* The order depends on the number of parts and on the size of a block, and so on `count` alone. */
static __global__ void parts_kernel(double *out, const float *x, size_t count, size_t parts,
                                    bool wide)
{
    DP_SHARED(double, shared);

    for (size_t part = blockIdx.x; part < parts; part += gridDim.x) {
        const size_t end = part + 1 < parts ? part_begin(count, parts, part + 1) : count;
        const double sum = sum_range(x, part_begin(count, parts, part), end, wide, shared);
        if (threadIdx.x == 0) {
            out[part] = sum;
        }
    }
}

/* One block. */
static __global__ void total_kernel(double *out, const double *parts, size_t count)
{
    DP_SHARED(double, shared);
    double sum = 0;

    for (size_t i = threadIdx.x; i < count; i += blockDim.x) {
        sum += parts[i];
    }
    sum = dp_block_sum(sum, shared);
    if (threadIdx.x == 0) {
        *out = sum;
    }
}

extern "C" dp_status dp_cuda_sum_all(struct dp_stream *s, double *out, const float *x, size_t count)
{
    const size_t parts = dp_least(count / PART + 1, PARTS), warps = DP_THREADS / 32;
    double *sums = dp_cuda_of(s)->partials;

    DP_LAUNCH(parts_kernel, dp_blocks(s, parts * DP_THREADS), DP_THREADS, warps * sizeof(double), s,
              sums, x, count, parts, dp_aligned(x));
    DP_TRY(DP_CUDA(cudaGetLastError()));
    DP_LAUNCH(total_kernel, 1, DP_THREADS, warps * sizeof(double), s, out, (const double *)sums,
              parts);
    return DP_CUDA(cudaGetLastError());
}
