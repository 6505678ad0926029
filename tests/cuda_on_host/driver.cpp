/*
 * driver.cpp - the driver that is not there: its version, and what it calls the device.
 */
#include "cuda_runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int runtime_version = 13000;

/* DP_CUDA_DRIVER, or one that is new enough. */
static int driver_version()
{
    const char *text = getenv("DP_CUDA_DRIVER");

    return text != nullptr ? static_cast<int>(strtol(text, nullptr, 10)) : runtime_version;
}

bool cuda_on_host_driver_serves()
{
    return driver_version() >= runtime_version;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = driver_version();
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = runtime_version;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    (void)device;
    memset(properties, 0, sizeof(*properties));
    snprintf(properties->name, sizeof(properties->name), "the host");
    return cudaSuccess;
}
