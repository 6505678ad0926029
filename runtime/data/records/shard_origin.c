#include "runtime/data/records/shard_origin.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/files/folder_list.h"
#include "base/mem.h"
#include "runtime/data/formats/data_file.h"
#include "runtime/data/remote/place.h"
#include "runtime/data/remote/remote.h"

enum { PIECE = 1 << 20 };

struct dp_shard_origin {
    const char *dir;                      /* borrowed */
    struct dp_folder_list folders;        /* owned; the first one has index.json */
    struct dp_remote *remote;             /* owned; NULL: a folder */
    const struct dp_records_index *index; /* borrowed; NULL: before begin */
    struct dp_data_file *files;           /* owned; [index->shard_count]; of a folder open */
};

dp_status dp_shard_origin_open(const char *dir, double patience_s, struct dp_shard_origin **out)
{
    struct dp_shard_origin *o = dp_zalloc(1, sizeof(*o));
    dp_status status = DP_OK;

    if (o == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: records", dir);
    }
    o->dir = dir;
    if (dp_place_is_remote(dir)) {
        status = dp_remote_open(dir, patience_s, &o->remote);
    } else {
        status = dp_folder_list_read(dir, &o->folders);
    }
    if (status != DP_OK) {
        dp_shard_origin_close(o);
        return status;
    }
    *out = o;
    return DP_OK;
}

void dp_shard_origin_close(struct dp_shard_origin *o)
{
    if (o == NULL) {
        return;
    }
    for (size_t i = 0; o->files != NULL && i < o->index->shard_count; i++) {
        dp_data_file_close(&o->files[i]);
    }
    dp_free(o->files);
    dp_folder_list_release(&o->folders);
    dp_remote_close(o->remote);
    dp_free(o);
}

bool dp_shard_origin_remote(const struct dp_shard_origin *o)
{
    return o->remote != NULL;
}

const char *dp_shard_origin_index_dir(const struct dp_shard_origin *o)
{
    return o->remote == NULL ? o->folders.name[0] : o->dir;
}

const char *dp_shard_origin_path(const struct dp_shard_origin *o, size_t shard)
{
    return o->files[shard].path;
}

/* ---- index.json ---- */

/* A text that grows. */
struct text {
    char *bytes; /* owned */
    size_t used, room;
};

static dp_status take_text(void *context, const void *data, size_t bytes)
{
    struct text *t = context;

    if (bytes > DP_RECORDS_INDEX_BYTES - t->used) {
        return DP_FAIL(DP_ERR_DATA, DP_RECORDS_INDEX ": is longer than %d bytes",
                       DP_RECORDS_INDEX_BYTES);
    }
    if (t->room - t->used < bytes + 1) {
        const size_t room = 2 * (t->used + bytes) + 4096;
        char *larger = dp_zalloc(1, room);
        if (larger == NULL) {
            return DP_FAIL(DP_ERR_NOMEM, DP_RECORDS_INDEX ": %zu bytes", room);
        }
        if (t->used > 0) {
            memcpy(larger, t->bytes, t->used);
        }
        dp_free(t->bytes);
        t->bytes = larger;
        t->room = room;
    }
    memcpy(t->bytes + t->used, data, bytes);
    t->used += bytes;
    t->bytes[t->used] = '\0';
    return DP_OK;
}

dp_status dp_shard_origin_index(struct dp_shard_origin *o, char **text, size_t *bytes)
{
    struct text t = {NULL, 0, 0};
    const struct dp_remote_want want = {.name = DP_RECORDS_INDEX, .take = take_text, .context = &t};
    dp_status status;

    if (o->remote == NULL) {
        return dp_records_index_text(o->folders.name[0], text, bytes);
    }
    status = dp_remote_get(o->remote, &want);
    status = status == DP_OK ? take_text(&t, "", 0) : status; /* of an empty one, too */
    if (status != DP_OK) {
        dp_free(t.bytes);
        return status;
    }
    *text = t.bytes;
    *bytes = t.used;
    return DP_OK;
}

/* ---- shards ---- */

/* The one folder that has a shard. */
static dp_status find_folder(const struct dp_shard_origin *o, const char *name, uint64_t samples,
                             const char **dir)
{
    const struct dp_folder_list *folders = &o->folders;

    *dir = NULL;
    for (size_t i = 0; i < folders->count; i++) {
        if (!dp_data_file_exists(folders->name[i], name)) {
            continue;
        }
        if (*dir != NULL) {
            return DP_FAIL(DP_ERR_DATA, "%s/%s: is also in %s: keep one of them", *dir, name,
                           folders->name[i]);
        }
        *dir = folders->name[i];
    }
    if (*dir == NULL) {
        return DP_FAIL(DP_ERR_NOINPUT,
                       "%s/%s: is missing, with %llu samples: copy it there%s, or pack again",
                       folders->name[0], name, (unsigned long long)samples,
                       folders->count > 1 ? " or to another folder of data.dir" : "");
    }
    return DP_OK;
}

static dp_status open_origin(struct dp_shard_origin *o, size_t number)
{
    const struct dp_records_shard *said = &o->index->shards[number];
    struct dp_data_file *file = &o->files[number];
    char name[DP_RECORDS_NAME];
    const char *dir;

    dp_records_shard_name(name, number);
    DP_TRY(find_folder(o, name, said->samples, &dir));
    DP_TRY(dp_data_file_open(file, dir, name));
    if (file->bytes != said->bytes) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: has %zu bytes, " DP_RECORDS_INDEX " says %llu: copy it "
                       "again, or pack again",
                       file->path, file->bytes, (unsigned long long)said->bytes);
    }
    return DP_OK;
}

/* The path alone. */
static dp_status name_shard(struct dp_shard_origin *o, size_t number)
{
    const size_t room = strlen(dp_remote_shown(o->remote)) + DP_RECORDS_NAME + 1;
    struct dp_data_file *file = &o->files[number];
    char name[DP_RECORDS_NAME];

    dp_records_shard_name(name, number);
    file->fd = -1;
    file->path = dp_zalloc(room, 1);
    if (file->path == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: its shards", o->dir);
    }
    (void)snprintf(file->path, room, "%s/%s", dp_remote_shown(o->remote), name);
    return DP_OK;
}

dp_status dp_shard_origin_begin(struct dp_shard_origin *o, const struct dp_records_index *index)
{
    o->index = index;
    o->files = dp_zalloc(index->shard_count, sizeof(*o->files));
    if (o->files == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: %zu shards", o->dir, index->shard_count);
    }
    for (size_t i = 0; i < index->shard_count; i++) {
        DP_TRY(o->remote != NULL ? name_shard(o, i) : open_origin(o, i));
    }
    return DP_OK;
}

dp_status dp_shard_origin_read(const struct dp_shard_origin *o, size_t shard, uint64_t at,
                               void *out, size_t bytes, size_t *got)
{
    return dp_data_file_take(&o->files[shard], (size_t)at, out, bytes, got);
}

void dp_shard_origin_read_ahead(const struct dp_shard_origin *o, size_t shard, uint64_t at,
                                size_t bytes)
{
    if (o->remote == NULL) {
        (void)posix_fadvise(o->files[shard].fd, (off_t)at, (off_t)bytes, POSIX_FADV_WILLNEED);
    }
}

/* context: where the next bytes go; no more come than were asked for. */
static dp_status put(void *context, const void *data, size_t bytes)
{
    uint8_t **next = context;

    memcpy(*next, data, bytes);
    *next += bytes;
    return DP_OK;
}

dp_status dp_shard_origin_ask(const struct dp_shard_origin *o, size_t shard, uint64_t at, void *out,
                              size_t bytes)
{
    char name[DP_RECORDS_NAME];
    uint8_t *next = out;
    const struct dp_remote_want want = {.name = name,
                                        .begin = at,
                                        .end = at + bytes,
                                        .total = o->index->shards[shard].bytes,
                                        .take = put,
                                        .context = &next};

    dp_records_shard_name(name, shard);
    return dp_remote_get(o->remote, &want);
}

static dp_status append(void *context, const void *data, size_t bytes)
{
    return dp_file_append(context, data, bytes);
}

static dp_status copy_file(const struct dp_data_file *from, uint64_t begin, uint64_t end,
                           struct dp_file *out)
{
    uint8_t *piece = dp_zalloc(1, PIECE);
    dp_status status = piece != NULL ? DP_OK : DP_FAIL(DP_ERR_NOMEM, "%s: copying", from->path);

    for (uint64_t at = begin; status == DP_OK && at < end; at += PIECE) {
        const size_t count = end - at < PIECE ? (size_t)(end - at) : PIECE;
        status = dp_data_file_read(from, (size_t)at, piece, count);
        status = status == DP_OK ? dp_file_append(out, piece, count) : status;
    }
    dp_free(piece);
    return status;
}

dp_status dp_shard_origin_copy(const struct dp_shard_origin *o, size_t shard, uint64_t begin,
                               uint64_t end, struct dp_file *out)
{
    char name[DP_RECORDS_NAME];
    const struct dp_remote_want want = {.name = name,
                                        .begin = begin,
                                        .end = end,
                                        .total = o->index->shards[shard].bytes,
                                        .take = append,
                                        .context = out};

    dp_records_shard_name(name, shard);
    return o->remote != NULL ? dp_remote_get(o->remote, &want)
                             : copy_file(&o->files[shard], begin, end, out);
}
