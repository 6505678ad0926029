/*
 * units.h - GPUs: several devices of one kind in a machine, of which each rank uses one, and GPU
 * memory that other processes can use.
 */
#ifndef DP_KERNELS_UNITS_H
#define DP_KERNELS_UNITS_H

#include <stdbool.h>

#include "base/status.h"

struct dp_stream;

enum {
    DP_UNIT_NAME = 32,
    DP_UNIT_LABEL = 96,
    DP_UNIT_PIECE = 2 << 20 /* bytes: shared memory is a multiple of it; otherwise its neighbour in
                             * the same piece would be shared, too */
};

/* What another process needs to attach memory: plain bytes. */
struct dp_unit_handle {
    unsigned char bytes[64];
};

struct dp_units {
    /* The number of units that this process may use, numbered from 0. */
    int (*count)(void);

    /* Selects the unit of everything that this thread makes from now on, and other threads that
     * never choose. Existing streams and events keep theirs. */
    dp_status (*choose)(int unit);

    /* The name of the chosen unit, which is unique on this machine. */
    dp_status (*name)(char name[DP_UNIT_NAME]);

    /* The chosen unit for people: "cuda:0 (NVIDIA H200)". Without its model, if that is unknown. */
    void (*label)(char label[DP_UNIT_LABEL]);

    /* Shares memory from alloc() with another process. false where that is impossible, and why not.
     * Logs nothing. */
    bool (*share)(void *memory, struct dp_unit_handle *handle, const char **why_not);

    /* Maps memory of another process, until detach(), which must come before its owner's release.
     * NULL where that is impossible, and why not. Logs nothing. */
    void *(*attach)(const struct dp_unit_handle *handle, const char **why_not);
    void (*detach)(void *memory);

    /* Lets the chosen unit use memory of another unit of this process. false: it cannot. */
    bool (*join)(int unit, const char **why_not);

    /* The stream as libraries expect it: a cudaStream_t. */
    void *(*queue)(const struct dp_stream *stream);
};

#endif
