/*
 * stream_cpu.h - a stream of the CPU: members for narrow types besides a struct dp_stream.
 */
#ifndef DP_KERNELS_CPU_STREAM_CPU_H
#define DP_KERNELS_CPU_STREAM_CPU_H

#include "kernels/device.h"

struct dp_cpu_stream {
    struct dp_stream stream; /* first: every struct dp_stream of this device is one of these */
    struct dp_ops ops;       /* stream.ops points here if the compute type is narrow */
    float *scratch;          /* owned; grows only in reserve() */
    size_t scratch_count;
};

static inline struct dp_cpu_stream *dp_cpu_stream_of(struct dp_stream *s)
{
    return (struct dp_cpu_stream *)s;
}

#endif
