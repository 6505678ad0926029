#include "runtime/data/records/shard_store.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/system/worker.h"
#include "runtime/data/formats/data_file.h"
#include "runtime/data/records/shard_cache.h"
#include "runtime/data/records/shard_origin.h"

enum { OTHER_FILES = 64 };

struct shard {
    struct dp_data_file copy; /* open, or zeros */
    int readers;              /* of the copy */
};

struct dp_shard_store {
    const struct dp_shard_store_config *config; /* borrowed */
    const struct dp_records_index *index;       /* borrowed; NULL: before begin */
    struct dp_shard_origin *origin;             /* owned */
    struct dp_shard_cache *cache;               /* owned; NULL: none */
    char own[DP_PATH_BYTES];                    /* folder of the cache, where none was named */
    pthread_mutex_t mutex;                      /* of what follows */
    struct shard *shards;                       /* owned; [index->shard_count] */
    struct dp_worker *worker;                   /* owned: copies `ahead`; NULL: none */
    size_t ahead;
    bool looks; /* a few bytes are read: see dp_shard_store_look() */
    bool full;  /* no space for copies: origins are read */
};

/* What is not in a folder is read from copies in any case. */
static dp_status open_cache(struct dp_shard_store *s)
{
    const struct dp_shard_store_config *config = s->config;

    if (config->cache != NULL && config->cache[0] != '\0') {
        return dp_shard_cache_open(config->cache, config->cache_bytes, &s->cache);
    }
    if (!dp_shard_origin_remote(s->origin)) {
        return DP_OK;
    }
    DP_TRY(dp_shard_cache_own(s->own));
    DP_WARN("%s: copies of its shards are kept in %s: set data.local_cache to a folder of a local "
            "disk that has room for them",
            config->dir, s->own);
    return dp_shard_cache_open(s->own, config->cache_bytes, &s->cache);
}

dp_status dp_shard_store_open(const struct dp_shard_store_config *config,
                              struct dp_shard_store **out)
{
    struct dp_shard_store *s = dp_zalloc(1, sizeof(*s));
    dp_status status;

    if (s == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: records", config->dir);
    }
    s->config = config;
    (void)pthread_mutex_init(&s->mutex, NULL);
    status = dp_shard_origin_open(config->dir, config->patience_s, &s->origin);
    status = status == DP_OK ? open_cache(s) : status;
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
        dp_data_file_close(&s->shards[i].copy);
    }
    dp_free(s->shards);
    dp_shard_origin_close(s->origin);
    dp_shard_cache_close(s->cache);
    (void)pthread_mutex_destroy(&s->mutex);
    dp_free(s);
}

static dp_status fetch_index(void *context, char **text, size_t *bytes)
{
    return dp_shard_origin_index(context, text, bytes);
}

dp_status dp_shard_store_index(struct dp_shard_store *s, struct dp_records_index_file *out)
{
    char name[DP_PATH_BYTES], *text = NULL;
    size_t bytes;
    dp_status status;

    if (dp_shard_origin_remote(s->origin)) {
        status =
            dp_shard_cache_text(s->cache, s->config->dir, fetch_index, s->origin, &text, &bytes);
    } else {
        status = dp_shard_origin_index(s->origin, &text, &bytes);
    }
    status = status == DP_OK
                 ? dp_file_join(name, dp_shard_origin_index_dir(s->origin), DP_RECORDS_INDEX)
                 : status;
    status = status == DP_OK ? dp_records_index_parse(text, bytes, name, out) : status;
    dp_free(text);
    return status;
}

bool dp_shard_store_remote(const struct dp_shard_store *s)
{
    return dp_shard_origin_remote(s->origin);
}

const char *dp_shard_store_path(const struct dp_shard_store *s, size_t shard)
{
    return dp_shard_origin_path(s->origin, shard);
}

/* ---- beginning ---- */

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
    DP_TRY(dp_shard_origin_begin(s->origin, index));
    return s->cache != NULL ? dp_worker_create(&worker, &s->worker) : DP_OK;
}

/* ---- copies ---- */

/* What a copy is made of. */
struct source {
    const struct dp_shard_origin *origin;
    size_t shard;
    uint64_t begin, end;
};

static dp_status fill(void *context, struct dp_file *out)
{
    const struct source *source = context;

    return dp_shard_origin_copy(source->origin, source->shard, source->begin, source->end, out);
}

static dp_status get_copy(struct dp_shard_store *s, size_t shard, struct dp_data_file *copy)
{
    const struct dp_records_shard *said = &s->index->shards[shard];
    struct source source = {s->origin, shard, 0, said->bytes};
    char name[DP_CACHE_NAME];
    const struct dp_cache_want want = {.name = name,
                                       .origin = dp_shard_origin_path(s->origin, shard),
                                       .bytes = said->bytes,
                                       .hash = said->hash,
                                       .fill = fill,
                                       .context = &source};

    dp_cache_name(name, said->hash, false);
    return dp_shard_cache_get(s->cache, &want, copy);
}

/* The table of blocks and what follows it, of a shard that is not copied whole yet. */
static uint64_t end_of(const struct dp_records_shard *said)
{
    return said->bytes - said->blocks * DP_SHARD_ROW - DP_SHARD_FOOT;
}

uint64_t dp_shard_store_copied(const struct dp_shard_store *s)
{
    const bool ends = dp_shard_origin_remote(s->origin); /* have copies of their own */
    uint64_t sum = 0;

    for (size_t i = 0; s->cache != NULL && i < s->index->shard_count; i++) {
        const struct dp_records_shard *said = &s->index->shards[i];
        sum += said->bytes + (ends ? said->bytes - end_of(said) : 0);
    }
    return sum;
}

static dp_status read_end(struct dp_shard_store *s, size_t shard, uint64_t at, void *out,
                          size_t bytes)
{
    const struct dp_records_shard *said = &s->index->shards[shard];
    struct source source = {s->origin, shard, end_of(said), said->bytes};
    struct dp_data_file copy = {NULL, 0, 0};
    char name[DP_CACHE_NAME];
    const struct dp_cache_want want = {.name = name,
                                       .origin = dp_shard_origin_path(s->origin, shard),
                                       .bytes = said->bytes - source.begin,
                                       .fill = fill,
                                       .context = &source};
    dp_status status;

    dp_cache_name(name, said->hash, true);
    if (at < source.begin) {
        return DP_FAIL(DP_ERR_DATA, "%s: its end does not fit its length: pack again", want.origin);
    }
    DP_TRY(dp_shard_cache_get(s->cache, &want, &copy));
    status = dp_data_file_read(&copy, (size_t)(at - source.begin), out, bytes);
    dp_data_file_close(&copy);
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

/* One line a host: its ranks meet the same disk. */
static void warn_full(struct dp_shard_store *s, const char *why)
{
    if (dp_shard_cache_speaks(s->cache)) {
        DP_WARN("%s; from now on shards are read from %s itself", why, s->config->dir);
    } else {
        DP_DEBUG("%s; shards are read from %s itself", why, s->config->dir);
    }
}

/* Opens the copy of a shard, for one more reader. `*found` false: there is no space for it. */
static dp_status hold_copy(struct dp_shard_store *s, size_t number, bool *found)
{
    struct shard *shard = &s->shards[number];
    struct dp_data_file copy = {NULL, 0, 0};
    struct dp_log_capture capture;
    bool goes_on;
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
    goes_on = status == DP_ERR_WRITE && !dp_shard_origin_remote(s->origin);
    dp_log_capture_end(&capture, goes_on ? DP_LOG_DROP : DP_LOG_PRINT);
    (void)pthread_mutex_lock(&s->mutex);
    if (goes_on && !s->full) {
        s->full = true;
        warn_full(s, dp_log_captured(&capture));
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
    return goes_on ? DP_OK : status;
}

static void release_copy(struct dp_shard_store *s, size_t shard)
{
    (void)pthread_mutex_lock(&s->mutex);
    s->shards[shard].readers--;
    (void)pthread_mutex_unlock(&s->mutex);
}

bool dp_shard_store_drop(struct dp_shard_store *s, size_t shard, bool *deleted)
{
    char name[DP_CACHE_NAME];
    bool had;

    *deleted = false;
    (void)pthread_mutex_lock(&s->mutex);
    while (s->shards[shard].readers > 0) { /* each reads one block */
        (void)pthread_mutex_unlock(&s->mutex);
        (void)sched_yield();
        (void)pthread_mutex_lock(&s->mutex);
    }
    had = s->shards[shard].copy.path != NULL;
    if (had) {
        dp_cache_name(name, s->index->shards[shard].hash, false);
        *deleted = dp_shard_cache_drop(s->cache, name, &s->shards[shard].copy);
    }
    dp_data_file_close(&s->shards[shard].copy);
    (void)pthread_mutex_unlock(&s->mutex);
    return had;
}

/* ---- reading ---- */

void dp_shard_store_look(struct dp_shard_store *s, bool looks)
{
    s->looks = looks;
}

dp_status dp_shard_store_read(struct dp_shard_store *s, size_t shard, bool end, uint64_t at,
                              void *out, size_t bytes, size_t *got)
{
    bool copied = false;
    dp_status status;

    if (end && dp_shard_origin_remote(s->origin)) {
        *got = bytes;
        return read_end(s, shard, at, out, bytes);
    }
    if (s->looks && dp_shard_origin_remote(s->origin)) {
        *got = bytes;
        return dp_shard_origin_ask(s->origin, shard, at, out, bytes);
    }
    if (s->cache != NULL && !end) {
        DP_TRY(hold_copy(s, shard, &copied));
    }
    if (!copied) {
        return dp_shard_origin_read(s->origin, shard, at, out, bytes, got);
    }
    status = dp_data_file_take(&s->shards[shard].copy, (size_t)at, out, bytes, got);
    release_copy(s, shard);
    return status;
}

void dp_shard_store_read_ahead(struct dp_shard_store *s, size_t shard, uint64_t at, size_t bytes)
{
    if (s->cache == NULL) {
        dp_shard_origin_read_ahead(s->origin, shard, at, bytes);
    }
}
