/*
 * meter.h - for tests: what a program asks of the devices, counted when it is queued.
 */
#ifndef DP_TESTS_CUDA_ON_HOST_METER_H
#define DP_TESTS_CUDA_ON_HOST_METER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(name): all are numbers of calls. Of devices, whether a call or a graph asks for it: kernels,
 * products of cuBLASLt, convolutions of cuDNN, sums of NCCL, memory set, copies. Of the host: calls
 * that queue any of those, a graph being one; events recorded or waited for on a stream; and waits
 * of the host, among which is a copy to memory that is not pinned. */
#define CUDA_ON_HOST_COUNTS(X) \
    X(kernels)                 \
    X(products)                \
    X(convolutions)            \
    X(sums)                    \
    X(sets)                    \
    X(copies)                  \
    X(calls)                   \
    X(events)                  \
    X(waits)

/* X(name): bytes copied: to devices and from them, by what the host's memory is; within them. */
#define CUDA_ON_HOST_BYTES(X) \
    X(up_pinned)              \
    X(up_pageable)            \
    X(down_pinned)            \
    X(down_pageable)          \
    X(within)

struct cuda_on_host_meter {
#define X(name) uint64_t name;
    CUDA_ON_HOST_COUNTS(X)
    CUDA_ON_HOST_BYTES(X)
#undef X
    /* Of kernels: accesses to memory, of 16 bytes if these are aligned, and how often one that
     * reads comes after one that writes: reads in between are under way at a time. */
    uint64_t accesses, turns;
    /* Bytes of the host that are registered, which is to say pinned where they are, now. */
    uint64_t registered;
};

/* Of all threads, since the program began. */
void cuda_on_host_meter_read(struct cuda_on_host_meter *meter);

/*
 * A step begins. From now on, until the next one begins, the program ends when it copies more than
 * `most` bytes from or to memory of the host that is not pinned: such a copy waits for a buffer of
 * the driver, and holds up whoever asks for it. SIZE_MAX: it does not end.
 */
void cuda_on_host_meter_step(size_t most);

/* Who copied most so, since the last step began: "dp_pass_feed 100352, ...", one name a function
 * that is visible outside of its file; "" where nobody did. Valid until the next call. */
const char *cuda_on_host_meter_pageable(void);

#ifdef __cplusplus
}
#endif

#endif
