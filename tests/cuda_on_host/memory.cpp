/*
 * memory.cpp - memory of cuda_runtime.h.
 *
 *   DP_CUDA_GUARD=1          the host cannot touch device memory: slow on a processor without keys
 *   DP_CUDA_MEMORY=BYTES     of each device; 4 GiB unless set
 *   DP_CUDA_MEMSET=BYTES     setting so many bytes at once fails
 *
 * Device memory, of all devices, is one region, guarded but while queued work runs. What cudaMalloc
 * gives is filled with 0xff: NaN. Behind it in the same file other processes note which blocks they
 * have open: freeing one of those ends the program.
 */
#include "streams.h"

#include <map>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

std::recursive_mutex cuda_on_host_mutex;
static std::recursive_mutex &mutex = cuda_on_host_mutex;

static const size_t page = 4096, region_bytes = size_t(64) << 30;
static const size_t large = size_t(64) << 20; /* given back to the host when it is freed */
static char *region;
static int region_file; /* its memory: other processes can map it */
struct block {
    size_t bytes;
    int device;
    uint64_t serial;
};

static exported_block *exported;         /* after the region: of each page */
static std::map<char *, block> blocks;   /* those in use, by address */
static std::map<int, size_t> used_bytes; /* of each device */
static size_t reach;                     /* of the region, ever used */
static int open_count;                   /* of all threads */
static thread_local int own_open_count;  /* of one, where the region has a key */

static void host_touched(int number, siginfo_t *info, void *context)
{
    static const char text[] = "the host touched device memory\n";
    char *address = static_cast<char *>(info->si_addr);

    (void)context;
    if (region != nullptr && address >= region && address < region + region_bytes) {
        (void)!write(STDERR_FILENO, text, sizeof(text) - 1);
    }
    signal(number, SIG_DFL);
    raise(number);
}

static bool is_guarded()
{
    static const bool guarded = getenv("DP_CUDA_GUARD") != nullptr;

    return guarded;
}

/* A protection key of the processor opens the region to one thread, and costs nearly nothing. Where
 * there is none (-1), opening and closing change the access of each page. */
static int region_key()
{
    static const int key = is_guarded() ? pkey_alloc(0, PKEY_DISABLE_ACCESS) : -1;

    return key;
}

void region_open()
{
    if (region_key() >= 0) {
        if (own_open_count++ == 0) {
            (void)pkey_set(region_key(), 0);
        }
    } else if (open_count++ == 0 && reach > 0 && is_guarded()) {
        (void)mprotect(region, reach, PROT_READ | PROT_WRITE);
    }
}

void region_close()
{
    if (region_key() >= 0) {
        if (--own_open_count == 0) {
            (void)pkey_set(region_key(), PKEY_DISABLE_ACCESS);
        }
    } else if (--open_count == 0 && reach > 0 && is_guarded()) {
        (void)mprotect(region, reach, PROT_NONE);
    }
}

static const size_t exported_bytes = region_bytes / page * sizeof(exported_block);

/* What others have open is gone with this process. */
static struct at_exit {
    ~at_exit()
    {
        for (const auto &taken : blocks) {
            exported[static_cast<size_t>(taken.first - region) / page].serial = 0;
        }
    }
} at_exit;

static bool region_make()
{
    struct sigaction action = {};

    if (region != nullptr) {
        return true;
    }
    region_file = memfd_create("cuda_on_host", MFD_CLOEXEC);
    if (region_file < 0 || ftruncate(region_file, off_t(region_bytes + exported_bytes)) != 0) {
        return false;
    }
    void *memory = mmap(nullptr, region_bytes, PROT_NONE, MAP_SHARED, region_file, 0);
    void *notes = mmap(nullptr, exported_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region_file,
                       off_t(region_bytes));
    if (memory == MAP_FAILED || notes == MAP_FAILED) {
        return false;
    }
    region = static_cast<char *>(memory);
    exported = static_cast<exported_block *>(notes);
    action.sa_sigaction = host_touched;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
    return true;
}

static size_t total_bytes()
{
    const char *text = getenv("DP_CUDA_MEMORY");

    return text != nullptr ? strtoull(text, nullptr, 10) : size_t(4) << 30;
}

/* The first gap that is large enough, with a page free after it. */
static char *find_gap(size_t bytes)
{
    char *at = region;

    for (const auto &taken : blocks) {
        if (static_cast<size_t>(taken.first - at) >= bytes) {
            return at;
        }
        at = taken.first + taken.second.bytes;
    }
    return at + bytes <= region + region_bytes ? at : nullptr;
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);
    const size_t whole = (bytes + 2 * page - 1) / page * page;
    int device = 0;

    if (cuda_host_spoils_own()) {
        return cuda_host_fail(cudaErrorStreamCaptureUnsupported);
    }
    cudaGetDevice(&device);
    if (bytes == 0 || used_bytes[device] + bytes > total_bytes() || !region_make()) {
        return cuda_host_fail(bytes == 0 ? cudaErrorInvalidValue : cudaErrorMemoryAllocation);
    }
    char *at = find_gap(whole);
    if (at == nullptr) {
        return cuda_host_fail(cudaErrorMemoryAllocation);
    }
    blocks[at] = {whole, device, cuda_host_new_serial()};
    exported[static_cast<size_t>(at - region) / page].serial = blocks[at].serial;
    used_bytes[device] += whole;
    region_open();
    if (at + whole > region + reach) {
        reach = static_cast<size_t>(at + whole - region);
        (void)pkey_mprotect(region, reach, PROT_READ | PROT_WRITE, region_key());
    }
    memset(at, 0xff, bytes);
    region_close();
    *memory = at;
    return cudaSuccess;
}

int cuda_on_host_file()
{
    return region_file;
}

bool cuda_host_export(void *memory, exported_place *place)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);
    const auto found = blocks.find(static_cast<char *>(memory));

    if (found == blocks.end()) {
        return false;
    }
    place->offset = static_cast<size_t>(found->first - region);
    place->bytes = found->second.bytes;
    place->serial = found->second.serial;
    place->note = region_bytes + place->offset / page * sizeof(exported_block);
    return true;
}

/* A handle is of no use when its memory is gone, and so is memory that others compute with. */
static void end_export(const char *memory)
{
    exported_block &note = exported[static_cast<size_t>(memory - region) / page];

    if (note.opened != 0) {
        fprintf(stderr, "cudaFree() of memory that is open in %d other processes\n",
                note.opened.load());
        abort();
    }
    note.serial = 0;
}

bool cuda_host_owns(uint64_t address)
{
    const uint64_t begin = reinterpret_cast<uintptr_t>(region);

    return region != nullptr && address - begin < region_bytes;
}

uint64_t cuda_host_serial(uint64_t address)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);
    auto found = blocks.upper_bound(reinterpret_cast<char *>(address));

    if (found == blocks.begin()) {
        return 0;
    }
    --found;
    return address - reinterpret_cast<uintptr_t>(found->first) < found->second.bytes
               ? found->second.serial
               : 0;
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *total)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);
    int device = 0;

    cudaGetDevice(&device);
    *total = total_bytes();
    *left = *total > used_bytes[device] ? *total - used_bytes[device] : 0;
    return cudaSuccess;
}

cudaError_t cudaMemset(void *memory, int value, size_t bytes)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);
    const char *bad = getenv("DP_CUDA_MEMSET");

    if (bad != nullptr && strtoull(bad, nullptr, 10) == bytes) {
        return cuda_host_fail(cudaErrorInvalidValue);
    }
    region_open();
    memset(memory, value, bytes);
    region_close();
    return cudaSuccess;
}

/* As on a GPU, freeing waits for everything. */
cudaError_t cudaFree(void *memory)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);
    const auto found = blocks.find(static_cast<char *>(memory));

    if (cuda_host_spoils_own()) {
        return cuda_host_fail(cudaErrorStreamCaptureUnsupported);
    }
    if (memory == nullptr) {
        return cudaSuccess;
    }
    if (found == blocks.end()) {
        return cuda_host_fail(cudaErrorInvalidValue);
    }
    cuda_host_count_wait();
    cuda_on_host_run_all();
    end_export(found->first);
    used_bytes[found->second.device] -= found->second.bytes;
    if (found->second.bytes >= large) {
        (void)madvise(found->first, found->second.bytes, MADV_REMOVE);
    }
    blocks.erase(found);
    return cudaSuccess;
}
