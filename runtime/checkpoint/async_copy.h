/*
 * async_copy.h - copies arrays on another thread; the owner of the arrays helps before it changes
 * them.
 *
 * The copying thread runs only where no other thread needs its core (worker.h). If a core is free,
 * the owner computes during the copy, and then finds everything copied. If none is, it finds
 * nothing copied, and copies with its own threads as it would have done without this.
 */
#ifndef DP_RUNTIME_CHECKPOINT_ASYNC_COPY_H
#define DP_RUNTIME_CHECKPOINT_ASYNC_COPY_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct dp_async_copy;

/* For at most `most` arrays at a time; the owner helps with `threads` threads. Only the owner calls
 * these functions. Errors: DP_ERR_NOMEM (also when no thread can be started). */
DP_CHECKED dp_status dp_async_copy_create(int most, int threads, struct dp_async_copy **out);

/* Finishes the copy, and ends the thread. NULL is allowed. */
void dp_async_copy_destroy(struct dp_async_copy *copy);

/* Adds an array of `bytes` to the next copy; copying does not start yet. */
void dp_async_copy_add(struct dp_async_copy *copy, void *to, const void *from, size_t bytes);

/* Starts to copy what was added; *copied grows by 1 when all of it is done. */
void dp_async_copy_start(struct dp_async_copy *copy, atomic_ullong *copied);

/* Helps, and returns when all is copied. Call it before any added array changes. Returns
 * immediately if no copy was started, and for NULL. */
void dp_async_copy_finish(struct dp_async_copy *copy);

/* How long the last dp_async_copy_finish() that had a copy to finish took. */
uint64_t dp_async_copy_finish_ns(const struct dp_async_copy *copy);

#endif
