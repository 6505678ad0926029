/*
 * shard_store.h - the files of a folder of records, wherever they lie (shard_origin.h): as they
 * are, or as copies in a folder of a local disk (shard_cache.h), made when they are first read.
 *
 * While a shard is read, the next one is copied, on a thread of its own. Where copies find no space
 * on the disk, reading goes on from the folder itself; a warning says so. What is not in a folder
 * is always read from copies, and ends with DP_ERR_WRITE then.
 */
#ifndef DP_RUNTIME_DATA_RECORDS_SHARD_STORE_H
#define DP_RUNTIME_DATA_RECORDS_SHARD_STORE_H

#include "runtime/data/records/records_index.h"

struct dp_shard_store;

struct dp_shard_store_config {
    const char *dir;      /* of index.json and shards, or several, or a place: see shard_origin.h */
    double patience_s;    /* a place that sends nothing for so long is given up */
    const char *cache;    /* the folder of copies; NULL or "": none; of a place one in $TMPDIR */
    uint64_t cache_bytes; /* its budget; 0: as dp_shard_cache_open() has it */
};

/* config: borrowed until close. Errors: those of dp_shard_cache_open(). */
DP_CHECKED dp_status dp_shard_store_open(const struct dp_shard_store_config *config,
                                         struct dp_shard_store **out);

/* NULL is allowed. */
void dp_shard_store_close(struct dp_shard_store *store);

/* Whether the files are not in a folder. Their heads are then not read by themselves. */
bool dp_shard_store_remote(const struct dp_shard_store *store);

/* Reads index.json. Errors: as dp_records_index_read(); DP_ERR_NOINPUT. */
DP_CHECKED dp_status dp_shard_store_index(struct dp_shard_store *store,
                                          struct dp_records_index_file *out);

/*
 * Looks for the shards of an index, which is borrowed until close; afterwards they can be read.
 *
 * Errors: DP_ERR_NOINPUT (one is missing), DP_ERR_DATA (one has another length), DP_ERR_CONFIG (one
 * is larger than the budget), DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_shard_store_begin(struct dp_shard_store *store,
                                          const struct dp_records_index *index);

/*
 * Reads bytes of a shard. Several threads may read at once.
 *
 *   end  they are of its head or end, which are read before all others: no copy is made for them
 *   got  out  fewer only where the file was cut off since it was opened
 *
 * Errors: DP_ERR_DATA, DP_ERR_NOINPUT (it has vanished), DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_shard_store_read(struct dp_shard_store *store, size_t shard, bool end,
                                         uint64_t at, void *out, size_t bytes, size_t *got);

/* Bytes of the copies of all shards; 0: none are made. */
uint64_t dp_shard_store_copied(const struct dp_shard_store *store);

/* Whether bytes that are read from now on are a few to look at: of a place they are asked for by
 * themselves, and no copy is made for them. One thread reads meanwhile. */
void dp_shard_store_look(struct dp_shard_store *store, bool looks);

/* Deletes the copy of a shard that turned out to be damaged. False: it has none, so that its origin
 * is damaged.
 *
 *   deleted  out  by this call: of the ranks of a host that met the damage, by one
 */
bool dp_shard_store_drop(struct dp_shard_store *store, size_t shard, bool *deleted);

/* Lets the system read ahead. */
void dp_shard_store_read_ahead(struct dp_shard_store *store, size_t shard, uint64_t at,
                               size_t bytes);

/* Where a shard has its origin; borrowed. */
const char *dp_shard_store_path(const struct dp_shard_store *store, size_t shard);

#endif
