/*
 * copier.h - copies arrays beside the thread that owns them, which helps before it changes them.
 *
 * The copier's thread runs where nothing else wants its core (writer.h). Where a core is free the
 * owner computes meanwhile, and then finds all copied; where none is, it finds nothing copied, and
 * does on its threads what it would have done at once.
 */
#ifndef DP_RUNTIME_COPIER_H
#define DP_RUNTIME_COPIER_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct dp_copier;

/* For at most `most` arrays at a time; the owner helps with `threads` threads. All functions are
 * the owner's. Errors: DP_ERR_NOMEM, DP_ERR_INTERNAL (no thread to be had). */
DP_CHECKED dp_status dp_copier_create(int most, int threads, struct dp_copier **out);

/* Finishes, and ends the thread. NULL is allowed. */
void dp_copier_destroy(struct dp_copier *copier);

/* One more array to copy, `bytes` of it; nothing happens yet. */
void dp_copier_add(struct dp_copier *copier, void *to, const void *from, size_t bytes);

/* Begins to copy what was added; *copied grows by 1 when all of it is there. */
void dp_copier_start(struct dp_copier *copier, atomic_ullong *copied);

/* Helps, and returns when all is copied: before anything that was added changes. At once where
 * nothing was begun, or `copier` is NULL. */
void dp_copier_finish(struct dp_copier *copier);

/* How long the last dp_copier_finish() that had something to finish took its caller. */
uint64_t dp_copier_finish_ns(const struct dp_copier *copier);

#endif
