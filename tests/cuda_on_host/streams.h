/*
 * streams.h - queues, and what they hold.
 */
#ifndef DP_TESTS_CUDA_ON_HOST_STREAMS_H
#define DP_TESTS_CUDA_ON_HOST_STREAMS_H

#include "inside.h"

#include <deque>
#include <vector>

/* What a device is asked to do. */
enum work_kind { KERNEL, PRODUCT, CONVOLUTION, SUM, SET, COPY };
enum copy_way { WITHIN, UP_PINNED, UP_PAGEABLE, DOWN_PINNED, DOWN_PAGEABLE };

struct device_work {
    work_kind what;
    const char *name;
    std::function<void()> run;
    copy_way way; /* of a copy */
    size_t bytes;
};

struct cuda_host_event {
    uint64_t recorded, happened;
    double at_ms;    /* what its stream had spent by then */
    double clock_ms; /* when, by the host's clock */
    bool timed;
};

enum kind { WORK, RECORD, WAIT, GATE };

struct queued {
    kind what;
    std::function<void()> work;
    cuda_host_event *event;
    uint64_t count;              /* of the event */
    std::function<bool()> ready; /* of a gate */
};

/* What was queued while a stream captured, and the memory that it names. */
struct captured_work {
    device_work work;
    std::vector<given_memory> given;
};

struct cuda_host_graph {
    std::vector<captured_work> work;
    bool spoilt; /* something was done that cannot be captured */
};

struct cuda_host_stream {
    std::deque<queued> queue;
    cuda_host_graph *capture; /* owned; NULL: what is queued will be done */
    int device;
    double spent_ms; /* cuda_on_host_spend() */
};

/* Queues it, or keeps it where the stream captures, and counts it. */
void cuda_host_queue_work(cudaStream_t stream, device_work work);

/* Queues what a graph has kept. */
void cuda_host_queue_captured(cudaStream_t stream, const std::function<void()> &run);

/* meter.cpp */
void cuda_host_count_work(const device_work &work);
void cuda_host_count_call();
void cuda_host_count_event();
void cuda_host_count_wait();
void cuda_host_count_registered(long long bytes);

#endif
