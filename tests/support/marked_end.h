/*
 * marked_end.h - for tests: memory of the library behind which there are marks, so that whoever
 * reads behind an array of whole DP_MEM_ALIGN bytes finds other numbers than 0.
 */
#ifndef DP_TESTS_SUPPORT_MARKED_END_H
#define DP_TESTS_SUPPORT_MARKED_END_H

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static inline void *take_marked(size_t bytes)
{
    void *memory = NULL;

    if (posix_memalign(&memory, DP_MEM_ALIGN, bytes + DP_MEM_ALIGN) != 0) {
        return NULL;
    }
    memset((char *)memory + bytes, 0x5a, DP_MEM_ALIGN);
    return memory;
}

/* From now on, or no longer. */
static inline void mark_ends(bool on)
{
    dp_mem_take_from(on ? take_marked : NULL, on ? free : NULL);
}

#endif
