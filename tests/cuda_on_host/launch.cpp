/*
 * launch.cpp - kernels on their way: what a GPU refuses to launch, grids, shared memory.
 */
#include <algorithm>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "block.h"
#include "costs.h"
#include "streams.h"

/* most_blocks: of a grid, of as many as were asked for. SHARED: bytes that a block can have without
 * being asked for more. */
enum { SHARED = 48 << 10, PAGE = 4096, ALIGNMENT = 16 };
static const size_t most_blocks = 3;

static char *shared_end;
static size_t shared_bytes;

/* It ends where a page begins that nobody may touch. */
static void shared_open(size_t bytes)
{
    if (shared_end == nullptr) {
        void *memory = mmap(nullptr, SHARED + PAGE, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED ||
            mprotect(static_cast<char *>(memory) + SHARED, PAGE, PROT_NONE) != 0) {
            fprintf(stderr, "no shared memory for a block\n");
            abort();
        }
        shared_end = static_cast<char *>(memory) + SHARED;
    }
    shared_bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

void *cuda_on_host_shared()
{
    return shared_end - shared_bytes;
}

/* Blocks run one after another, from any of them on. */
static void run_grid(const cuda_on_host_grid &grid, const std::function<void()> &body)
{
    const unsigned count = static_cast<unsigned>(std::min(grid.blocks, most_blocks));
    const unsigned first = static_cast<unsigned>(cuda_on_host_random(count));

    gridDim = {count, 1, 1};
    blockDim = {grid.threads, 1, 1};
    shared_open(grid.shared);
    for (unsigned i = 0; i < count; i++) {
        blockIdx = {(first + i) % count, 0, 0};
        memset(cuda_on_host_shared(), 0xff, shared_bytes); /* NaN */
        cuda_on_host_run_block(grid.kernel, grid.threads, body);
    }
    cuda_on_host_spend(cuda_on_host_cost("pass") / 10);
}

/* A stream takes work only while its own device is the current one. */
static void check_device(const char *name, const cuda_host_stream *stream)
{
    int device = 0;

    cudaGetDevice(&device);
    if (device != stream->device) {
        fprintf(stderr, "%s for device %d while %d is the current one\n", name, stream->device,
                device);
        abort();
    }
}

void cuda_on_host_queue(const cuda_on_host_grid &grid, cudaStream_t stream,
                        std::function<void()> body)
{
    check_device(grid.kernel, stream);
    if (grid.blocks == 0 || grid.blocks > INT32_MAX || grid.threads == 0 ||
        grid.threads > CUDA_ON_HOST_THREADS || grid.shared > SHARED) {
        (void)cuda_host_take_given();
        (void)cuda_host_fail(cudaErrorInvalidConfiguration);
        return;
    }
    cuda_on_host_check_grid(grid.kernel, grid.blocks);
    cuda_host_queue_work(
        stream, {KERNEL, grid.kernel, [grid, body]() { run_grid(grid, body); }, WITHIN, 0});
}

void cuda_on_host_queue_call(const char *name, cudaStream_t stream, std::function<void()> body)
{
    check_device(name, stream);
    cuda_host_queue_work(stream, {strncmp(name, "cudnn", 5) == 0 ? CONVOLUTION : PRODUCT, name,
                                  std::move(body), WITHIN, 0});
}
