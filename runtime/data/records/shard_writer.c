#include "runtime/data/records/shard_writer.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/files/disk.h"
#include "base/mem.h"

/* What a shard is called while it is written. */
#define PART ".part"

struct dp_shard_writer {
    struct dp_shard_writer_config config;
    struct dp_block_builder builder;
    struct dp_block_packer *packer; /* owned; NULL: not compressed */
    struct dp_buffer packed;
    struct dp_file file;
    bool open; /* the file */
    char path[DP_PATH_BYTES], part[DP_PATH_BYTES];
    enum dp_set set;               /* of the open shard */
    struct dp_shard_block *blocks; /* owned: of the open shard */
    size_t block_room;
    struct dp_shard_foot foot;       /* of the open shard: what it has so far */
    struct dp_records_shard *shards; /* owned */
    size_t count, room;
    uint64_t raw_bytes, stored_bytes;
};

static dp_status no_memory(const struct dp_shard_writer *w)
{
    return DP_FAIL(DP_ERR_NOMEM, "%s: writing shards", w->config.dir);
}

dp_status dp_shard_writer_create(const struct dp_shard_writer_config *config,
                                 struct dp_shard_writer **out)
{
    struct dp_shard_writer *w = dp_zalloc(1, sizeof(*w));
    dp_status status = DP_OK;

    if (w == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: writing shards", config->dir);
    }
    w->config = *config;
    w->builder.form = config->form;
    if (config->zstd != 0) {
        status = dp_block_packer_create(config->zstd, &w->packer);
    }
    if (status != DP_OK) {
        dp_shard_writer_destroy(w);
        return status;
    }
    *out = w;
    return DP_OK;
}

/* Makes room for one more element. */
static bool grow(void **memory, size_t *room, size_t count, size_t size)
{
    const size_t more = 2 * *room + 64;
    void *larger;

    if (count < *room) {
        return true;
    }
    larger = dp_zalloc(more, size);
    if (larger == NULL) {
        return false;
    }
    if (count > 0) {
        memcpy(larger, *memory, count * size);
    }
    dp_free(*memory);
    *memory = larger;
    *room = more;
    return true;
}

/* ---- a shard ---- */

static dp_status begin_shard(struct dp_shard_writer *w, enum dp_set set)
{
    uint8_t head[DP_SHARD_HEAD];
    char name[DP_RECORDS_NAME + sizeof(PART)];

    if (w->count == DP_RECORDS_SHARDS) {
        return DP_FAIL(DP_ERR_USAGE, "%s: more than %d shards: give a larger --shard-mb",
                       w->config.dir, DP_RECORDS_SHARDS);
    }
    dp_records_shard_name(name, w->count);
    DP_TRY(dp_file_join(w->path, w->config.dir, name));
    (void)snprintf(name + strlen(name), sizeof(PART), PART);
    DP_TRY(dp_file_join(w->part, w->config.dir, name));
    DP_TRY(dp_file_create(&w->file, w->part));
    w->open = true;
    w->set = set;
    w->foot = (struct dp_shard_foot){.table_at = DP_SHARD_HEAD};
    dp_shard_head_write(head, (uint32_t)w->count, set);
    return dp_file_append(&w->file, head, DP_SHARD_HEAD);
}

/* The table and the foot. */
static dp_status write_end(struct dp_shard_writer *w)
{
    const size_t bytes = (size_t)w->foot.blocks * DP_SHARD_ROW;
    uint8_t *table = dp_zalloc(1, bytes), foot[DP_SHARD_FOOT];
    dp_status status;

    if (table == NULL) {
        return no_memory(w);
    }
    for (size_t i = 0; i < w->foot.blocks; i++) {
        dp_shard_row_write(table + i * DP_SHARD_ROW, &w->blocks[i]);
    }
    w->foot.table_hash = dp_shard_hash(table, bytes);
    dp_shard_foot_write(foot, &w->foot);
    status = dp_file_append(&w->file, table, bytes);
    dp_free(table);
    DP_TRY(status);
    return dp_file_append(&w->file, foot, DP_SHARD_FOOT);
}

static dp_status end_shard(struct dp_shard_writer *w)
{
    struct dp_records_shard shard = {.set = w->set};
    void *shards = w->shards;

    if (!w->open) {
        return DP_OK;
    }
    if (!grow(&shards, &w->room, w->count, sizeof(*w->shards))) {
        return no_memory(w);
    }
    w->shards = shards;
    DP_TRY(write_end(w));
    w->open = false;
    DP_TRY(dp_file_finish(&w->file, shard.hash));
    if (dp_disk_rename(w->part, w->path) != 0) {
        return dp_file_fail(w->path, errno);
    }
    shard.samples = w->foot.samples;
    shard.blocks = w->foot.blocks;
    shard.table_hash = w->foot.table_hash;
    shard.bytes = w->foot.table_at + w->foot.blocks * DP_SHARD_ROW + DP_SHARD_FOOT;
    w->shards[w->count++] = shard;
    return DP_OK;
}

/* ---- a block ---- */

static dp_status append_block(struct dp_shard_writer *w, const void *data,
                              struct dp_shard_block *block)
{
    static const uint8_t zeros[DP_SHARD_ALIGN];
    const uint64_t at = dp_shard_block_at(w->foot.table_at);
    void *blocks = w->blocks;

    if (!grow(&blocks, &w->block_room, (size_t)w->foot.blocks, sizeof(*w->blocks))) {
        return no_memory(w);
    }
    w->blocks = blocks;
    block->at = at;
    block->hash = dp_shard_hash(data, block->stored);
    DP_TRY(dp_file_append(&w->file, zeros, (size_t)(at - w->foot.table_at)));
    DP_TRY(dp_file_append(&w->file, data, block->stored));
    w->blocks[w->foot.blocks++] = *block;
    w->foot.table_at = at + block->stored;
    w->foot.samples += block->samples;
    w->raw_bytes += block->raw;
    w->stored_bytes += block->stored;
    return DP_OK;
}

static dp_status end_block(struct dp_shard_writer *w)
{
    struct dp_shard_block block = {.samples = w->builder.samples};
    const void *data;
    size_t bytes, packed = 0;

    if (block.samples == 0) {
        return DP_OK;
    }
    bytes = dp_block_finish(&w->builder);
    if (bytes == 0) {
        return no_memory(w);
    }
    data = w->builder.payload.data;
    if (w->packer != NULL) {
        DP_TRY(dp_block_pack(w->packer, data, bytes, &w->packed, &packed));
        data = packed > 0 ? w->packed.data : data;
    }
    block.raw = (uint32_t)bytes;
    block.stored = (uint32_t)(packed > 0 ? packed : bytes);
    block.zstd = packed > 0;
    DP_TRY(append_block(w, data, &block));
    return w->foot.table_at >= w->config.shard_bytes ? end_shard(w) : DP_OK;
}

dp_status dp_shard_writer_add(struct dp_shard_writer *w, enum dp_set set, const void *data,
                              size_t bytes, const double *label)
{
    if (w->open && w->set != set) {
        DP_TRY(end_block(w));
        DP_TRY(end_shard(w));
    }
    if (!dp_block_fits(&w->builder, bytes, w->config.block_bytes)) {
        DP_TRY(end_block(w));
    }
    if (!w->open) {
        DP_TRY(begin_shard(w, set));
    }
    return dp_block_add(&w->builder, data, bytes, label, w->config.block_bytes) ? DP_OK
                                                                                : no_memory(w);
}

dp_status dp_shard_writer_finish(struct dp_shard_writer *w)
{
    DP_TRY(end_block(w));
    return end_shard(w);
}

const struct dp_records_shard *dp_shard_writer_shards(const struct dp_shard_writer *w,
                                                      size_t *count)
{
    *count = w->count;
    return w->shards;
}

void dp_shard_writer_bytes(const struct dp_shard_writer *w, uint64_t *raw, uint64_t *stored)
{
    *raw = w->raw_bytes;
    *stored = w->stored_bytes;
}

void dp_shard_writer_destroy(struct dp_shard_writer *w)
{
    if (w == NULL) {
        return;
    }
    if (w->open) {
        dp_file_discard(&w->file);
    }
    dp_block_builder_release(&w->builder);
    dp_block_packer_destroy(w->packer);
    dp_buffer_release(&w->packed);
    dp_free(w->blocks);
    dp_free(w->shards);
    dp_free(w);
}

/* ---- deleting ---- */

static bool is_shard(const char *name)
{
    static const char form[] = "shard-00000.rec";

    for (size_t i = 0; i < sizeof(form) - 1; i++) {
        if (form[i] == '0' ? name[i] < '0' || name[i] > '9' : name[i] != form[i]) {
            return false;
        }
    }
    return name[sizeof(form) - 1] == '\0' || strcmp(name + sizeof(form) - 1, PART) == 0;
}

void dp_shard_writer_clear(const char *dir)
{
    DIR *entries = opendir(dir);
    const struct dirent *entry;

    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        if (is_shard(entry->d_name)) {
            (void)dp_disk_unlink_at(dirfd(entries), entry->d_name);
        }
    }
    if (entries != NULL) {
        (void)closedir(entries);
    }
}
