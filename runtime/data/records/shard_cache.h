/*
 * shard_cache.h - copies of shards in a folder of a local disk, for all jobs and ranks that name
 * that folder.
 *
 * A copy is named after the hash of its content, so that equal shards are there once, and a changed
 * one is another file. It has its name only when it is whole and its hash is right. Whoever makes
 * one holds a lock meanwhile; others wait for it. Before a copy is made, those that were not used
 * for longest are deleted until all fit the budget; who reads one has it open, and goes on reading.
 * Nothing else in the folder is touched.
 */
#ifndef DP_RUNTIME_DATA_RECORDS_SHARD_CACHE_H
#define DP_RUNTIME_DATA_RECORDS_SHARD_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/files/file.h"
#include "runtime/data/formats/data_file.h"

struct dp_shard_cache;

/*
 * Opens the folder, and makes it if it is not there.
 *
 *   dir    borrowed until close
 *   bytes  the budget; 0: nine tenths of what its file system has left for it
 *
 * Errors: DP_ERR_WRITE (it cannot be made, or is no folder), DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_shard_cache_open(const char *dir, uint64_t bytes,
                                         struct dp_shard_cache **out);

/* The copies stay. NULL is allowed. */
void dp_shard_cache_close(struct dp_shard_cache *cache);

/* A folder for those who name none: in $TMPDIR, of this user alone. Errors: DP_ERR_WRITE: something
 * else is there. */
DP_CHECKED dp_status dp_shard_cache_own(char dir[DP_PATH_BYTES]);

/* What is to be there. */
struct dp_cache_want {
    const char *name;   /* of the copy: hexadecimal digits and an ending, see dp_cache_name() */
    const char *origin; /* what it is a copy of, for messages */
    uint64_t bytes;     /* that it has */
    const char *hash;   /* XXH3-128 of it; NULL: its reader finds damage by itself */
    dp_status (*fill)(void *context, struct dp_file *out); /* appends all of it */
    void *context;
};

enum { DP_CACHE_NAME = DP_HASH_TEXT + 8 };

/* "HASH.rec" of a whole shard, or "HASH.end" of its last bytes. */
void dp_cache_name(char name[DP_CACHE_NAME], const char *hash, bool end);

/*
 * Opens a copy, and makes it if it is not there. Several threads may ask at once.
 *
 *   file  out  the copy; its path is that of the copy
 *
 * Errors: DP_ERR_WRITE (no space in particular), DP_ERR_DATA (its hash is wrong), DP_ERR_NOMEM,
 * those of fill.
 */
DP_CHECKED dp_status dp_shard_cache_get(const struct dp_shard_cache *cache,
                                        const struct dp_cache_want *want,
                                        struct dp_data_file *file);

/*
 * The text that `fetch` gets, or that somebody who uses this folder got in the last few seconds: so
 * that of many ranks that begin at once, one asks. Where it cannot be kept, each asks.
 *
 *   what  names it: an address
 *   text  out  owned by the caller (dp_free)
 *
 * Errors: those of fetch; DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_shard_cache_text(const struct dp_shard_cache *cache, const char *what,
                                         dp_status (*fetch)(void *context, char **text,
                                                            size_t *bytes),
                                         void *context, char **text, size_t *bytes);

/* Whether this rank is the first of its job on this host to say what all of them find, such as a
 * full disk. It stays the first until it closes the cache. */
bool dp_shard_cache_speaks(struct dp_shard_cache *cache);

/* Deletes a copy, whose content is damaged; false: somebody else has, and may have made another one
 * meanwhile, or it cannot be deleted. */
bool dp_shard_cache_drop(const struct dp_shard_cache *cache, const char *name,
                         const struct dp_data_file *copy);

#endif
