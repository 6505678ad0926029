/*
 * mem.h - all memory of the library: zeroed, counted by purpose, and made to fail by tests.
 *
 * Only mem.c calls the C library's allocator. Arenas of weights, gradients and activations have a
 * purpose, so that the run report can list the memory of each.
 */
#ifndef DP_BASE_MEM_H
#define DP_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>

#define DP_MEM_PURPOSES(X)          \
    X(OTHER, "other")               \
    X(WEIGHTS, "weights")           \
    X(GRADIENTS, "gradients")       \
    X(OPTIMIZER, "optimizer state") \
    X(RESIDUALS, "residuals")       \
    X(ACTIVATIONS, "activations")   \
    X(WORKSPACE, "workspace")       \
    X(LIBRARY, "libraries")         \
    X(TRIAL, "trials")              \
    X(DATA, "data")                 \
    X(KEPT, "kept blocks")          \
    X(COMM, "communication")        \
    X(CHECKPOINT, "checkpoint")

enum dp_purpose {
#define X(name, text) DP_MEM_##name,
    DP_MEM_PURPOSES(X)
#undef X
        DP_MEM_PURPOSE_COUNT
};

enum { DP_MEM_ALIGN = 64 };

/* `count` zeroed elements of `size` bytes for bookkeeping. NULL when there is no memory, or when
 * the product overflows. count * size == 0 gives a valid pointer. */
void *dp_zalloc(size_t count, size_t size);

/* An arena: zeroed, aligned to DP_MEM_ALIGN, counted under `purpose`. NULL when out of memory. Its
 * whole 2 MB are on huge pages where the system has any; it takes no more memory for that. */
void *dp_mem_arena(enum dp_purpose purpose, size_t bytes);

/* The same, with its end on a huge page, too: such memory is written to disk faster. For memory
 * that is kept, and slightly less than a multiple of 2 MB. */
void *dp_mem_huge(enum dp_purpose purpose, size_t bytes);

/* A copy of `text`, or NULL. */
char *dp_strdup(const char *text);

/* Releases memory of the functions above. NULL is allowed. */
void dp_free(void *memory);

const char *dp_purpose_text(enum dp_purpose purpose);

/* Bytes and number of blocks that are allocated now. */
size_t dp_mem_bytes(enum dp_purpose purpose);
size_t dp_mem_live(void);

/* Bytes of the C library's heap that these blocks take. */
size_t dp_mem_heap(void);

/* Zeroes memory that is part of a file. False where its file system has no space for it, and
 * touching the memory would end the process by SIGBUS, as it still does on Linux before 5.14. */
bool dp_mem_clear(void *memory, size_t bytes);

/* Adds (or, negative, subtracts) bytes that were allocated elsewhere, such as shared windows. */
void dp_mem_count(enum dp_purpose purpose, long long bytes);

/* Faults: makes the nth allocation from now fail (1: the next); 0 switches this off. Returns how
 * far away the one before was: 0 or less where it has failed, or was switched off. */
int dp_mem_fail_nth(int nth);

/* Tests: from now on memory comes from `take`, aligned to DP_MEM_ALIGN, and is released by `give`,
 * even if this has been changed since. Where `take` returns NULL, and when it is NULL, the C
 * library allocates. */
void dp_mem_take_from(void *(*take)(size_t bytes), void (*give)(void *memory));

#endif
