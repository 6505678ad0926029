/*
 * runtime.cpp - streams, events and memory of cuda_runtime.h.
 *
 * A stream is a queue; an event is a count of how often it has happened. Whoever waits runs heads of
 * queues, chosen at random among those that wait for nothing, until what it waits for has happened;
 * a program that forgets to order two streams therefore computes with unfinished numbers, sooner or
 * later. Now and then queueing runs something at once, since a GPU does not wait to be asked either.
 *
 *   DP_CUDA_ORDER=N          another sequence of random choices
 *   DP_CUDA_GUARD=1          the host cannot touch device memory: slow
 *   CUDA_LAUNCH_BLOCKING=1   everything runs when it is queued
 *   DP_CUDA_MEMORY=BYTES     of the device; 4 GiB unless set
 *   DP_CUDA_DRIVER=12040     the driver's version; 0: there is none
 *
 * Device memory is one region, guarded but while queued work runs. What cudaMalloc gives is filled
 * with 0xff: NaN.
 */
#include "streams.h"

#include <map>
#include <random>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

thread_local dim3 gridDim, blockIdx;

std::recursive_mutex cuda_host_mutex;
static std::recursive_mutex &mutex = cuda_host_mutex;
static std::vector<cuda_host_stream *> streams;

/* ---- memory ---- */

static const size_t page = 4096, region_bytes = size_t(64) << 30;
static char *region;
static std::map<char *, size_t> blocks; /* those in use, by address */
static size_t used_bytes;
static size_t reach; /* of the region, ever used */
static int open_count;

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

/* Opening and closing costs system calls and a fault for each page touched, hence the switch. */
static bool is_guarded()
{
    static const bool guarded = getenv("DP_CUDA_GUARD") != nullptr;

    return guarded;
}

static void region_open()
{
    if (open_count++ == 0 && reach > 0 && is_guarded()) {
        (void)mprotect(region, reach, PROT_READ | PROT_WRITE);
    }
}

static void region_close()
{
    if (--open_count == 0 && reach > 0 && is_guarded()) {
        (void)mprotect(region, reach, PROT_NONE);
    }
}

static bool region_make()
{
    struct sigaction action = {};

    if (region != nullptr) {
        return true;
    }
    void *memory =
        mmap(nullptr, region_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return false;
    }
    region = static_cast<char *>(memory);
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

/* The first gap that is large enough, with a page free behind it. */
static char *find_gap(size_t bytes)
{
    char *at = region;

    for (const auto &block : blocks) {
        if (static_cast<size_t>(block.first - at) >= bytes) {
            return at;
        }
        at = block.first + block.second;
    }
    return at + bytes <= region + region_bytes ? at : nullptr;
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);
    const size_t whole = (bytes + 2 * page - 1) / page * page;

    if (cuda_host_spoils_own()) {
        return cudaErrorStreamCaptureUnsupported;
    }
    if (bytes == 0 || used_bytes + bytes > total_bytes() || !region_make()) {
        return bytes == 0 ? cudaErrorInvalidValue : cudaErrorMemoryAllocation;
    }
    char *at = find_gap(whole);
    if (at == nullptr) {
        return cudaErrorMemoryAllocation;
    }
    blocks[at] = whole;
    used_bytes += whole;
    region_open();
    if (at + whole > region + reach) {
        reach = static_cast<size_t>(at + whole - region);
        (void)mprotect(region, reach, PROT_READ | PROT_WRITE);
    }
    memset(at, 0xff, bytes);
    region_close();
    *memory = at;
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    (void)flags;
    *memory = aligned_alloc(page, (bytes + page - 1) / page * page);
    return *memory != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFreeHost(void *memory)
{
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags)
{
    (void)memory;
    (void)bytes;
    (void)flags;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory)
{
    (void)memory;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *total)
{
    *total = total_bytes();
    *left = *total > used_bytes ? *total - used_bytes : 0;
    return cudaSuccess;
}

/* ---- running what is queued ---- */

static size_t random_below(size_t n)
{
    static std::minstd_rand generator = []() {
        const char *text = getenv("DP_CUDA_ORDER");
        return std::minstd_rand(
            text != nullptr ? static_cast<unsigned>(strtoul(text, nullptr, 10)) + 1 : 1);
    }();

    return generator() % n;
}

static bool can_run(const cuda_host_stream *stream)
{
    return !stream->queue.empty() &&
           (stream->queue.front().what != WAIT ||
            stream->queue.front().event->happened >= stream->queue.front().count);
}

static void run_head(cuda_host_stream *stream)
{
    const queued head = std::move(stream->queue.front());

    stream->queue.pop_front();
    if (head.what == WORK) {
        head.work();
    } else if (head.what == RECORD && head.event->happened < head.count) {
        head.event->happened = head.count;
    }
}

/* Runs one of the heads that can run. false: there is none. */
static bool run_one()
{
    const size_t count = streams.size(), first = count > 0 ? random_below(count) : 0;

    for (size_t i = 0; i < count; i++) {
        cuda_host_stream *stream = streams[(first + i) % count];
        if (can_run(stream)) {
            run_head(stream);
            return true;
        }
    }
    return false;
}

template <typename Done> static void run_until(Done done)
{
    region_open();
    while (!done()) {
        if (!run_one()) {
            fprintf(stderr, "streams wait for events that nobody records\n");
            abort();
        }
    }
    region_close();
}

static void queue(cuda_host_stream *stream, queued work)
{
    static const bool blocking = getenv("CUDA_LAUNCH_BLOCKING") != nullptr;

    if (stream->capture != nullptr) {
        stream->capture->work.push_back(std::move(work.work));
        return;
    }
    stream->queue.push_back(std::move(work));
    if (blocking) {
        run_until([stream]() { return stream->queue.empty(); });
    } else if (random_below(32) == 0) {
        size_t some = random_below(32);
        region_open();
        while (some-- > 0 && run_one()) {
        }
        region_close();
    }
}

void cuda_host_queue_work(cudaStream_t stream, std::function<void()> work)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);

    queue(stream, {WORK, std::move(work), nullptr, 0});
}

static thread_local std::vector<double> shared_memory;

void *cuda_on_host_shared()
{
    return shared_memory.data();
}

void cuda_on_host_queue(cudaStream_t stream, unsigned count, size_t shared,
                        std::function<void()> body)
{
    cuda_host_queue_work(stream, [count, shared, body]() {
        gridDim = {count, 1, 1};
        for (unsigned i = 0; i < count; i++) {
            blockIdx = {i, 0, 0};
            shared_memory.assign(shared / sizeof(double) + 1, NAN);
            body();
        }
    });
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    (void)kind;
    cuda_host_queue_work(stream, [to, from, bytes]() { memmove(to, from, bytes); });
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    cuda_host_queue_work(stream, [memory, value, bytes]() { memset(memory, value, bytes); });
    return cudaSuccess;
}

cudaError_t cudaMemset(void *memory, int value, size_t bytes)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);

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
        return cudaErrorStreamCaptureUnsupported;
    }
    if (memory == nullptr) {
        return cudaSuccess;
    }
    if (found == blocks.end()) {
        return cudaErrorInvalidValue;
    }
    region_open();
    while (run_one()) {
    }
    region_close();
    used_bytes -= found->second;
    (void)madvise(found->first, found->second, MADV_DONTNEED);
    blocks.erase(found);
    return cudaSuccess;
}

/* ---- streams and events ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);

    (void)flags;
    *stream = new cuda_host_stream{};
    streams.push_back(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);

    if (cuda_host_spoils(stream)) {
        return cudaErrorStreamCaptureUnsupported;
    }
    run_until([stream]() { return stream == nullptr || stream->queue.empty(); });
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);

    run_until([stream]() { return stream->queue.empty(); });
    for (size_t i = 0; i < streams.size(); i++) {
        if (streams[i] == stream) {
            streams.erase(streams.begin() + static_cast<std::ptrdiff_t>(i));
            break;
        }
    }
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    *event = new cuda_host_event{0, 0};
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    return cudaEventCreate(event);
}

static bool is_queued(const cuda_host_event *event)
{
    for (const cuda_host_stream *stream : streams) {
        for (const queued &work : stream->queue) {
            if (work.event == event) {
                return true;
            }
        }
    }
    return false;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);

    run_until([event]() { return !is_queued(event); });
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);

    if (cuda_host_spoils(stream)) {
        return cudaErrorStreamCaptureUnsupported;
    }
    event->recorded++;
    queue(stream, {RECORD, nullptr, event, event->recorded});
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);

    if (cuda_host_spoils(stream)) {
        return cudaErrorStreamCaptureUnsupported;
    }
    (void)flags;
    queue(stream, {WAIT, nullptr, event, event->recorded});
    return cudaSuccess;
}

/* Each question lets the device get on a little. */
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);

    if (event->happened < event->recorded) {
        region_open();
        for (size_t some = random_below(16); some > 0 && run_one(); some--) {
        }
        region_close();
    }
    return event->happened >= event->recorded ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);
    const uint64_t count = event->recorded;

    run_until([event, count]() { return event->happened >= count; });
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    *ms = begin->happened > 0 && end->happened > 0 ? 1.0f : 0.0f;
    return cudaSuccess;
}
