/*
 * block_cache.h - decompressed blocks of one set, which the threads of a rank share, within so many
 * bytes: those that were not used for longest make room.
 *
 * Rows of a window (window.h) come from its blocks at random. Where the blocks fit, each is
 * expanded once a window, by whoever needs it first; who else needs it meanwhile waits. Several
 * threads call all of it at once but create and destroy.
 */
#ifndef DP_RUNTIME_DATA_RECORDS_BLOCK_CACHE_H
#define DP_RUNTIME_DATA_RECORDS_BLOCK_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct dp_block_cache;

/* What a block of so many bytes takes of the room. */
size_t dp_block_cache_room(size_t bytes);

/*
 *   blocks  of the set, numbered from 0
 *   most    of them that are kept at the same time, 1 or more
 *   bytes   that they take; memory is allocated when it is first needed
 *
 * Errors: DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_block_cache_create(size_t blocks, size_t most, size_t bytes,
                                           struct dp_block_cache **out);

/* NULL is allowed. All blocks have been given back. */
void dp_block_cache_destroy(struct dp_block_cache *cache);

enum dp_block_place {
    DP_BLOCK_KEPT,     /* it is there */
    DP_BLOCK_NEW,      /* there is room for it: write it, and call dp_block_cache_filled() */
    DP_BLOCK_ELSEWHERE /* there is no room: others use all of it, or `passes` */
};

/*
 * Looks for a block, and waits while another thread fills it.
 *
 *   passes  it will not be needed again soon: no other block makes room for it
 *   data    out  [bytes]; the caller's until dp_block_cache_give(); NULL: elsewhere
 */
enum dp_block_place dp_block_cache_take(struct dp_block_cache *cache, size_t block, size_t bytes,
                                        bool passes, uint8_t **data);

/* After DP_BLOCK_NEW. `well` false: it could not be read, and is not the caller's any more. */
void dp_block_cache_filled(struct dp_block_cache *cache, size_t block, bool well);

void dp_block_cache_give(struct dp_block_cache *cache, size_t block);

#endif
