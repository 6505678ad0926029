/*
 * left_memory.h - shared memory of groups that have lost a rank. MPI frees it collectively only, so
 * never; but its pages can be given back once no rank uses it any more.
 */
#ifndef DP_COLLECTIVES_CORE_MPI_LEFT_MEMORY_H
#define DP_COLLECTIVES_CORE_MPI_LEFT_MEMORY_H

#include <stddef.h>

/* Notes a piece of such memory, which stays mapped: whole pages. Those beyond some thousand are not
 * noted. On the main thread, as the next one. */
void dp_left_memory_add(void *begin, size_t bytes);

/* Gives back the pages of all pieces, for all ranks that share them: none of them may use the
 * memory any more. Where the system cannot, they stay until the job ends. */
void dp_left_memory_drop(void);

#endif
