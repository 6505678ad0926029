/*
 * streams.h - queues, and what they hold.
 */
#ifndef DP_TESTS_CUDA_ON_HOST_STREAMS_H
#define DP_TESTS_CUDA_ON_HOST_STREAMS_H

#include "inside.h"

#include <deque>
#include <vector>

struct cuda_host_event {
    uint64_t recorded, happened;
    double at_ms; /* what its stream had spent by then */
};

enum kind { WORK, RECORD, WAIT, GATE };

struct queued {
    kind what;
    std::function<void()> work;
    cuda_host_event *event;
    uint64_t count;              /* of the event */
    std::function<bool()> ready; /* of a gate */
};

/* What was queued while a stream captured. */
struct cuda_host_graph {
    std::vector<std::function<void()>> work;
    bool spoilt; /* something was done that cannot be captured */
};

struct cuda_host_stream {
    std::deque<queued> queue;
    cuda_host_graph *capture; /* owned; NULL: what is queued will be done */
    int device;
    double spent_ms; /* cuda_on_host_spend() */
};

void cuda_host_queue_work(cudaStream_t stream, std::function<void()> work);

#endif
