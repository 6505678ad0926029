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
