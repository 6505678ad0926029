/*
 * cuda_runtime.h - as much of the CUDA runtime as kernels/cuda uses, on the host.
 *
 * Kernels run one block after another with one thread a block, so warps have one lane. Streams have
 * real order: what is queued runs when somebody waits for it, or now and then before, in a random
 * one of the orders that streams and events allow (runtime.cpp). Memory of the "device" can be
 * touched only while something that was queued runs: the host gets a segmentation fault. Memory of
 * the host that is not pinned is none of a kernel's: the program ends (reach.cpp).
 *
 * Names and meanings are NVIDIA's: CUDA Runtime API 13.0.
 */
#ifndef DP_TESTS_CUDA_ON_HOST_CUDA_RUNTIME_H
#define DP_TESTS_CUDA_ON_HOST_CUDA_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorMapBufferObjectFailed = 205,
    cudaErrorPeerAccessUnsupported = 217,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorPeerAccessAlreadyEnabled = 704,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901
};
typedef enum cudaError cudaError_t;

enum cudaMemcpyKind {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3
};

enum {
    cudaStreamNonBlocking = 1,
    cudaEventDisableTiming = 2,
    cudaHostAllocPortable = 1,
    cudaHostRegisterPortable = 1,
    cudaIpcMemLazyEnablePeerAccess = 1
};

struct cudaDeviceProp {
    char name[256];
    int major, minor; /* of the compute capability */
};

enum cudaDeviceAttr {
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76
};

typedef struct cuda_host_stream *cudaStream_t;
typedef struct cuda_host_event *cudaEvent_t;
typedef struct cuda_host_graph *cudaGraph_t, *cudaGraphExec_t;

enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };

typedef struct {
    char reserved[64];
} cudaIpcMemHandle_t;

const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError(void);

/* devices.cpp */
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaDeviceGetPCIBusId(char *id, int length, int device);
cudaError_t cudaDeviceEnablePeerAccess(int device, unsigned flags);
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *memory);
cudaError_t cudaIpcOpenMemHandle(void **memory, cudaIpcMemHandle_t handle, unsigned flags);
cudaError_t cudaIpcCloseMemHandle(void *memory);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device);
cudaError_t cudaMemGetInfo(size_t *left, size_t *total);

cudaError_t cudaMalloc(void **memory, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *memory);

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemset(void *memory, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);

/* A stream that captures keeps what is queued instead of doing it. What the runtime forbids then
 * (to wait, to take memory) fails here, too, and so do events, though CUDA knows how to capture
 * them. */
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end);

#ifdef __cplusplus
}

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

/* Of the block and the thread that run now. */
extern thread_local dim3 gridDim, blockIdx;
static const dim3 blockDim = {1, 1, 1}, threadIdx = {0, 0, 0};
static const int warpSize = 1;

/* Whether the driver that is pretended is new enough (driver.cpp). */
bool cuda_on_host_driver_serves();

/* devices.cpp: the file behind the memory of the devices, and where in it a block lies. */
int cuda_on_host_file();
bool cuda_on_host_block(void *memory, size_t *offset, size_t *bytes);

/* Queues something that can run once `ready` says so, which other processes may decide. */
void cuda_on_host_queue_when(cudaStream_t stream, std::function<bool()> ready,
                             std::function<void()> work);

/* The shared memory of the block that runs now. */
void *cuda_on_host_shared();

/* Queues `blocks` calls of body(). */
void cuda_on_host_queue(cudaStream_t stream, unsigned blocks, size_t shared,
                        std::function<void()> body);

/* reach.cpp: ends the program where a device does not reach the memory, or one that an argument of
 * a kernel names: all that looks like a pointer is taken for one. */
void cuda_on_host_must_reach(const void *memory);
void cuda_on_host_check_words(const void *argument, size_t bytes);

/* Bytes between members hold what was there before, old pointers as well: they are cleared, or what
 * is no pointer itself is not looked at. */
template <typename V> static inline void cuda_on_host_check(V argument)
{
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(&argument);
    cuda_on_host_check_words(&argument, sizeof(argument));
#else
    if constexpr (std::is_pointer_v<V>) {
        cuda_on_host_must_reach(argument);
    }
#endif
}

/* What <<<blocks, threads, shared, stream>>> is elsewhere. Arguments are copied, as by CUDA. The
 * number of blocks is another one than asked for: a kernel must be right for any. */
template <typename... P, typename... A>
void cuda_on_host_launch(void (*kernel)(P...), size_t blocks, unsigned threads, size_t shared,
                         cudaStream_t stream, A... arguments)
{
    std::tuple<P...> kept(static_cast<P>(arguments)...);

    (void)threads;
    std::apply([](const P &...each) { (cuda_on_host_check(each), ...); }, kept);
    cuda_on_host_queue(stream, blocks < 3 ? static_cast<unsigned>(blocks) : 3, shared,
                       [kernel, kept]() { std::apply(kernel, kept); });
}

static inline void __syncthreads()
{
}

template <typename V> static inline V __shfl_xor_sync(unsigned mask, V value, int lanes)
{
    (void)mask;
    (void)lanes;
    return value;
}

template <typename V> static inline V __shfl_up_sync(unsigned mask, V value, int lanes)
{
    (void)mask;
    (void)lanes;
    return value;
}

template <typename V> static inline V __shfl_sync(unsigned mask, V value, int lane)
{
    (void)mask;
    (void)lane;
    return value;
}

static inline unsigned __ballot_sync(unsigned mask, bool here)
{
    (void)mask;
    return here ? 1 : 0;
}

static inline void __syncwarp()
{
}

static inline int __popc(unsigned bits)
{
    return __builtin_popcount(bits);
}

static inline int __ffs(int bits)
{
    return __builtin_ffs(bits);
}

/* One thread runs at a time. */
template <typename V> static inline V atomicAdd(V *sum, V value)
{
    const V before = *sum;

    *sum += value;
    return before;
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
#endif

#endif
