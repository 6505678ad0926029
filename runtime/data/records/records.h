/*
 * records.h - a folder of records that is open for reading: any block at any time, by several
 * threads at once.
 */
#ifndef DP_RUNTIME_DATA_RECORDS_RECORDS_H
#define DP_RUNTIME_DATA_RECORDS_RECORDS_H

#include "runtime/data/records/block.h"
#include "runtime/data/records/shard_store.h"

struct dp_records;

/* A block among all of the folder. */
struct dp_records_block {
    struct dp_shard_block block;
    uint32_t shard, number; /* of the shard; of the block in it */
    uint64_t first;         /* its first sample, counted in its set */
};

/*
 * Reads index.json and the end of every shard; block for block they must be those that were packed.
 *
 *   config  what it points to is borrowed until close
 *
 * Errors: DP_ERR_NOINPUT (no index, a shard is missing), DP_ERR_DATA, DP_ERR_NOMEM, and of a cache
 * DP_ERR_WRITE and DP_ERR_CONFIG.
 */
DP_CHECKED dp_status dp_records_open(const struct dp_shard_store_config *config,
                                     struct dp_records **out);

/* NULL is allowed. */
void dp_records_close(struct dp_records *records);

/* Bytes of the copies of all shards; 0: none are made. */
uint64_t dp_records_copied(const struct dp_records *records);

const struct dp_records_index *dp_records_index(const struct dp_records *records);

/* How many blocks a set has; block `i` of it; the number of the block with sample `row`. */
size_t dp_records_blocks(const struct dp_records *records, enum dp_set set);
const struct dp_records_block *dp_records_block(const struct dp_records *records, enum dp_set set,
                                                size_t i);
size_t dp_records_find(const struct dp_records *records, enum dp_set set, uint64_t row);

/* Reading a block in its three stages; each names file, block and samples if it fails. `stored`
 * [block->block.stored] is the block as it lies in the file. Errors: DP_ERR_DATA, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_records_take(const struct dp_records *records,
                                     const struct dp_records_block *block, void *stored);
DP_CHECKED dp_status dp_records_check(const struct dp_records *records,
                                      const struct dp_records_block *block, const void *stored);
DP_CHECKED dp_status dp_records_expand(const struct dp_records *records,
                                       const struct dp_records_block *block, const void *stored,
                                       struct dp_buffer *memory, struct dp_block_view *view);

/* The first two. A damaged block is refused each time; a damaged copy in a cache is made again. */
DP_CHECKED dp_status dp_records_take_whole(const struct dp_records *records,
                                           const struct dp_records_block *block, void *stored);

/* All three, likewise; `stored` grows as needed. */
DP_CHECKED dp_status dp_records_read(const struct dp_records *records,
                                     const struct dp_records_block *block, struct dp_buffer *stored,
                                     struct dp_buffer *memory, struct dp_block_view *view);

/* The third one in two: the block's bytes, of a compressed one to `out` [block->block.raw]
 * (`memory` is what zstd works in), and the view of them. Errors: as above. */
DP_CHECKED dp_status dp_records_unpack_to(const struct dp_records *records,
                                          const struct dp_records_block *block, const void *stored,
                                          struct dp_buffer *memory, uint8_t *out);
DP_CHECKED dp_status dp_records_view(const struct dp_records *records,
                                     const struct dp_records_block *block, const uint8_t *raw,
                                     struct dp_block_view *view);

/* Makes room for a block as it lies in the file. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_records_reserve(const struct dp_records *records,
                                        const struct dp_records_block *block,
                                        struct dp_buffer *stored);

/* A sample of a block, as a source gives it; `row` counts in its set. Errors: DP_ERR_DATA. */
DP_CHECKED dp_status dp_records_sample(const struct dp_records *records,
                                       const struct dp_records_block *block,
                                       const struct dp_block_view *view, uint64_t row,
                                       struct dp_raw *raw);

/* "FOLDER/shard-00000.rec: block 3, sample 7 of it (sample 250 of the training set)", all counted
 * from 0. */
void dp_records_name(const struct dp_records *records, enum dp_set set, uint64_t row, char *text,
                     size_t size);

/* Where a shard has its origin; borrowed. */
const char *dp_records_path(const struct dp_records *records, size_t shard);

/* Whether blocks that are read from now on are a few to look at: see dp_shard_store_look(). */
void dp_records_look(struct dp_records *records, bool looks);

/* Lets the system read ahead what lies after a block in its shard. */
void dp_records_read_ahead(const struct dp_records *records, const struct dp_records_block *block,
                           size_t bytes);

/* The XXH3-128 hash of a whole shard. Errors: DP_ERR_DATA, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_records_hash_shard(const struct dp_records *records, size_t shard,
                                           char hash[DP_HASH_TEXT]);

#endif
