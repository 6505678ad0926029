/*
 * devices.cpp - how many devices there are, and memory that processes share.
 *
 *   DP_CUDA_GPUS=N          so many; 1 unless set
 *   CUDA_VISIBLE_DEVICES    some of them, by number, as on a real machine
 *   DP_CUDA_PEERS=off       devices do not reach each other's memory
 *   DP_CUDA_IPC=off         processes do not, either
 *   DP_CUDA_CAPABILITY=70   the first one is of that generation: compute capability 7.0
 *
 * A handle names the file behind the memory of a process, which the other process maps. One whose
 * memory is gone ends the program that opens it, or has it open.
 */
#include "costs.h"
#include "inside.h"

#include <fcntl.h>
#include <map>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

static std::vector<int> visible_devices()
{
    const char *gpus = getenv("DP_CUDA_GPUS"), *text = getenv("CUDA_VISIBLE_DEVICES");
    const int count = gpus != nullptr ? static_cast<int>(strtol(gpus, nullptr, 10)) : 1;
    std::vector<int> devices;

    if (text == nullptr) {
        for (int i = 0; i < count; i++) {
            devices.push_back(i);
        }
        return devices;
    }
    while (*text != '\0') { /* the first number that is none of theirs ends the list */
        char *end = nullptr;
        const long number = strtol(text, &end, 10);
        if (end == text || number < 0 || number >= count) {
            break;
        }
        devices.push_back(static_cast<int>(number));
        text = *end == ',' ? end + 1 : end;
    }
    return devices;
}

static const std::vector<int> &visible()
{
    static const std::vector<int> devices = visible_devices();

    return devices;
}

static bool is_off(const char *variable)
{
    const char *text = getenv(variable);

    return text != nullptr && strcmp(text, "off") == 0;
}

static thread_local int current;

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 0;
    if (!cuda_on_host_driver_serves()) {
        return cuda_host_fail(cudaErrorInsufficientDriver);
    }
    *count = static_cast<int>(visible().size());
    return *count > 0 ? cudaSuccess : cuda_host_fail(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= static_cast<int>(visible().size())) {
        return cuda_host_fail(cudaErrorInvalidDevice);
    }
    current = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int length, int device)
{
    if (device < 0 || device >= static_cast<int>(visible().size())) {
        return cuda_host_fail(cudaErrorInvalidDevice);
    }
    (void)snprintf(id, static_cast<size_t>(length), "0000:%02x:00.0",
                   static_cast<unsigned>(visible()[static_cast<size_t>(device)] + 1));
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    const char *text = getenv("DP_CUDA_CAPABILITY");
    const int capability =
        text != nullptr && device == 0 ? static_cast<int>(strtol(text, nullptr, 10)) : 90;

    *value = attribute == cudaDevAttrComputeCapabilityMajor   ? capability / 10
             : attribute == cudaDevAttrComputeCapabilityMinor ? capability % 10
                                                              : 2;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int device, unsigned flags)
{
    static thread_local std::map<int, bool> enabled;

    (void)flags;
    if (device == current || device >= static_cast<int>(visible().size())) {
        return cuda_host_fail(cudaErrorInvalidDevice);
    }
    if (is_off("DP_CUDA_PEERS")) {
        return cuda_host_fail(cudaErrorPeerAccessUnsupported);
    }
    const bool before = enabled[device];
    enabled[device] = true;
    return before ? cuda_host_fail(cudaErrorPeerAccessAlreadyEnabled) : cudaSuccess;
}

/* ---- memory of other processes ---- */

struct shared_block {
    int process, file;
    exported_place place;
    int physical; /* device */
};
static_assert(sizeof(shared_block) <= sizeof(cudaIpcMemHandle_t), "a handle holds it");

struct opened_block {
    size_t bytes;
    exported_block *note;
};

static const size_t page = 4096;
static std::mutex mutex;
static std::map<void *, opened_block> opened;

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *memory)
{
    shared_block block = {
        getpid(), cuda_on_host_file(), {}, visible()[static_cast<size_t>(current)]};

    if (!cuda_host_export(memory, &block.place)) {
        return cuda_host_fail(cudaErrorInvalidValue);
    }
    if (cuda_on_host_lacks("handles") ||
        (cuda_on_host_lacks("large-handles") && block.place.bytes > size_t(4) << 20)) {
        return cuda_host_fail(cudaErrorMemoryAllocation);
    }
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &block, sizeof(block));
    return cudaSuccess;
}

/* The note lies somewhere in a page. */
static exported_block *map_note(int file, size_t at)
{
    void *memory = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED, file,
                        static_cast<off_t>(at / page * page));

    return memory == MAP_FAILED
               ? nullptr
               : reinterpret_cast<exported_block *>(static_cast<char *>(memory) + at % page);
}

static void unmap_note(exported_block *note)
{
    const uintptr_t at = reinterpret_cast<uintptr_t>(note);

    (void)munmap(reinterpret_cast<void *>(at / page * page), page);
}

/* Counts this process among those that have it open. */
static void open_note(exported_block *note, uint64_t serial)
{
    note->opened++;
    if (note->serial != serial) {
        fprintf(stderr, "cudaIpcOpenMemHandle() of memory that its owner has freed\n");
        abort();
    }
}

cudaError_t cudaIpcOpenMemHandle(void **memory, cudaIpcMemHandle_t handle, unsigned flags)
{
    std::lock_guard<std::mutex> lock(mutex);
    shared_block block;
    char path[64];

    (void)flags;
    memcpy(&block, &handle, sizeof(block));
    if (block.process == getpid()) { /* CUDA refuses its own handles, too */
        return cuda_host_fail(cudaErrorInvalidResourceHandle);
    }
    if (is_off("DP_CUDA_IPC") ||
        (is_off("DP_CUDA_PEERS") && block.physical != visible()[static_cast<size_t>(current)])) {
        return cuda_host_fail(cudaErrorPeerAccessUnsupported);
    }
    (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", block.process, block.file);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) {
        return cuda_host_fail(cudaErrorMapBufferObjectFailed);
    }
    void *place = mmap(nullptr, block.place.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file,
                       static_cast<off_t>(block.place.offset));
    exported_block *note = map_note(file, block.place.note);
    close(file);
    if (place == MAP_FAILED || note == nullptr) {
        return cuda_host_fail(cudaErrorMapBufferObjectFailed);
    }
    open_note(note, block.place.serial);
    opened[place] = {block.place.bytes, note};
    cuda_host_reach(place, block.place.bytes, note, block.place.serial);
    *memory = place;
    return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void *memory)
{
    std::lock_guard<std::mutex> lock(mutex);
    const auto found = opened.find(memory);

    if (found == opened.end()) {
        return cuda_host_fail(cudaErrorInvalidValue);
    }
    (void)cuda_host_unreach(found->first);
    (void)munmap(found->first, found->second.bytes);
    found->second.note->opened--;
    unmap_note(found->second.note);
    opened.erase(found);
    return cudaSuccess;
}
