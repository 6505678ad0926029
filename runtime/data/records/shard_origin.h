/*
 * shard_origin.h - where records have their files: in a folder, in several (folder_list.h), each
 * of which has some of the shards, or at a place that is asked for them (remote/remote.h).
 */
#ifndef DP_RUNTIME_DATA_RECORDS_SHARD_ORIGIN_H
#define DP_RUNTIME_DATA_RECORDS_SHARD_ORIGIN_H

#include "runtime/data/records/records_index.h"

struct dp_shard_origin;

/* dir: borrowed; a folder, a list of folders, or a place. patience_s: as dp_remote_open() takes it.
 * Errors: DP_ERR_CONFIG, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_shard_origin_open(const char *dir, double patience_s,
                                          struct dp_shard_origin **out);

/* NULL is allowed. */
void dp_shard_origin_close(struct dp_shard_origin *origin);

/* Whether reading costs a request: then only copies are read, and shards are not looked for. */
bool dp_shard_origin_remote(const struct dp_shard_origin *origin);

/* The text of index.json; owned by the caller (dp_free). Errors: DP_ERR_NOINPUT, DP_ERR_DATA,
 * DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_shard_origin_index(struct dp_shard_origin *origin, char **text,
                                           size_t *bytes);

/*
 * Takes the shards of an index, which is borrowed until close; afterwards they can be read. Those
 * of a folder are opened.
 *
 * Errors: DP_ERR_NOINPUT (one is missing), DP_ERR_DATA (one has another length, or is in two
 * folders), DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_shard_origin_begin(struct dp_shard_origin *origin,
                                           const struct dp_records_index *index);

/* The folder of index.json: of a list the first one. Or the place; borrowed. */
const char *dp_shard_origin_index_dir(const struct dp_shard_origin *origin);

/* "FOLDER/shard-00000.rec"; borrowed. */
const char *dp_shard_origin_path(const struct dp_shard_origin *origin, size_t shard);

/* Of a folder: reads bytes, fewer only where the file was cut off since it was opened; and lets the
 * system read ahead. Several threads may at once. Errors: DP_ERR_DATA. */
DP_CHECKED dp_status dp_shard_origin_read(const struct dp_shard_origin *origin, size_t shard,
                                          uint64_t at, void *out, size_t bytes, size_t *got);
void dp_shard_origin_read_ahead(const struct dp_shard_origin *origin, size_t shard, uint64_t at,
                                size_t bytes);

/* Of a place: the same by one request; all of the bytes. Errors: DP_ERR_NOINPUT, DP_ERR_DATA,
 * DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_shard_origin_ask(const struct dp_shard_origin *origin, size_t shard,
                                         uint64_t at, void *out, size_t bytes);

/* Appends bytes [begin, end) of a shard to a file. Errors: DP_ERR_NOINPUT, DP_ERR_DATA,
 * DP_ERR_NOMEM, DP_ERR_WRITE. */
DP_CHECKED dp_status dp_shard_origin_copy(const struct dp_shard_origin *origin, size_t shard,
                                          uint64_t begin, uint64_t end, struct dp_file *out);

#endif
