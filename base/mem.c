#define _GNU_SOURCE /* madvise */

#include "base/mem.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HUGE_PAGE = 2 * 1024 * 1024 };

/* Precedes every block. It is as long as the alignment, so that the block is aligned too. */
union header {
    struct {
        size_t bytes, whole;
        enum dp_purpose purpose;
        void (*give)(void *memory); /* releases it; NULL: the C library */
    } block;
    char pad[DP_MEM_ALIGN];
};

static atomic_llong bytes_by_purpose[DP_MEM_PURPOSE_COUNT];
static atomic_llong live_blocks;
static atomic_llong heap_bytes; /* from the C library, headers included */
static atomic_int fail_countdown;
static void *(*take_elsewhere)(size_t bytes);
static void (*give_back)(void *memory);

static int should_fail(void)
{
    if (atomic_load(&fail_countdown) == 0) {
        return 0;
    }
    return atomic_fetch_sub(&fail_countdown, 1) == 1;
}

/* Allocates from the C library; the memory is not written to. Where there is a whole huge page in
 * it, it begins at one: a core's table of addresses reaches 8 MB of small pages, a step's arrays
 * are larger, and a virtual machine looks each page up twice. */
static void *allocate(size_t bytes, size_t align)
{
    const size_t begin = bytes >= HUGE_PAGE ? HUGE_PAGE : align;
    void *memory = NULL;

    if (posix_memalign(&memory, begin, bytes) != 0) {
        return NULL;
    }
    if (begin == HUGE_PAGE) {
        (void)madvise(memory, bytes, MADV_HUGEPAGE); /* if refused, pages are small */
    }
    return memory;
}

static void *take_block(enum dp_purpose purpose, size_t bytes, size_t align)
{
    const size_t whole = (bytes + sizeof(union header) + align - 1) & ~(align - 1);
    union header *header;
    bool elsewhere;

    if (should_fail() || whole < bytes) {
        return NULL;
    }
    header = take_elsewhere != NULL ? take_elsewhere(whole) : NULL;
    elsewhere = header != NULL;
    if (!elsewhere) {
        header = allocate(whole, align);
    }
    if (header == NULL) {
        return NULL;
    }
    memset(header, 0, whole);
    header->block.give = elsewhere ? give_back : NULL;
    header->block.bytes = bytes;
    header->block.whole = elsewhere ? 0 : whole;
    header->block.purpose = purpose;
    atomic_fetch_add(&bytes_by_purpose[purpose], (long long)bytes);
    atomic_fetch_add(&live_blocks, 1);
    atomic_fetch_add(&heap_bytes, (long long)header->block.whole);
    return header + 1;
}

/* Makes the system provide the pages; false where it cannot. EINVAL: it does not support this
 * call. */
static bool populate(void *memory, size_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    /* madvise needs whole pages. */
    const size_t before = (uintptr_t)memory % (size_t)sysconf(_SC_PAGESIZE);

    return madvise((char *)memory - before, bytes + before, MADV_POPULATE_WRITE) == 0 ||
           errno == EINVAL;
#else
    (void)memory;
    (void)bytes;
    return true;
#endif
}

bool dp_mem_clear(void *memory, size_t bytes)
{
    if (!populate(memory, bytes)) {
        return false;
    }
    memset(memory, 0, bytes);
    return true;
}

void *dp_mem_arena(enum dp_purpose purpose, size_t bytes)
{
    return take_block(purpose, bytes, DP_MEM_ALIGN);
}

void *dp_mem_huge(enum dp_purpose purpose, size_t bytes)
{
    return take_block(purpose, bytes, HUGE_PAGE);
}

void *dp_zalloc(size_t count, size_t size)
{
    if (size != 0 && count > SIZE_MAX / size) {
        return NULL;
    }
    return dp_mem_arena(DP_MEM_OTHER, count * size);
}

char *dp_strdup(const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *copy = dp_zalloc(1, bytes);

    if (copy != NULL) {
        memcpy(copy, text, bytes);
    }
    return copy;
}

void dp_free(void *memory)
{
    union header *header = memory;

    if (header == NULL) {
        return;
    }
    header--;
    atomic_fetch_sub(&bytes_by_purpose[header->block.purpose], (long long)header->block.bytes);
    atomic_fetch_sub(&live_blocks, 1);
    atomic_fetch_sub(&heap_bytes, (long long)header->block.whole);
    if (header->block.give != NULL) {
        header->block.give(header);
    } else {
        free(header);
    }
}

const char *dp_purpose_text(enum dp_purpose purpose)
{
    static const char *const texts[] = {
#define X(name, text) text,
        DP_MEM_PURPOSES(X)
#undef X
    };
    return (unsigned)purpose < DP_MEM_PURPOSE_COUNT ? texts[purpose] : "unknown";
}

size_t dp_mem_bytes(enum dp_purpose purpose)
{
    return (size_t)atomic_load(&bytes_by_purpose[purpose]);
}

size_t dp_mem_live(void)
{
    return (size_t)atomic_load(&live_blocks);
}

size_t dp_mem_heap(void)
{
    return (size_t)atomic_load(&heap_bytes);
}

void dp_mem_count(enum dp_purpose purpose, long long bytes)
{
    atomic_fetch_add(&bytes_by_purpose[purpose], bytes);
}

int dp_mem_fail_nth(int nth)
{
    return atomic_exchange(&fail_countdown, nth);
}

void dp_mem_take_from(void *(*take)(size_t bytes), void (*give)(void *memory))
{
    take_elsewhere = take;
    give_back = give;
}
