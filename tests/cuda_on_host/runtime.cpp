/*
 * runtime.cpp - streams and events of cuda_runtime.h.
 *
 * A stream is a queue; an event is a count of how often it has happened. Whoever waits runs heads
 * of queues, chosen at random among those that wait for nothing, until what it waits for has
 * happened; a program that forgets to order two streams therefore computes with unfinished numbers,
 * sooner or later. Now and then queueing runs something at once, since a GPU does not wait to be
 * asked either. Time is what algorithms say that they take, so that measuring has one outcome.
 *
 *   DP_HOST_FASTEST=second   of good algorithms the second one takes least, not all the same
 *   DP_CUDA_ORDER=N          another sequence of random choices
 *   CUDA_LAUNCH_BLOCKING=1   everything runs when it is queued
 */
#include "streams.h"

#include <random>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <vector>

thread_local dim3 gridDim, blockIdx;

static std::recursive_mutex &mutex = cuda_on_host_mutex;
static std::vector<cuda_host_stream *> streams;

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
    if (stream->queue.empty()) {
        return false;
    }
    const queued &head = stream->queue.front();
    return head.what == WAIT   ? head.event->happened >= head.count
           : head.what == GATE ? head.ready()
                               : true;
}

static cuda_host_stream *running; /* whose head runs */

bool cuda_on_host_second_is_fastest()
{
    const char *text = getenv("DP_HOST_FASTEST");

    return text != nullptr && strcmp(text, "second") == 0;
}

void cuda_on_host_spend(double ms)
{
    running->spent_ms += ms;
}

static void run_head(cuda_host_stream *stream)
{
    const queued head = std::move(stream->queue.front());

    running = stream;
    stream->queue.pop_front();
    if (head.what == WORK || head.what == GATE) {
        head.work();
    } else if (head.what == RECORD && head.event->happened < head.count) {
        head.event->happened = head.count;
        head.event->at_ms = stream->spent_ms;
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

/* Whether some stream waits for other ranks: of this process, which need the mutex, or others. */
static bool some_gate()
{
    for (const cuda_host_stream *stream : streams) {
        if (!stream->queue.empty() && stream->queue.front().what == GATE) {
            return true;
        }
    }
    return false;
}

template <typename Done> static void run_until(Done done)
{
    region_open();
    while (!done()) {
        if (run_one()) {
            continue;
        }
        if (!some_gate()) {
            fprintf(stderr, "streams wait for events that nobody records\n");
            abort();
        }
        mutex.unlock();
        usleep(20);
        mutex.lock();
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

    queue(stream, {WORK, std::move(work), nullptr, 0, nullptr});
}

void cuda_on_host_queue_when(cudaStream_t stream, std::function<bool()> ready,
                             std::function<void()> work)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);

    if (cuda_host_spoils(stream)) {
        return;
    }
    queue(stream, {GATE, std::move(work), nullptr, 0, std::move(ready)});
}

/* A stream takes kernels only while its own device is the current one. */
static void check_device(const cuda_host_stream *stream)
{
    int device = 0;

    cudaGetDevice(&device);
    if (device != stream->device) {
        fprintf(stderr, "a kernel for device %d while %d is the current one\n", stream->device,
                device);
        abort();
    }
}

static thread_local std::vector<double> shared_memory;

void *cuda_on_host_shared()
{
    return shared_memory.data();
}

void cuda_on_host_queue(cudaStream_t stream, unsigned count, size_t shared,
                        std::function<void()> body)
{
    check_device(stream);
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
    if (kind != cudaMemcpyHostToDevice) {
        cuda_on_host_must_reach(from);
    }
    if (kind != cudaMemcpyDeviceToHost) {
        cuda_on_host_must_reach(to);
    }
    cuda_host_queue_work(stream, [to, from, bytes]() { memmove(to, from, bytes); });
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    cuda_on_host_must_reach(memory);
    cuda_host_queue_work(stream, [memory, value, bytes]() { memset(memory, value, bytes); });
    return cudaSuccess;
}

void cuda_on_host_run_all()
{
    run_until([]() {
        for (const cuda_host_stream *stream : streams) {
            if (!stream->queue.empty()) {
                return false;
            }
        }
        return true;
    });
}

/* ---- streams and events ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);

    (void)flags;
    *stream = new cuda_host_stream{};
    cudaGetDevice(&(*stream)->device);
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
    *event = new cuda_host_event{0, 0, 0.0};
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
    queue(stream, {RECORD, nullptr, event, event->recorded, nullptr});
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);

    if (cuda_host_spoils(stream)) {
        return cudaErrorStreamCaptureUnsupported;
    }
    (void)flags;
    queue(stream, {WAIT, nullptr, event, event->recorded, nullptr});
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
    *ms = begin->happened > 0 && end->happened > 0
              ? static_cast<float>(1.0 + end->at_ms - begin->at_ms)
              : 0.0f;
    return cudaSuccess;
}
