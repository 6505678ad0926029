/* guarded.h - arrays whose surroundings must not change. */
#ifndef DP_TESTS_SUPPORT_MEMORY_GUARDED_H
#define DP_TESTS_SUPPORT_MEMORY_GUARDED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/mem.h"

enum { GUARD = 256, MARK = 0x5a };

/* So many bytes, all of them MARK, aligned as an arena. Released by release_guarded(). */
static inline char *guarded(size_t bytes)
{
    char *block = dp_mem_arena(DP_MEM_OTHER, bytes + 2 * (size_t)GUARD);

    assert_non_null(block);
    memset(block, MARK, bytes + 2 * (size_t)GUARD);
    return block + GUARD;
}

/* Fails the test where the bytes before or after the array are no longer MARK. */
static inline void release_guarded(char *array, size_t bytes)
{
    for (size_t i = 0; i < GUARD; i++) {
        assert_int_equal(array[(ptrdiff_t)i - GUARD], MARK);
        assert_int_equal(array[bytes + i], MARK);
    }
    dp_free(array - GUARD);
}

#endif
