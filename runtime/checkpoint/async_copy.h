/*
 * async_copy.h - copies arrays beside the thread that owns them, which helps before it changes
 * them.
 *
 * The async copy's thread runs where nothing else wants its core (writer.h). Where a core is free
 * the owner computes meanwhile, and then finds all copied; where none is, it finds nothing copied,
 * and does on its threads what it would have done at once.
 */
#ifndef DP_RUNTIME_CHECKPOINT_ASYNC_COPY_H
#define DP_RUNTIME_CHECKPOINT_ASYNC_COPY_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct dp_async_copy;

/* For at most `most` arrays at a time; the owner helps with `threads` threads. All functions are
 * the owner's. Errors: DP_ERR_NOMEM, DP_ERR_INTERNAL (no thread to be had). */
DP_CHECKED dp_status dp_async_copy_create(int most, int threads, struct dp_async_copy **out);

/* Finishes, and ends the thread. NULL is allowed. */
void dp_async_copy_destroy(struct dp_async_copy *copy);

/* One more array to copy, `bytes` of it; nothing happens yet. */
void dp_async_copy_add(struct dp_async_copy *copy, void *to, const void *from, size_t bytes);

/* Begins to copy what was added; *copied grows by 1 when all of it is there. */
void dp_async_copy_start(struct dp_async_copy *copy, atomic_ullong *copied);

/* Helps, and returns when all is copied: before anything that was added changes. At once where
 * nothing was begun, or `async copy` is NULL. */
void dp_async_copy_finish(struct dp_async_copy *copy);

/* How long the last dp_async_copy_finish() that had something to finish took its caller. */
uint64_t dp_async_copy_finish_ns(const struct dp_async_copy *copy);

#endif
