/*
 * raw_cache.h - the units of a data set (source.h) in memory, as they lie in files: once a node.
 *
 * Two pieces of memory that the ranks of a node share: an index, whose size is known at once, and
 * the bytes of all units, whose size it tells. All ranks of the node fill in both together, by
 * several threads each.
 */
#ifndef DP_RUNTIME_DATA_STREAM_RAW_CACHE_H
#define DP_RUNTIME_DATA_STREAM_RAW_CACHE_H

#include "runtime/data/samples.h"

/* Bytes of the index of so many units. */
size_t dp_raw_cache_index_bytes(size_t units);

/* Sets the sizes of all units; returns when none is left for this rank. `index` [as above] begins
 * with zeros. Errors: DP_ERR_NOMEM (threads). */
DP_CHECKED dp_status dp_raw_cache_measure(const struct dp_samples *samples, void *index,
                                          int threads);

/* One rank, after all have measured: decides where units lie. Returns the bytes of all. */
size_t dp_raw_cache_place(void *index, size_t units);

/* After that: the bytes of all, on any rank. */
size_t dp_raw_cache_bytes(const void *index, size_t units);

/* Reads units, until none is left for this rank. One that cannot be read is left out: whoever wants
 * it reads it again, and reports what is wrong. Errors: DP_ERR_NOMEM (threads). */
DP_CHECKED dp_status dp_raw_cache_read(const struct dp_samples *samples, void *index,
                                       uint8_t *bytes, int threads);

/* After all have read: readers of `samples` take units from there. */
void dp_raw_cache_use(struct dp_samples *samples, const void *index, const uint8_t *bytes);

#endif
