/*
 * units.h - GPUs: several devices of one kind in a machine, of which each rank takes one, and
 * memory of theirs that other processes can use.
 */
#ifndef DP_KERNELS_UNITS_H
#define DP_KERNELS_UNITS_H

#include <stdbool.h>

#include "base/status.h"

struct dp_stream;

enum {
    DP_UNIT_NAME = 32,
    DP_UNIT_PIECE = 2 << 20 /* bytes: memory to be shared is a multiple of it, or what lies beside
                               it in the same piece would be shared, too */
};

/* What another process needs to find memory: bytes, to be sent as they are. */
struct dp_unit_handle {
    unsigned char bytes[64];
};

struct dp_units {
    /* That this process may use; they are numbered from 0. */
    int (*count)(void);

    /* What this thread makes from now on, and other threads that never choose, is of that unit;
     * streams and events go on belonging to theirs. */
    dp_status (*choose)(int unit);

    /* The name of the chosen one, which no other one of this machine has. */
    dp_status (*name)(char name[DP_UNIT_NAME]);

    /* For another process: memory that alloc() gave. */
    dp_status (*share)(void *memory, struct dp_unit_handle *handle);

    /* Memory of another process, until detach(), which must come before its owner's release; NULL
     * where it cannot be reached, and why not. Reports nothing. */
    void *(*attach)(const struct dp_unit_handle *handle, const char **why_not);
    void (*detach)(void *memory);

    /* Lets the chosen unit use memory of another one of this process. false: it cannot. */
    bool (*join)(int unit, const char **why_not);

    /* What libraries take for the stream: a cudaStream_t. */
    void *(*queue)(const struct dp_stream *stream);
};

#endif
