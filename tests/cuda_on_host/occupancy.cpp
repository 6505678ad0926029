/*
 * occupancy.cpp - how many blocks of a kernel a device runs at a time: a few a processor, whatever
 * the kernel.
 */
#include "inside.h"

#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS = 3 }; /* fewer than would fit with few registers */

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *kernel,
                                                          int threads, size_t shared)
{
    (void)shared;
    *blocks = BLOCKS;
    return kernel != nullptr && threads > 0 ? cudaSuccess : cuda_host_fail(cudaErrorInvalidValue);
}

void cuda_on_host_check_grid(const char *kernel, size_t blocks)
{
    int processors = 0;

    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
    if (blocks > static_cast<size_t>(processors) * BLOCKS) {
        fprintf(stderr, "kernel %s: a grid of %zu blocks, of which the device runs %d at a time\n",
                kernel, blocks, processors * BLOCKS);
        abort();
    }
}
