/*
 * launch.h - all that a .cu file needs: launching, element types, and sums within warps and blocks.
 *
 * Kernels are right for any grid and any block whose threads are a multiple of the warp: they loop
 * by the grid's size, and never assume what these numbers are. They also compile with the C++
 * compiler and run on the host, one block after another (tests/cuda_on_host). Everything that would
 * make a difference comes from this header alone.
 *
 * Files are compiled without contraction: a * b + c rounds twice, as in `ref`, and __fmaf_rn once.
 */
#ifndef DP_KERNELS_CUDA_STREAM_LAUNCH_H
#define DP_KERNELS_CUDA_STREAM_LAUNCH_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include "kernels/cuda/ops_cuda.h"
#include "kernels/cuda/stream/cuda_status.h"
#include "kernels/cuda/stream/resident_cuda.h"
#include "kernels/cuda/stream/stream_cuda.h"
}

/* DP_LAUNCH(kernel, blocks, threads, shared bytes, stream, arguments ...), of no more blocks than
 * the GPU runs at a time: see dp_grid(). Put a kernel whose name has commas into parentheses.
 * Launch errors are found by cudaGetLastError(). */
#ifdef __CUDACC__
#define DP_LAUNCH(kernel, blocks, threads, shared, stream, ...)                                 \
    (kernel)<<<dp_grid((stream), (kernel), (blocks), (threads), (shared)), (threads), (shared), \
               dp_cuda_of(stream)->queue>>>(__VA_ARGS__)
#define DP_TOUCH(writes)
#define DP_SHARED(type, name)                                  \
    extern __shared__ __align__(16) unsigned char dp_shared[]; \
    type *name = reinterpret_cast<type *>(dp_shared)
#else
#define DP_LAUNCH(kernel, blocks, threads, shared, stream, ...)                                \
    cuda_on_host_launch(#kernel, (kernel),                                                     \
                        dp_grid((stream), (kernel), (blocks), (threads), (shared)), (threads), \
                        (shared), dp_cuda_of(stream)->queue, __VA_ARGS__)
#define DP_TOUCH(writes) cuda_on_host_touch(writes) /* counted there */
#define DP_SHARED(type, name) type *name = static_cast<type *>(cuda_on_host_shared())
#endif

/* Runs the statements with T as the C++ type of an enum dp_type. */
#define DP_BY_TYPE(type, T, ...)             \
    do {                                     \
        if ((type) == DP_TYPE_F32) {         \
            typedef float T;                 \
            __VA_ARGS__                      \
        } else if ((type) == DP_TYPE_BF16) { \
            typedef __nv_bfloat16 T;         \
            __VA_ARGS__                      \
        } else {                             \
            typedef __half T;                \
            __VA_ARGS__                      \
        }                                    \
    } while (0)

/* ---- element types; arithmetic is float32 ---- */

static __device__ __forceinline__ float dp_wide(float value)
{
    return value;
}

static __device__ __forceinline__ float dp_wide(__nv_bfloat16 value)
{
    return __bfloat162float(value);
}

static __device__ __forceinline__ float dp_wide(__half value)
{
    return __half2float(value);
}

static __device__ __forceinline__ void dp_narrow(float *y, float value)
{
    *y = value;
}

static __device__ __forceinline__ void dp_narrow(__nv_bfloat16 *y, float value)
{
    *y = __float2bfloat16_rn(value);
}

static __device__ __forceinline__ void dp_narrow(__half *y, float value)
{
    *y = __float2half_rn(value);
}

/* P elements that are read and written at once: 16 bytes where addresses allow, else one. */
template <typename T, int P> struct alignas(sizeof(T) * P) dp_pack {
    T at[P];
};

template <typename T> constexpr int dp_pack_of()
{
    return 16 / (int)sizeof(T);
}

static inline bool dp_aligned(const void *a)
{
    return (uintptr_t)a % 16 == 0;
}

template <int P, typename T>
static __device__ __forceinline__ void dp_read(float *to, const T *from)
{
    const dp_pack<T, P> pack = *reinterpret_cast<const dp_pack<T, P> *>(from);

    DP_TOUCH(false);
#pragma unroll
    for (int p = 0; p < P; p++) {
        to[p] = dp_wide(pack.at[p]);
    }
}

/* The same of an array to which this thread has not written what it reads: what it wrote elsewhere
 * is not waited for, so that reads of several rounds are under way at a time. And writing. Whole
 * words are named, since nvcc may take a pack apart: a backward of batch norm that stored elements
 * of 2 bytes one by one took 2.2 times as long. */
#ifdef __CUDACC__
template <typename T, int P> union dp_words {
    dp_pack<T, P> pack;
    uint4 four;
    uint2 two;
    __device__ dp_words() : four()
    {
    }
};

template <int P, typename T>
static __device__ __forceinline__ void dp_read_ahead(float *to, const T *from)
{
    dp_words<T, P> words;

    if constexpr (sizeof(words.pack) == sizeof(uint4)) {
        words.four = __ldg(reinterpret_cast<const uint4 *>(from));
    } else if constexpr (sizeof(words.pack) == sizeof(uint2)) {
        words.two = __ldg(reinterpret_cast<const uint2 *>(from));
    } else {
        words.pack = *reinterpret_cast<const dp_pack<T, P> *>(from);
    }
#pragma unroll
    for (int p = 0; p < P; p++) {
        to[p] = dp_wide(words.pack.at[p]);
    }
}

template <int P, typename T>
static __device__ __forceinline__ void dp_write(T *to, const float *from)
{
    dp_words<T, P> words;

#pragma unroll
    for (int p = 0; p < P; p++) {
        dp_narrow(&words.pack.at[p], from[p]);
    }
    if constexpr (sizeof(words.pack) == sizeof(uint4)) {
        asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
                     "r"(words.four.x), "r"(words.four.y), "r"(words.four.z), "r"(words.four.w)
                     : "memory");
    } else if constexpr (sizeof(words.pack) == sizeof(uint2)) {
        asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(to)),
                     "r"(words.two.x), "r"(words.two.y)
                     : "memory");
    } else {
        *reinterpret_cast<dp_pack<T, P> *>(to) = words.pack;
    }
}
#else
template <int P, typename T> static void dp_read_ahead(float *to, const T *from)
{
    dp_read<P>(to, from);
}

template <int P, typename T> static void dp_write(T *to, const float *from)
{
    dp_pack<T, P> pack;

    for (int p = 0; p < P; p++) {
        dp_narrow(&pack.at[p], from[p]);
    }
    DP_TOUCH(true);
    *reinterpret_cast<dp_pack<T, P> *>(to) = pack;
}
#endif

/* ---- this thread's place ---- */

static __device__ __forceinline__ size_t dp_thread()
{
    return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ __forceinline__ size_t dp_threads()
{
    return (size_t)gridDim.x * blockDim.x;
}

static __host__ __device__ inline size_t dp_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Blocks for `count` threads' work, at least one, and no more than the GPU runs of any kernel. */
static inline size_t dp_blocks(const struct dp_stream *s, size_t count)
{
    const size_t wanted = (count + DP_THREADS - 1) / DP_THREADS;

    return wanted == 0 ? 1 : dp_least(wanted, (size_t)dp_cuda_of(s)->blocks);
}

/* Blocks of this kernel that the GPU runs at a time: its registers decide. */
template <typename... A>
static inline size_t dp_resident(const struct dp_stream *s, void (*kernel)(A...), unsigned threads,
                                 size_t shared)
{
    return dp_cuda_resident(dp_cuda_of(s), reinterpret_cast<const void *>(kernel), threads, shared);
}

/* Of `blocks` no more than that: kernels loop by the grid's size, and blocks that have to wait for
 * others leave processors idle at the end. */
template <typename... A>
static inline unsigned dp_grid(const struct dp_stream *s, void (*kernel)(A...), size_t blocks,
                               unsigned threads, size_t shared)
{
    return (unsigned)(blocks < 2 ? blocks
                                 : dp_least(blocks, dp_resident(s, kernel, threads, shared)));
}

/* Whether all indices of a loop over so many elements fit into 32 bits, also the one after the
 * last round: dividing 64-bit ones takes longer than the memory. */
static inline bool dp_is_small(size_t a, size_t b)
{
    return a < (size_t)1 << 30 && b < (size_t)1 << 30;
}

/* ---- sums over threads, in an order that depends on the block's size alone ---- */

template <typename V> static __device__ __forceinline__ V dp_warp_sum(V value)
{
    for (int lanes = warpSize / 2; lanes > 0; lanes /= 2) {
        value += __shfl_xor_sync(~0u, value, lanes);
    }
    return value;
}

/* The sum of the values of this lane and all before it. */
template <typename V> static __device__ __forceinline__ V dp_warp_scan(V value)
{
    const int lane = (int)threadIdx.x % warpSize;

    for (int lanes = 1; lanes < warpSize; lanes *= 2) {
        const V before = __shfl_up_sync(~0u, value, lanes);
        value += lane >= lanes ? before : 0;
    }
    return value;
}

/* The lanes that come before this one, as bits. */
static __device__ __forceinline__ unsigned dp_lanes_before()
{
    return (1u << (threadIdx.x % (unsigned)warpSize)) - 1;
}

/* On every thread of the block. `shared` has room for a value of each warp. */
template <typename V> static __device__ V dp_block_sum(V value, V *shared)
{
    const int warps = ((int)blockDim.x + warpSize - 1) / warpSize;
    V sum = 0;

    value = dp_warp_sum(value);
    if ((int)threadIdx.x % warpSize == 0) {
        shared[(int)threadIdx.x / warpSize] = value;
    }
    __syncthreads();
    for (int i = 0; i < warps; i++) {
        sum += shared[i];
    }
    __syncthreads();
    return sum;
}

#endif
