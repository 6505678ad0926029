/*
 * memory_end.h - arrays after which memory ends: who reads or writes there ends the program.
 *
 * Define _GNU_SOURCE before all includes, for MAP_ANONYMOUS.
 */
#ifndef DP_TESTS_SUPPORT_MEMORY_MEMORY_END_H
#define DP_TESTS_SUPPORT_MEMORY_MEMORY_END_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include <cmocka.h>

struct memory_end {
    char *mapped;
    size_t bytes;
};

/* So many bytes, zeroed. Released by memory_end_release(). */
static inline void *memory_end(struct memory_end *end, size_t bytes)
{
    const size_t page = 65536; /* of any system */
    const size_t pages = (bytes + page - 1) / page * page;

    end->bytes = pages + page;
    end->mapped =
        mmap(NULL, end->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(end->mapped != MAP_FAILED);
    assert_int_equal(mprotect(end->mapped + pages, page, PROT_NONE), 0);
    return end->mapped + pages - bytes;
}

static inline void memory_end_release(const struct memory_end *end)
{
    assert_int_equal(munmap(end->mapped, end->bytes), 0);
}

#endif
