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
 *   DP_CUDA_CLOCK=FACTOR     time is the host's, times FACTOR
 *   CUDA_LAUNCH_BLOCKING=1   everything runs when it is queued
 */
#include "costs.h"
#include "streams.h"

#include <chrono>
#include <random>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <vector>

static std::recursive_mutex &mutex = cuda_on_host_mutex;
static std::vector<cuda_host_stream *> streams;

/* ---- running what is queued ---- */

size_t cuda_on_host_random(size_t n)
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

static double clock_ms()
{
    return std::chrono::duration<double, std::milli>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
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
        head.event->clock_ms = clock_ms();
    }
}

/* Runs one of the heads that can run. false: there is none. */
static bool run_one()
{
    const size_t count = streams.size(), first = count > 0 ? cuda_on_host_random(count) : 0;

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

    stream->queue.push_back(std::move(work));
    if (blocking) {
        run_until([stream]() { return stream->queue.empty(); });
    } else if (cuda_on_host_random(32) == 0) {
        size_t some = cuda_on_host_random(32);
        region_open();
        while (some-- > 0 && run_one()) {
        }
        region_close();
    }
}

void cuda_host_queue_work(cudaStream_t stream, device_work work)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);
    std::vector<given_memory> given = cuda_host_take_given();

    if (stream->capture != nullptr) {
        stream->capture->work.push_back({std::move(work), std::move(given)});
        return;
    }
    cuda_host_count_work(work);
    cuda_host_count_call();
    queue(stream, {WORK, std::move(work.run), nullptr, 0, nullptr});
}

void cuda_host_queue_captured(cudaStream_t stream, const std::function<void()> &run)
{
    queue(stream, {WORK, run, nullptr, 0, nullptr});
}

void cuda_on_host_queue_when(cudaStream_t stream, std::function<bool()> ready,
                             std::function<void()> work)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);

    (void)cuda_host_take_given();
    if (cuda_host_spoils(stream)) {
        return;
    }
    queue(stream, {GATE, std::move(work), nullptr, 0, std::move(ready)});
}

/* Where a copy goes, by what the memory of the host is. */
static copy_way way_of(const void *to, const void *from, enum cudaMemcpyKind kind)
{
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return cuda_host_reaches(from) ? UP_PINNED : UP_PAGEABLE;
    case cudaMemcpyDeviceToHost:
        return cuda_host_reaches(to) ? DOWN_PINNED : DOWN_PAGEABLE;
    default:
        return WITHIN;
    }
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    const copy_way way = way_of(to, from, kind);

    if (way != UP_PAGEABLE) {
        cuda_on_host_must_reach("cudaMemcpyAsync", from);
    }
    if (way != DOWN_PAGEABLE) {
        cuda_on_host_must_reach("cudaMemcpyAsync", to);
    }
    cuda_host_queue_work(stream, {COPY, "cudaMemcpyAsync",
                                  [to, from, bytes]() { memmove(to, from, bytes); }, way, bytes});
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    cuda_on_host_must_reach("cudaMemsetAsync", memory);
    cuda_host_queue_work(stream,
                         {SET, "cudaMemsetAsync",
                          [memory, value, bytes]() { memset(memory, value, bytes); }, WITHIN, 0});
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
        return cuda_host_fail(cudaErrorStreamCaptureUnsupported);
    }
    cuda_host_count_wait();
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
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    *event = new cuda_host_event{0, 0, 0.0, 0.0, (flags & cudaEventDisableTiming) == 0};
    return cudaSuccess;
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
        return cuda_host_fail(cudaErrorStreamCaptureUnsupported);
    }
    event->recorded++;
    cuda_host_count_event();
    queue(stream, {RECORD, nullptr, event, event->recorded, nullptr});
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);

    if (cuda_host_spoils(stream)) {
        return cuda_host_fail(cudaErrorStreamCaptureUnsupported);
    }
    (void)flags;
    cuda_host_count_event();
    queue(stream, {WAIT, nullptr, event, event->recorded, nullptr});
    return cudaSuccess;
}

/* Each question lets the device get on a little. */
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);

    if (event->happened < event->recorded) {
        region_open();
        for (size_t some = cuda_on_host_random(16); some > 0 && run_one(); some--) {
        }
        region_close();
    }
    return event->happened >= event->recorded ? cudaSuccess : cuda_host_fail(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);
    const uint64_t count = event->recorded;

    cuda_host_count_wait();
    run_until([event, count]() { return event->happened >= count; });
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    const char *factor = getenv("DP_CUDA_CLOCK");

    if (!begin->timed || !end->timed) {
        return cuda_host_fail(cudaErrorInvalidValue);
    }
    if (factor != nullptr) {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        if (begin->happened < begin->recorded || end->happened < end->recorded) {
            return cuda_host_fail(cudaErrorNotReady);
        }
        *ms = static_cast<float>(strtod(factor, nullptr) * (end->clock_ms - begin->clock_ms));
        return cudaSuccess;
    }
    *ms = begin->happened > 0 && end->happened > 0
              ? static_cast<float>(1.0 + end->at_ms - begin->at_ms)
              : 0.0f;
    return cudaSuccess;
}
