/*
 * kernel_side.h - what a kernel sees of CUDA: its place in the grid, barriers, its warp, atomics;
 * and how it is launched. Included by cuda_runtime.h.
 *
 * Names and meanings are NVIDIA's: CUDA C++ programming guide 13.0.
 */
#ifndef DP_TESTS_CUDA_ON_HOST_KERNEL_SIDE_H
#define DP_TESTS_CUDA_ON_HOST_KERNEL_SIDE_H

#include <functional>
#include <math.h>
#include <string.h>
#include <tuple>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct dim3 {
    unsigned x, y, z;
};

/* Of the block and the thread that run now: there is one at a time (block.cpp). */
extern dim3 gridDim, blockDim, blockIdx, threadIdx;
static const int warpSize = 32;

/* ---- what threads do together ---- */

/* A call that threads meet in: they must all come to this one. */
struct cuda_on_host_call {
    const char *name, *file;
    int line;
    bool ballots; /* gives the votes of all, not a value of one */
};

/* Returns when all threads of the block are here. */
void cuda_on_host_barrier(const cuda_on_host_call &call);

/* Returns when all lanes of the mask are here: the value of lane `from`, or the votes. */
uint64_t cuda_on_host_meet(const cuda_on_host_call &call, unsigned mask, uint64_t value,
                           unsigned from);

#define CUDA_ON_HOST_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

static inline void __syncthreads(CUDA_ON_HOST_HERE)
{
    cuda_on_host_barrier({"__syncthreads()", file, line, false});
}

static inline void __syncwarp(unsigned mask = ~0u, CUDA_ON_HOST_HERE)
{
    (void)cuda_on_host_meet({"__syncwarp()", file, line, false}, mask, 0, threadIdx.x % 32);
}

static inline unsigned __ballot_sync(unsigned mask, bool here, CUDA_ON_HOST_HERE)
{
    return static_cast<unsigned>(cuda_on_host_meet({"__ballot_sync()", file, line, true}, mask,
                                                   here ? 1 : 0, threadIdx.x % 32));
}

template <typename V>
static inline V cuda_on_host_shuffle(const cuda_on_host_call &call, unsigned mask, V value,
                                     unsigned from)
{
    uint64_t bits = 0;

    static_assert(sizeof(V) <= sizeof(bits), "a shuffle moves 4 or 8 bytes");
    memcpy(&bits, &value, sizeof(value));
    bits = cuda_on_host_meet(call, mask, bits, from);
    memcpy(&value, &bits, sizeof(value));
    return value;
}

template <typename V>
static inline V __shfl_sync(unsigned mask, V value, int lane, CUDA_ON_HOST_HERE)
{
    return cuda_on_host_shuffle({"__shfl_sync()", file, line, false}, mask, value,
                                static_cast<unsigned>(lane) % 32);
}

template <typename V>
static inline V __shfl_xor_sync(unsigned mask, V value, int lanes, CUDA_ON_HOST_HERE)
{
    return cuda_on_host_shuffle({"__shfl_xor_sync()", file, line, false}, mask, value,
                                (threadIdx.x ^ static_cast<unsigned>(lanes)) % 32);
}

/* A lane that there is none for gets its own value back. */
template <typename V>
static inline V __shfl_up_sync(unsigned mask, V value, unsigned lanes, CUDA_ON_HOST_HERE)
{
    const unsigned own = threadIdx.x % 32;

    return cuda_on_host_shuffle({"__shfl_up_sync()", file, line, false}, mask, value,
                                own >= lanes ? own - lanes : own);
}

template <typename V>
static inline V __shfl_down_sync(unsigned mask, V value, unsigned lanes, CUDA_ON_HOST_HERE)
{
    const unsigned own = threadIdx.x % 32;

    return cuda_on_host_shuffle({"__shfl_down_sync()", file, line, false}, mask, value,
                                own + lanes < 32 ? own + lanes : own);
}

/* ---- what a thread does alone; one runs at a time ---- */

template <typename V> static inline V atomicAdd(V *sum, V value)
{
    const V before = *sum;

    *sum += value;
    return before;
}

static inline int __popc(unsigned bits)
{
    return __builtin_popcount(bits);
}

static inline int __ffs(int bits)
{
    return __builtin_ffs(bits);
}

static inline unsigned __float_as_uint(float value)
{
    unsigned bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float __uint_as_float(unsigned bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}

/* ---- what a kernel asks of memory ---- */

/* Of all kernels so far, through dp_read() and dp_write() (launch.h): accesses, and how often one
 * that reads comes after one that writes. */
extern uint64_t cuda_on_host_accesses, cuda_on_host_turns;
extern bool cuda_on_host_wrote;

static inline void cuda_on_host_touch(bool writes)
{
    cuda_on_host_accesses++;
    cuda_on_host_turns += cuda_on_host_wrote && !writes;
    cuda_on_host_wrote = writes;
}

/* ---- launching ---- */

struct cuda_on_host_grid {
    const char *kernel; /* as it is written where it is launched */
    size_t blocks;
    unsigned threads;
    size_t shared; /* bytes of a block */
};

/* occupancy.cpp: ends the program where a grid has more blocks than a device runs at a time. */
void cuda_on_host_check_grid(const char *kernel, size_t blocks);

/* The shared memory of the block that runs now: all NaN when it begins. */
void *cuda_on_host_shared();

/* Queues body() for each thread of so many blocks, or of fewer: a kernel must be right for any
 * number. What a GPU does not launch is kept for cudaGetLastError(). */
void cuda_on_host_queue(const cuda_on_host_grid &grid, cudaStream_t stream,
                        std::function<void()> body);

/* Queues one call of a library. */
void cuda_on_host_queue_call(const char *name, cudaStream_t stream, std::function<void()> body);

/* Queues something that can run once `ready` says so, which other processes may decide. */
void cuda_on_host_queue_when(cudaStream_t stream, std::function<bool()> ready,
                             std::function<void()> work);

/* reach.cpp: ends the program where a device does not reach the memory, or one that an argument of
 * what is queued next names: all that looks like a pointer is taken for one. name: who is given
 * it. */
void cuda_on_host_must_reach(const char *name, const void *memory);
void cuda_on_host_check_words(const char *name, const void *argument, size_t bytes);

/* Bytes between members hold what was there before, old pointers as well: they are cleared, or what
 * is no pointer itself is not looked at. */
template <typename V> static inline void cuda_on_host_check(const char *name, V argument)
{
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(&argument);
    cuda_on_host_check_words(name, &argument, sizeof(argument));
#else
    if constexpr (std::is_pointer_v<V>) {
        cuda_on_host_must_reach(name, argument);
    }
#endif
}

/* What <<<blocks, threads, shared, stream>>> is elsewhere. Arguments are copied, as by CUDA. */
template <typename... P, typename... A>
void cuda_on_host_launch(const char *name, void (*kernel)(P...), size_t blocks, unsigned threads,
                         size_t shared, cudaStream_t stream, A... arguments)
{
    std::tuple<P...> kept(static_cast<P>(arguments)...);

    std::apply([name](const P &...each) { (cuda_on_host_check(name, each), ...); }, kept);
    cuda_on_host_queue({name, blocks, threads, shared}, stream,
                       [kernel, kept]() { std::apply(kernel, kept); });
}

#endif
