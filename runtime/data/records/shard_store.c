#include "runtime/data/records/shard_store.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/system/worker.h"
#include "runtime/data/data_file.h"
#include "runtime/data/records/shard_cache.h"

enum { PIECE = 1 << 20, OTHER_FILES = 64 };

struct shard {
    struct dp_data_file origin; /* open, or only its path, where copies are read */
    struct dp_data_file copy;   /* open, or zeros */
    int readers;                /* of the copy */
};

struct dp_shard_store {
    const struct dp_shard_store_config *config; /* borrowed */
    const struct dp_records_index *index;       /* borrowed; NULL: before begin */
    struct dp_shard_cache *cache;               /* owned; NULL: none */
    pthread_mutex_t mutex;                      /* of what follows */
    struct shard *shards;                       /* owned; [index->shard_count] */
    struct dp_worker *worker;                   /* owned: copies `ahead`; NULL: none */
    size_t ahead;
    bool full; /* no space for copies: origins are read */
};

dp_status dp_shard_store_open(const struct dp_shard_store_config *config,
                              struct dp_shard_store **out)
{
    struct dp_shard_store *s = dp_zalloc(1, sizeof(*s));
    dp_status status = DP_OK;

    if (s == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: records", config->dir);
    }
    s->config = config;
    (void)pthread_mutex_init(&s->mutex, NULL);
    if (config->cache != NULL && config->cache[0] != '\0') {
        status = dp_shard_cache_open(config->cache, config->cache_bytes, &s->cache);
    }
    if (status != DP_OK) {
        dp_shard_store_close(s);
        return status;
    }
    *out = s;
    return DP_OK;
}

void dp_shard_store_close(struct dp_shard_store *s)
{
    if (s == NULL) {
        return;
    }
    dp_worker_destroy(s->worker);
    for (size_t i = 0; s->shards != NULL && i < s->index->shard_count; i++) {
        dp_data_file_close(&s->shards[i].origin);
        dp_data_file_close(&s->shards[i].copy);
    }
    dp_free(s->shards);
    dp_shard_cache_close(s->cache);
    (void)pthread_mutex_destroy(&s->mutex);
    dp_free(s);
}

dp_status dp_shard_store_index(struct dp_shard_store *s, struct dp_records_index_file *out)
{
    return dp_records_index_read(s->config->dir, out);
}

const char *dp_shard_store_path(const struct dp_shard_store *s, size_t shard)
{
    return s->shards[shard].origin.path;
}

/* ---- beginning ---- */

static dp_status open_origin(struct dp_shard_store *s, size_t number)
{
    const struct dp_records_shard *said = &s->index->shards[number];
    struct dp_data_file *file = &s->shards[number].origin;
    const char *dir = s->config->dir;
    char name[DP_RECORDS_NAME];

    dp_records_shard_name(name, number);
    if (!dp_data_file_exists(dir, name)) {
        return DP_FAIL(DP_ERR_NOINPUT,
                       "%s/%s: is missing, with %llu samples: copy it there, or "
                       "pack again",
                       dir, name, (unsigned long long)said->samples);
    }
    DP_TRY(dp_data_file_open(file, dir, name));
    if (file->bytes != said->bytes) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: has %zu bytes, " DP_RECORDS_INDEX " says %llu: copy it "
                       "again, or pack again",
                       file->path, file->bytes, (unsigned long long)said->bytes);
    }
    return DP_OK;
}

/* Files stay open for each shard: its origin, and its copy. */
static void allow_files(size_t files)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < files + OTHER_FILES) {
        limit.rlim_cur =
            limit.rlim_max < files + OTHER_FILES ? limit.rlim_max : files + OTHER_FILES;
        (void)setrlimit(RLIMIT_NOFILE, &limit); /* else opening a file says what is wrong */
    }
}

static dp_status check_budget(const struct dp_shard_store *s)
{
    uint64_t largest = 0;

    for (size_t i = 0; i < s->index->shard_count; i++) {
        const uint64_t bytes = s->index->shards[i].bytes;
        largest = bytes > largest ? bytes : largest;
    }
    if (s->cache != NULL && s->config->cache_bytes > 0 && largest > s->config->cache_bytes) {
        return DP_FAIL(DP_ERR_CONFIG,
                       "data.local_cache_mb: %llu MB do not hold the largest shard of %s: set at "
                       "least %llu",
                       (unsigned long long)(s->config->cache_bytes >> 20), s->config->dir,
                       (unsigned long long)(largest >> 20) + 1);
    }
    return DP_OK;
}

static dp_status copy_ahead(void *context);

dp_status dp_shard_store_begin(struct dp_shard_store *s, const struct dp_records_index *index)
{
    const struct dp_worker_config worker = {.name = "shards",
                                            .task = "copies the next shard to data.local_cache",
                                            .run = copy_ahead,
                                            .context = s};

    s->index = index;
    DP_TRY(check_budget(s));
    s->shards = dp_zalloc(index->shard_count, sizeof(*s->shards));
    if (s->shards == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: %zu shards", s->config->dir, index->shard_count);
    }
    allow_files(index->shard_count * (s->cache != NULL ? 2 : 1));
    for (size_t i = 0; i < index->shard_count; i++) {
        DP_TRY(open_origin(s, i));
    }
    return s->cache != NULL ? dp_worker_create(&worker, &s->worker) : DP_OK;
}

/* ---- copies ---- */

/* What a copy is made of. */
struct source {
    const struct dp_data_file *origin;
    uint8_t *piece; /* owned */
};

static dp_status fill(void *context, struct dp_file *out)
{
    const struct source *source = context;
    const struct dp_data_file *origin = source->origin;
    dp_status status = DP_OK;

    for (size_t at = 0; status == DP_OK && at < origin->bytes; at += PIECE) {
        const size_t left = origin->bytes - at, count = left < PIECE ? left : PIECE;
        status = dp_data_file_read(origin, at, source->piece, count);
        status = status == DP_OK ? dp_file_append(out, source->piece, count) : status;
    }
    return status;
}

static dp_status get_copy(struct dp_shard_store *s, size_t shard, struct dp_data_file *copy)
{
    struct source source = {&s->shards[shard].origin, dp_zalloc(1, PIECE)};
    char name[DP_CACHE_NAME];
    const struct dp_cache_want want = {.name = name,
                                       .origin = source.origin->path,
                                       .bytes = s->index->shards[shard].bytes,
                                       .hash = s->index->shards[shard].hash,
                                       .fill = fill,
                                       .context = &source};
    dp_status status;

    if (source.piece == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: copying", source.origin->path);
    }
    dp_cache_name(name, want.hash, false);
    status = dp_shard_cache_get(s->cache, &want, copy);
    dp_free(source.piece);
    return status;
}

/* The next shard; what is wrong with it will be met again. */
static dp_status copy_ahead(void *context)
{
    struct dp_shard_store *s = context;
    struct dp_data_file copy = {NULL, 0, 0};
    struct dp_log_capture capture;

    dp_log_capture_begin(&capture, DP_LOG_WARN);
    (void)!get_copy(s, s->ahead, &copy);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    dp_data_file_close(&copy);
    return DP_OK;
}

/* With the mutex: begins to copy the shard after one that was opened for the first time. */
static void begin_ahead(struct dp_shard_store *s, size_t shard)
{
    const size_t next = shard + 1;

    if (next < s->index->shard_count && s->shards[next].copy.path == NULL && !s->full &&
        !dp_worker_busy(s->worker)) {
        (void)!dp_worker_wait(s->worker);
        s->ahead = next;
        dp_worker_start(s->worker);
    }
}

/* With the mutex: closes copies that were deleted for the sake of others, so that their space
 * becomes free. */
static void close_deleted(struct dp_shard_store *s)
{
    struct stat info;

    for (size_t i = 0; i < s->index->shard_count; i++) {
        struct shard *shard = &s->shards[i];
        if (shard->copy.path != NULL && shard->readers == 0 && fstat(shard->copy.fd, &info) == 0 &&
            info.st_nlink == 0) {
            dp_data_file_close(&shard->copy);
        }
    }
}

/* Opens the copy of a shard, for one more reader. `*found` false: there is no space for it. */
static dp_status hold_copy(struct dp_shard_store *s, size_t number, bool *found)
{
    struct shard *shard = &s->shards[number];
    struct dp_data_file copy = {NULL, 0, 0};
    struct dp_log_capture capture;
    dp_status status;

    (void)pthread_mutex_lock(&s->mutex);
    *found = shard->copy.path != NULL;
    shard->readers += *found ? 1 : 0;
    if (*found || s->full) {
        (void)pthread_mutex_unlock(&s->mutex);
        return DP_OK;
    }
    (void)pthread_mutex_unlock(&s->mutex);
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = get_copy(s, number, &copy);
    dp_log_capture_end(&capture, status == DP_ERR_WRITE ? DP_LOG_DROP : DP_LOG_PRINT);
    (void)pthread_mutex_lock(&s->mutex);
    if (status == DP_ERR_WRITE && !s->full) {
        s->full = true;
        DP_WARN("%s; from now on shards are read from %s itself", dp_log_captured(&capture),
                s->config->dir);
    }
    if (status == DP_OK) {
        shard->readers++; /* also keeps it from being closed below */
        *found = true;
        if (shard->copy.path == NULL) {
            shard->copy = copy;
            close_deleted(s);
            begin_ahead(s, number);
        } else {
            dp_data_file_close(&copy);
        }
    }
    (void)pthread_mutex_unlock(&s->mutex);
    return status == DP_ERR_WRITE ? DP_OK : status;
}

static void release_copy(struct dp_shard_store *s, size_t shard)
{
    (void)pthread_mutex_lock(&s->mutex);
    s->shards[shard].readers--;
    (void)pthread_mutex_unlock(&s->mutex);
}

bool dp_shard_store_drop(struct dp_shard_store *s, size_t shard)
{
    char name[DP_CACHE_NAME];
    bool had;

    (void)pthread_mutex_lock(&s->mutex);
    while (s->shards[shard].readers > 0) { /* each reads one block */
        (void)pthread_mutex_unlock(&s->mutex);
        (void)sched_yield();
        (void)pthread_mutex_lock(&s->mutex);
    }
    had = s->shards[shard].copy.path != NULL;
    dp_data_file_close(&s->shards[shard].copy);
    (void)pthread_mutex_unlock(&s->mutex);
    if (had) {
        dp_cache_name(name, s->index->shards[shard].hash, false);
        dp_shard_cache_drop(s->cache, name);
    }
    return had;
}

/* ---- reading ---- */

dp_status dp_shard_store_read(struct dp_shard_store *s, size_t shard, bool end, uint64_t at,
                              void *out, size_t bytes)
{
    bool copied = false;
    dp_status status;

    if (s->cache == NULL || end) {
        return dp_data_file_read(&s->shards[shard].origin, (size_t)at, out, bytes);
    }
    DP_TRY(hold_copy(s, shard, &copied));
    if (!copied) {
        return dp_data_file_read(&s->shards[shard].origin, (size_t)at, out, bytes);
    }
    status = dp_data_file_read(&s->shards[shard].copy, (size_t)at, out, bytes);
    release_copy(s, shard);
    return status;
}

void dp_shard_store_read_ahead(struct dp_shard_store *s, size_t shard, uint64_t at, size_t bytes)
{
    if (s->cache == NULL) {
        (void)posix_fadvise(s->shards[shard].origin.fd, (off_t)at, (off_t)bytes,
                            POSIX_FADV_WILLNEED);
    }
}
