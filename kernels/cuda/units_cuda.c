/*
 * units_cuda.c - several GPUs: which one a thread works on, and memory that processes share.
 *
 * Which GPUs there are, and in which order, says CUDA, and so CUDA_VISIBLE_DEVICES.
 */
#include <cuda_runtime.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/stream/cuda_status.h"
#include "kernels/cuda/stream/stream_cuda.h"

_Static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(struct dp_unit_handle), "sent as it is");

__thread int dp_cuda_current = -1;
static __thread int mine = -1; /* what this thread chose */
static atomic_int chosen;      /* what was chosen last: for threads that do not */

int dp_cuda_unit(void)
{
    return mine >= 0 ? mine : atomic_load(&chosen);
}

/* A failure shows in whatever is called next. */
void dp_cuda_enter(int unit)
{
    if (dp_cuda_current != unit && cudaSetDevice(unit) == cudaSuccess) {
        dp_cuda_current = unit;
    }
}

static int units_count(void)
{
    int count = 0;

    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

static dp_status units_choose(int unit)
{
    DP_TRY(DP_CUDA(cudaSetDevice(unit)));
    dp_cuda_current = mine = unit;
    atomic_store(&chosen, unit);
    return DP_OK;
}

static dp_status units_name(char name[DP_UNIT_NAME])
{
    return DP_CUDA(cudaDeviceGetPCIBusId(name, DP_UNIT_NAME, dp_cuda_unit()));
}

static void units_label(char label[DP_UNIT_LABEL])
{
    struct cudaDeviceProp properties;
    const int unit = dp_cuda_unit();

    (void)snprintf(label, DP_UNIT_LABEL, "cuda:%d", unit);
    if (cudaGetDeviceProperties(&properties, unit) == cudaSuccess) {
        (void)snprintf(label, DP_UNIT_LABEL, "cuda:%d (%.64s)", unit, properties.name);
    }
}

/* Whether it went well; a failure is also kept for cudaGetLastError(). */
static bool went_well(cudaError_t error, const char **why_not)
{
    if (error == cudaSuccess) {
        return true;
    }
    (void)cudaGetLastError();
    *why_not = cudaGetErrorString(error);
    return false;
}

static bool units_share(void *memory, struct dp_unit_handle *handle, const char **why_not)
{
    cudaIpcMemHandle_t ipc;

    dp_cuda_enter(dp_cuda_unit());
    if (!went_well(cudaIpcGetMemHandle(&ipc, memory), why_not)) {
        return false;
    }
    memcpy(handle->bytes, &ipc, sizeof(handle->bytes));
    return true;
}

static void *units_attach(const struct dp_unit_handle *handle, const char **why_not)
{
    cudaIpcMemHandle_t ipc;
    void *memory = NULL;

    dp_cuda_enter(dp_cuda_unit());
    memcpy(&ipc, handle->bytes, sizeof(ipc));
    return went_well(cudaIpcOpenMemHandle(&memory, ipc, cudaIpcMemLazyEnablePeerAccess), why_not)
               ? memory
               : NULL;
}

static void units_detach(void *memory)
{
    dp_cuda_enter(dp_cuda_unit());
    if (cudaIpcCloseMemHandle(memory) != cudaSuccess) {
        (void)cudaGetLastError();
    }
}

static bool units_join(int unit, const char **why_not)
{
    cudaError_t error;

    if (unit == dp_cuda_unit()) {
        return true;
    }
    dp_cuda_enter(dp_cuda_unit());
    error = cudaDeviceEnablePeerAccess(unit, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
        (void)cudaGetLastError();
        return true;
    }
    return went_well(error, why_not);
}

static void *units_queue(const struct dp_stream *stream)
{
    return dp_cuda_of(stream)->queue;
}

const struct dp_units dp_cuda_units = {
    .count = units_count,
    .choose = units_choose,
    .name = units_name,
    .label = units_label,
    .share = units_share,
    .attach = units_attach,
    .detach = units_detach,
    .join = units_join,
    .queue = units_queue,
};
