/*
 * marked_end.h - for tests: memory of the library after which there are marks, so that whoever
 * reads after an array of whole DP_MEM_ALIGN bytes finds other numbers than 0, and whoever writes
 * there is found when the memory is released.
 */
#ifndef DP_TESTS_SUPPORT_MEMORY_MARKED_END_H
#define DP_TESTS_SUPPORT_MEMORY_MARKED_END_H

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { END_MARK = 0x5a };

union marked_front {
    size_t bytes;
    char align[DP_MEM_ALIGN];
};

static atomic_int marks_lost; /* memory after which something was written */

static inline void *take_marked(size_t bytes)
{
    void *memory = NULL;
    union marked_front *front;

    if (posix_memalign(&memory, DP_MEM_ALIGN, sizeof(*front) + bytes + DP_MEM_ALIGN) != 0) {
        return NULL;
    }
    front = memory;
    front->bytes = bytes;
    memset((char *)(front + 1) + bytes, END_MARK, DP_MEM_ALIGN);
    return front + 1;
}

static inline void give_marked(void *memory)
{
    union marked_front *front = (union marked_front *)memory - 1;
    const char *end = (const char *)memory + front->bytes;

    for (int i = 0; i < DP_MEM_ALIGN; i++) {
        if (end[i] != END_MARK) {
            atomic_fetch_add(&marks_lost, 1);
            break;
        }
    }
    free(front);
}

/* From now on, or no longer. */
static inline void mark_ends(bool on)
{
    dp_mem_take_from(on ? take_marked : NULL, on ? give_marked : NULL);
}

#endif
