/*
 * streams.h - what runtime.cpp and graph.cpp share: queues, and what they hold.
 */
#ifndef DP_TESTS_CUDA_ON_HOST_STREAMS_H
#define DP_TESTS_CUDA_ON_HOST_STREAMS_H

#include <deque>
#include <mutex>
#include <vector>

#include "cuda_runtime.h"

struct cuda_host_event {
    uint64_t recorded, happened;
};

enum kind { WORK, RECORD, WAIT };

struct queued {
    kind what;
    std::function<void()> work;
    cuda_host_event *event;
    uint64_t count; /* of the event */
};

/* What was queued while a stream captured. */
struct cuda_host_graph {
    std::vector<std::function<void()>> work;
    bool spoilt; /* something was done that cannot be captured */
};

struct cuda_host_stream {
    std::deque<queued> queue;
    cuda_host_graph *capture; /* owned; NULL: what is queued will be done */
};

extern std::recursive_mutex cuda_host_mutex;

void cuda_host_queue_work(cudaStream_t stream, std::function<void()> work);

/* Whether the stream captures (or this thread's does): then what it is asked for cannot be done. */
bool cuda_host_spoils(cudaStream_t stream);
bool cuda_host_spoils_own();

#endif
