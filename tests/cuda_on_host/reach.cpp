/*
 * reach.cpp - what a device reaches: its memory, that of others that was opened, and memory of the
 * host that is pinned. A kernel or a library that is given anything else ends the program, as on a
 * GPU that cannot follow the host's page tables.
 *
 *   DP_CUDA_PAGEABLE=1       as on one that can
 */
#include "streams.h"

#include <atomic>
#include <map>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct reached_memory {
    size_t bytes;
    uint64_t serial;
    const exported_block *note; /* of the owner's; nullptr: our own */
    uint64_t owners;            /* the serial there */
};

static std::mutex mutex;
static std::map<uintptr_t, reached_memory> reached; /* by the first byte's address */
static thread_local std::vector<given_memory> given;

uint64_t cuda_host_new_serial()
{
    static std::atomic<uint64_t> last;

    return ++last;
}

void cuda_host_reach(const void *memory, size_t bytes, const exported_block *note, uint64_t serial)
{
    std::lock_guard<std::mutex> lock(mutex);

    reached[reinterpret_cast<uintptr_t>(memory)] = {bytes, cuda_host_new_serial(), note, serial};
}

bool cuda_host_unreach(const void *memory)
{
    std::lock_guard<std::mutex> lock(mutex);

    return reached.erase(reinterpret_cast<uintptr_t>(memory)) > 0;
}

/* The memory there, that is serial 0 if devices reach none. */
static reached_memory memory_at(uint64_t address)
{
    std::lock_guard<std::mutex> lock(mutex);
    auto found = reached.upper_bound(address);

    if (found == reached.begin()) {
        return {};
    }
    --found;
    return address - found->first < found->second.bytes ? found->second : reached_memory{};
}

bool cuda_host_reaches(const void *memory)
{
    return memory_at(reinterpret_cast<uintptr_t>(memory)).serial != 0;
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

[[noreturn]] static void refuse(const char *name, uint64_t value, const char *why)
{
    fprintf(stderr, "%s is given %#llx, %s\n", name, static_cast<unsigned long long>(value), why);
    abort();
}

static uint64_t block_at(uint64_t address)
{
    return cuda_host_owns(address) ? cuda_host_serial(address) : memory_at(address).serial;
}

static void check_owner(const char *name, uint64_t value)
{
    const reached_memory memory = memory_at(value);

    if (memory.note != nullptr && memory.note->serial != memory.owners) {
        refuse(name, value, "memory of another process, which has freed it or has ended");
    }
}

static void check(const char *name, uint64_t value)
{
    static const bool pageable = getenv("DP_CUDA_PAGEABLE") != nullptr;
    const uint64_t serial = block_at(value);

    if (serial != 0) {
        check_owner(name, value);
        given.push_back({value, serial});
    } else if (cuda_host_owns(value)) {
        refuse(name, value, "memory of a device that nobody has taken, or somebody has freed");
    } else if (!pageable && is_host_address(value)) {
        refuse(name, value, "which only the host reaches");
    }
}

std::vector<given_memory> cuda_host_take_given()
{
    std::vector<given_memory> taken;

    taken.swap(given);
    return taken;
}

bool cuda_host_is_there(const given_memory &memory)
{
    return block_at(memory.address) == memory.serial;
}

void cuda_on_host_must_reach(const char *name, const void *memory)
{
    check(name, reinterpret_cast<uintptr_t>(memory));
}

void cuda_on_host_check_words(const char *name, const void *argument, size_t bytes)
{
    const char *at = static_cast<const char *>(argument);

    for (size_t i = 0; i + sizeof(uint64_t) <= bytes; i += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, at + i, sizeof(word));
        check(name, word);
    }
}

/* ---- memory of the host ---- */

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    const size_t page = 4096, whole = (bytes + page - 1) / page * page;

    (void)flags;
    *memory = aligned_alloc(page, whole);
    if (*memory == nullptr) {
        return cuda_host_fail(cudaErrorMemoryAllocation);
    }
    cuda_host_reach(*memory, whole);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
    if (!cuda_host_unreach(memory)) {
        return cuda_host_fail(cudaErrorInvalidValue);
    }
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags)
{
    (void)flags;
    cuda_host_reach(memory, bytes);
    cuda_host_count_registered(static_cast<long long>(bytes));
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory)
{
    const reached_memory there = memory_at(reinterpret_cast<uintptr_t>(memory));

    if (!cuda_host_unreach(memory)) {
        return cuda_host_fail(cudaErrorInvalidValue);
    }
    cuda_host_count_registered(-static_cast<long long>(there.bytes));
    return cudaSuccess;
}
