/*
 * rows.h - how an epoch is cut into global batches, and a global batch into the rows of the ranks.
 */
#ifndef DP_RUNTIME_DATA_ROWS_H
#define DP_RUNTIME_DATA_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/flat.h"

/* Global batches in an epoch of `count` rows. The rest that does not fill a batch is a batch of its
 * own, or left out with drop_last. 0 when there is no batch. global_batch is 1 or more. */
static inline uint64_t dp_steps_per_epoch(size_t count, size_t global_batch, bool drop_last)
{
    const bool short_batch = !drop_last && count % global_batch != 0;

    return count / global_batch + (short_batch ? 1 : 0);
}

/* Actual rows of global batch `index` of an epoch; index < dp_steps_per_epoch(). */
static inline size_t dp_global_rows(size_t count, size_t global_batch, uint64_t index)
{
    const size_t left = count - (size_t)index * global_batch;

    return left < global_batch ? left : global_batch;
}

/*
 * The rows of rank `rank` of `ranks` in a global batch of `rows` rows: [floor(rank rows / ranks),
 * floor((rank + 1) rows / ranks)), counted inside the batch. At most dp_most_rows() of them, and
 * none for some ranks if there are more ranks than rows. Lanes and micro-batches are cut in the
 * same way.
 */
static inline struct dp_range dp_row_range(size_t rows, int rank, int ranks)
{
    const size_t begin = (size_t)rank * rows / (size_t)ranks;
    const size_t end = ((size_t)rank + 1) * rows / (size_t)ranks;

    return (struct dp_range){.begin = begin, .count = end - begin};
}

/* The number of rows to allocate for: no rank has more in any batch of at most `global_batch` rows.
 * (A rank's rows of a full batch are not enough: in a short batch it can have more.) */
static inline size_t dp_most_rows(size_t global_batch, int ranks)
{
    return (global_batch + (size_t)ranks - 1) / (size_t)ranks;
}

#endif
