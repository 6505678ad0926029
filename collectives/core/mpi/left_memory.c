#define _GNU_SOURCE /* MADV_REMOVE */

#include "collectives/core/mpi/left_memory.h"

#include <sys/mman.h>

#include "base/log.h"

enum { PIECES_MOST = 4096 };

static struct {
    void *begin;
    size_t bytes;
} pieces[PIECES_MOST];
static int count;

void dp_left_memory_add(void *begin, size_t bytes)
{
    if (begin != NULL && count < PIECES_MOST) {
        pieces[count].begin = begin;
        pieces[count++].bytes = bytes;
    }
}

void dp_left_memory_drop(void)
{
    for (int i = 0; i < count; i++) {
        if (madvise(pieces[i].begin, pieces[i].bytes, MADV_REMOVE) != 0) {
            DP_DEBUG("%zu KB of shared memory stay until the end", pieces[i].bytes >> 10);
        }
    }
    count = 0;
}
