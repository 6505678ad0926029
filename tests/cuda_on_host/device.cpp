/*
 * device.cpp - what cuda_runtime.h says about the device, and errors.
 */
#include "cuda_runtime.h"

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
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = cuda_on_host_driver_serves() ? 1 : 0;
    return *count == 1 ? cudaSuccess : cudaErrorInsufficientDriver;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    (void)attribute;
    (void)device;
    *value = 2;
    return cudaSuccess;
}
