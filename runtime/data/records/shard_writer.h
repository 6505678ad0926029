/*
 * shard_writer.h - writes samples as shards, of which no half one ever has its final name.
 */
#ifndef DP_RUNTIME_DATA_RECORDS_SHARD_WRITER_H
#define DP_RUNTIME_DATA_RECORDS_SHARD_WRITER_H

#include "runtime/data/records/block.h"
#include "runtime/data/records/records_index.h"

struct dp_shard_writer;

struct dp_shard_writer_config {
    const char *dir;      /* borrowed */
    uint64_t shard_bytes; /* a shard ends after the block that reaches this */
    size_t block_bytes;
    struct dp_block_form form;
    int zstd; /* level; 0: not compressed */
};

/* Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_shard_writer_create(const struct dp_shard_writer_config *config,
                                            struct dp_shard_writer **out);

/* Adds a sample and its label [form.label_numbers]; those of a set come one after another, the
 * training set first. Errors: DP_ERR_WRITE, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_shard_writer_add(struct dp_shard_writer *writer, enum dp_set set,
                                         const void *data, size_t bytes, const double *label);

/* Ends the last shard. Errors: as above. */
DP_CHECKED dp_status dp_shard_writer_finish(struct dp_shard_writer *writer);

/* The shards that are finished; borrowed until the next call. */
const struct dp_records_shard *dp_shard_writer_shards(const struct dp_shard_writer *writer,
                                                      size_t *count);

/* Bytes in finished blocks, before and after they were compressed. */
void dp_shard_writer_bytes(const struct dp_shard_writer *writer, uint64_t *raw, uint64_t *stored);

/* An unfinished shard stays, to be cleared. NULL is allowed. */
void dp_shard_writer_destroy(struct dp_shard_writer *writer);

/* Deletes all shards of a folder, finished or not, by their names. */
void dp_shard_writer_clear(const char *dir);

#endif
