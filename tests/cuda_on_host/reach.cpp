/*
 * reach.cpp - what a device reaches: its memory, that of others that was opened, and memory of the
 * host that is pinned. A kernel or a library that is given anything else ends the program, as on a
 * GPU that cannot follow the host's page tables.
 *
 *   DP_CUDA_PAGEABLE=1       as on one that can
 */
#include "inside.h"

#include <map>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static std::mutex mutex;
static std::map<uintptr_t, size_t> reached; /* bytes, by the first one's address */

void cuda_host_reach(const void *memory, size_t bytes)
{
    std::lock_guard<std::mutex> lock(mutex);

    reached[reinterpret_cast<uintptr_t>(memory)] = bytes;
}

bool cuda_host_unreach(const void *memory)
{
    std::lock_guard<std::mutex> lock(mutex);

    return reached.erase(reinterpret_cast<uintptr_t>(memory)) > 0;
}

static bool is_reached(uintptr_t address)
{
    std::lock_guard<std::mutex> lock(mutex);
    auto found = reached.upper_bound(address);

    if (found == reached.begin()) {
        return false;
    }
    --found;
    return address - found->first < found->second;
}

/* Programs, heaps, stacks and mappings lie high; a number that looks like an address is most
 * probably none of a page that is there. */
static bool is_host_address(uint64_t value)
{
    const uint64_t page = 4096, low = UINT64_C(0x500000000000), high = UINT64_C(1) << 48;
    unsigned char in_core;

    return value >= low && value < high &&
           mincore(reinterpret_cast<void *>(value / page * page), page, &in_core) == 0;
}

static void check(uint64_t value)
{
    static const bool pageable = getenv("DP_CUDA_PAGEABLE") != nullptr;

    if (!pageable && is_host_address(value) && !is_reached(value) && !cuda_host_owns(value)) {
        fprintf(stderr, "a device is given %#llx, which only the host reaches\n",
                static_cast<unsigned long long>(value));
        abort();
    }
}

void cuda_on_host_must_reach(const void *memory)
{
    check(reinterpret_cast<uintptr_t>(memory));
}

void cuda_on_host_check_words(const void *argument, size_t bytes)
{
    const char *at = static_cast<const char *>(argument);

    for (size_t i = 0; i + sizeof(uint64_t) <= bytes; i += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, at + i, sizeof(word));
        check(word);
    }
}

/* ---- memory of the host ---- */

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    const size_t page = 4096, whole = (bytes + page - 1) / page * page;

    (void)flags;
    *memory = aligned_alloc(page, whole);
    if (*memory == nullptr) {
        return cudaErrorMemoryAllocation;
    }
    cuda_host_reach(*memory, whole);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
    if (!cuda_host_unreach(memory)) {
        return cudaErrorInvalidValue;
    }
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags)
{
    (void)flags;
    cuda_host_reach(memory, bytes);
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory)
{
    return cuda_host_unreach(memory) ? cudaSuccess : cudaErrorInvalidValue;
}
