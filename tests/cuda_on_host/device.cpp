/*
 * device.cpp - what cuda_runtime.h says about the device, and errors.
 */
#include "inside.h"

static thread_local cudaError_t last_error;

cudaError_t cuda_host_fail(cudaError_t error)
{
    last_error = error;
    return error;
}

const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaError";
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? "out of memory"
           : error >= cudaErrorStreamCaptureUnsupported
               ? "operation not permitted when stream is capturing"
               : "error of the simulated device";
}

cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = last_error;

    last_error = cudaSuccess;
    return error;
}
