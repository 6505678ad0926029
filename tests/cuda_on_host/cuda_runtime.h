/*
 * cuda_runtime.h - as much of the CUDA runtime as kernels/cuda uses, on the host.
 *
 * Kernels run one block after another, with all threads of a block and warps of 32, which meet in
 * barriers and shuffles as on a GPU (block.cpp). Streams have real order: what is queued runs when
 * somebody waits for it, or now and then before, in a random one of the orders that streams and
 * events allow (runtime.cpp). Memory of the "device" can be touched only while something that was
 * queued runs: the host gets a segmentation fault. Memory of the host that is not pinned is none of
 * a kernel's, nor is memory that was freed: the program ends (reach.cpp). A call that fails leaves
 * its error for cudaGetLastError().
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
    cudaEventDefault = 0,
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
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *kernel,
                                                          int threads, size_t shared);
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

#include "kernel_side.h"

/* Whether the driver that is pretended is new enough (driver.cpp). */
bool cuda_on_host_driver_serves();

/* memory.cpp: the file that holds the memory of the devices. */
int cuda_on_host_file();
#endif

#endif
