/*
 * memory_use.h - what a rank's memory is for over the run, when it was most, and what grows.
 *
 * Purposes are those that base/mem counts, put together for the report. What else is in memory is
 * the libraries': their code, and what they allocate themselves. Looks are joined into at most
 * DP_MEMORY_WINDOWS windows, each of which keeps the least of every purpose: memory that is given
 * back between two looks leaves the least as it is, memory that leaks does not.
 */
#ifndef DP_RUNTIME_REPORT_RESOURCES_MEMORY_USE_H
#define DP_RUNTIME_REPORT_RESOURCES_MEMORY_USE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"

/* Purposes in the report: name, key in run.json. summary.def says what each is. */
#define DP_MEMORY_USES(X)           \
    X(WEIGHTS, weights)             \
    X(GRADIENTS, gradients)         \
    X(OPTIMIZER, optimizer)         \
    X(ACTIVATIONS, activations)     \
    X(COMMUNICATION, communication) \
    X(INPUT, input)                 \
    X(LIBRARY, library)             \
    X(OTHER, other)

enum dp_memory_use_kind {
#define X(name, key) DP_MEMORY_##name,
    DP_MEMORY_USES(X)
#undef X
        DP_MEMORY_USE_COUNT
};

const char *dp_memory_use_key(int kind);

enum { DP_MEMORY_WINDOWS = 32 };

struct dp_memory_window {
    uint64_t looks;
    uint64_t first_step; /* of its looks */
    int64_t least[DP_MEMORY_USE_COUNT];
};

/* Zeros: nothing yet. */
struct dp_memory_use {
    int64_t now[DP_MEMORY_USE_COUNT]; /* at the last look */
    int64_t peak;                     /* most resident memory; 0: not looked yet */
    uint64_t peak_step;               /* after which it was first seen to be that */
    struct dp_memory_window windows[DP_MEMORY_WINDOWS], open;
    int count;
    uint64_t looks_each; /* looks of a window; 0: 1 */
};

/* Puts together what base/mem counts, or a device (dp_device_room.used). */
void dp_memory_group(const size_t bytes[DP_MEM_PURPOSE_COUNT], int64_t out[DP_MEMORY_USE_COUNT]);

/*
 * A look after a step.
 *
 *   steady    whether it counts for leaks: the first steps allocate
 *   bytes     [DP_MEMORY_USE_COUNT], as dp_memory_group() gives them, with what libraries take
 *   bounded   what of input grows up to a limit of its own, which is no leak
 *   peak      most memory that the process ever had resident
 */
void dp_memory_use_look(struct dp_memory_use *use, uint64_t step, bool steady,
                        const int64_t bytes[DP_MEMORY_USE_COUNT], int64_t bounded, int64_t peak);

struct dp_memory_leak {
    int kind;      /* enum dp_memory_use_kind; below 0: nothing grows */
    int64_t bytes; /* by how much it has grown */
    double bytes_per_step;
};

/* What grows most over the looks so far: by a megabyte (libraries: 8), in most of the windows, and
 * at the end not much slower than before. */
struct dp_memory_leak dp_memory_use_leak(const struct dp_memory_use *use);

/* What is resident, in bytes. */
struct dp_memory_parts {
    int64_t resident;  /* 0: not known */
    int64_t code;      /* of files: the program and its libraries */
    int64_t anonymous; /* heap, stacks, mappings */
    int64_t shared;    /* with other processes */
    int64_t heap;      /* that the C library has given out, to base/mem too, or keeps */
};

/* Reads /proc/self/status and asks the C library. */
void dp_memory_parts_read(struct dp_memory_parts *out);

/*
 * What libraries take: code, and resident heap that is not ours. What MPI has allocated for us is
 * in its heap where it is not shared.
 *
 *   ours         dp_mem_heap()
 *   counted      all that is counted by purpose, ours included
 *   unexplained  out  anonymous memory that is not of the heap: stacks, mappings of libraries
 */
int64_t dp_memory_libraries(const struct dp_memory_parts *parts, int64_t ours, int64_t counted,
                            int64_t *unexplained);

#endif
