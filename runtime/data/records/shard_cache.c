#define _GNU_SOURCE /* fallocate */
#include "runtime/data/records/shard_cache.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/files/disk.h"
#include "base/files/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/system/job_name.h"

/* What a copy is called while it is made. */
#define PART ".part"

/* Whose lock is held while there is made room for a copy, and that is reserved. */
#define ROOM "room"

struct dp_shard_cache {
    const char *dir;        /* borrowed */
    uint64_t bytes;         /* the budget; 0: by what is free */
    struct dp_lock *speaks; /* owned; see dp_shard_cache_speaks() */
};

enum {
    DIGITS = DP_HASH_TEXT - 1,
    JOB_NAME = 100,
    WAIT_NS = 20000000, /* between two looks whether another has made a copy */
    ROOM_WAIT_NS = 1000000,
    FRESH_S = 10,      /* age of a text that is taken as it is */
    LEFT_OVER_S = 3600 /* after which half a copy that nobody makes is deleted */
};

/* ---- the folder ---- */

dp_status dp_shard_cache_open(const char *dir, uint64_t bytes, struct dp_shard_cache **out)
{
    struct dp_shard_cache *cache;
    struct stat info;

    if (access(dir, F_OK) != 0 && dp_disk_mkdir(dir) != 0 && errno != EEXIST) {
        return dp_file_fail(dir, errno);
    }
    if (stat(dir, &info) != 0 || !S_ISDIR(info.st_mode)) {
        return DP_FAIL(DP_ERR_WRITE, "data.local_cache: %s is no folder", dir);
    }
    cache = dp_zalloc(1, sizeof(*cache));
    if (cache == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: cache of shards", dir);
    }
    *cache = (struct dp_shard_cache){.dir = dir, .bytes = bytes};
    *out = cache;
    return DP_OK;
}

void dp_shard_cache_close(struct dp_shard_cache *cache)
{
    if (cache != NULL) {
        dp_lock_release(cache->speaks);
        dp_free(cache);
    }
}

/* Others may write to $TMPDIR, and must not give us what we read. */
dp_status dp_shard_cache_own(char dir[DP_PATH_BYTES])
{
    const char *temporary = getenv("TMPDIR");
    char name[64];
    struct stat info;

    (void)snprintf(name, sizeof(name), "lockstep-cache-%lu", (unsigned long)geteuid());
    DP_TRY(dp_file_join(dir, temporary != NULL && temporary[0] == '/' ? temporary : "/tmp", name));
    if (access(dir, F_OK) != 0 && dp_disk_mkdir(dir) != 0 && errno != EEXIST) {
        return dp_file_fail(dir, errno);
    }
    if (lstat(dir, &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid() ||
        ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0 && chmod(dir, S_IRWXU) != 0)) {
        return DP_FAIL(DP_ERR_WRITE,
                       "%s: belongs to somebody else, or is no folder: set data.local_cache", dir);
    }
    return DP_OK;
}

void dp_cache_name(char name[DP_CACHE_NAME], const char *hash, bool end)
{
    (void)snprintf(name, DP_CACHE_NAME, "%.*s%s", DIGITS, hash, end ? ".end" : ".rec");
}

/* ---- room ---- */

/* A file of the folder. */
struct copy {
    char name[DP_CACHE_NAME + sizeof(PART)];
    struct timespec used;
    uint64_t bytes;
};

/* Whether a name is that of a copy, or of half a one. */
static bool is_copy(const char *name, bool *half)
{
    const char *end = name + DIGITS;

    if (strspn(name, "0123456789abcdef") != (size_t)DIGITS ||
        (strncmp(end, ".rec", 4) != 0 && strncmp(end, ".end", 4) != 0)) {
        return false;
    }
    *half = strcmp(end + 4, PART) == 0;
    return *half || end[4] == '\0';
}

static bool is_held(const struct dp_shard_cache *cache, const char *name)
{
    char path[DP_PATH_BYTES];

    (void)snprintf(path, sizeof(path), "%s/%.*s.lock", cache->dir, DIGITS + 4, name);
    return dp_lock_held(path);
}

/* What a file takes: of half a copy also what is reserved for the rest. */
static uint64_t taken_by(const struct stat *info, bool half)
{
    const uint64_t size = (uint64_t)info->st_size, reserved = (uint64_t)info->st_blocks * 512;

    return half && reserved > size ? reserved : size;
}

/* The copy that was not used for longest, and how much all have. What a process left that was
 * killed is deleted. */
static uint64_t look(const struct dp_shard_cache *cache, struct copy *oldest)
{
    DIR *entries = opendir(cache->dir);
    const struct dirent *entry;
    uint64_t bytes = 0;
    struct stat info;
    bool half;

    oldest->name[0] = '\0';
    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        if (!is_copy(entry->d_name, &half) ||
            fstatat(dirfd(entries), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
            continue;
        }
        if (half && time(NULL) - info.st_mtim.tv_sec > LEFT_OVER_S &&
            !is_held(cache, entry->d_name)) {
            (void)dp_disk_unlink_at(dirfd(entries), entry->d_name);
            continue;
        }
        bytes += taken_by(&info, half);
        if (!half && (oldest->name[0] == '\0' || info.st_mtim.tv_sec < oldest->used.tv_sec ||
                      (info.st_mtim.tv_sec == oldest->used.tv_sec &&
                       info.st_mtim.tv_nsec < oldest->used.tv_nsec))) {
            (void)snprintf(oldest->name, sizeof(oldest->name), "%.*s", DIGITS + 4, entry->d_name);
            oldest->used = info.st_mtim;
            oldest->bytes = (uint64_t)info.st_size;
        }
    }
    if (entries != NULL) {
        (void)closedir(entries);
    }
    return bytes;
}

static uint64_t budget(const struct dp_shard_cache *cache, uint64_t held)
{
    const uint64_t left = dp_file_free(cache->dir);

    return cache->bytes > 0 ? cache->bytes
                            : (left < UINT64_MAX - held ? left + held : left) / 10 * 9;
}

static void drop(const struct dp_shard_cache *cache, const char *name)
{
    char path[DP_PATH_BYTES];

    if (snprintf(path, sizeof(path), "%s/%s", cache->dir, name) < (int)sizeof(path)) {
        (void)dp_disk_unlink(path);
    }
}

bool dp_shard_cache_drop(const struct dp_shard_cache *cache, const char *name,
                         const struct dp_data_file *copy)
{
    char path[DP_PATH_BYTES];
    struct stat ours, there;

    return snprintf(path, sizeof(path), "%s/%s", cache->dir, name) < (int)sizeof(path) &&
           fstat(copy->fd, &ours) == 0 && stat(path, &there) == 0 && ours.st_dev == there.st_dev &&
           ours.st_ino == there.st_ino && dp_disk_unlink(path) == 0;
}

/* Deletes copies until `bytes` more fit. */
static void make_room(const struct dp_shard_cache *cache, uint64_t bytes)
{
    struct copy oldest;
    uint64_t held = look(cache, &oldest);
    const uint64_t most = budget(cache, held);

    while (held > 0 && bytes + held > most && oldest.name[0] != '\0') {
        drop(cache, oldest.name);
        DP_DEBUG("%s: the cache drops %s of %llu bytes", cache->dir, oldest.name,
                 (unsigned long long)oldest.bytes);
        held = look(cache, &oldest);
    }
}

/* ---- a copy ---- */

/* Opens a file of `bytes` if it is there, and marks it as used. */
static bool find(const struct dp_shard_cache *cache, const char *name, uint64_t bytes,
                 struct dp_data_file *file)
{
    struct dp_log_capture capture;
    dp_status status = DP_ERR_NOINPUT;

    if (!dp_data_file_exists(cache->dir, name)) {
        return false;
    }
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = dp_data_file_open(file, cache->dir, name);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    if (status != DP_OK) {
        return false;
    }
    if (file->bytes != bytes) {
        dp_data_file_close(file);
        return false;
    }
    (void)futimens(file->fd, NULL);
    return true;
}

/* Locks a name, if nobody else has. */
static dp_status try_lock(const struct dp_shard_cache *cache, const char *name,
                          struct dp_lock **lock)
{
    char path[DP_PATH_BYTES];
    struct dp_log_capture capture;
    dp_status status;

    *lock = NULL;
    if (snprintf(path, sizeof(path), "%s/%s.lock", cache->dir, name) >= (int)sizeof(path)) {
        return DP_FAIL(DP_ERR_WRITE, "data.local_cache: too long a name");
    }
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = dp_lock_take(path, "a shard in data.local_cache", "wait for it", lock);
    dp_log_capture_end(&capture, status == DP_ERR_USAGE ? DP_LOG_DROP : DP_LOG_PRINT);
    return status == DP_ERR_USAGE ? DP_OK : status;
}

bool dp_shard_cache_speaks(struct dp_shard_cache *cache)
{
    char job[JOB_NAME], name[JOB_NAME + 8];
    struct dp_log_capture capture;
    dp_status status;

    dp_job_name(job, sizeof(job));
    for (char *c = job; *c != '\0'; c++) {
        *c = (char)(isalnum((unsigned char)*c) ? *c : '-');
    }
    (void)snprintf(name, sizeof(name), "job-%s", job);
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = try_lock(cache, name, &cache->speaks);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    return status != DP_OK || cache->speaks != NULL; /* better twice than never */
}

/* Creates the file of half a copy, and reserves what the rest will take: others that look for room
 * meanwhile count it. One at a time, or two would find the same room. */
static dp_status begin(const struct dp_shard_cache *cache, const struct dp_cache_want *want,
                       const char *part, struct dp_file *file)
{
    const struct timespec pause = {.tv_nsec = ROOM_WAIT_NS};
    struct dp_lock *lock = NULL;
    dp_status status = try_lock(cache, ROOM, &lock);

    while (status == DP_OK && lock == NULL) {
        (void)nanosleep(&pause, NULL);
        status = try_lock(cache, ROOM, &lock);
    }
    DP_TRY(status);
    make_room(cache, want->bytes);
    status = dp_file_create(file, part);
    if (status == DP_OK) {
        /* Where the file system cannot, the copy counts as it grows. */
        (void)fallocate(file->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)want->bytes);
    }
    dp_lock_release(lock);
    return status;
}

static dp_status check(const struct dp_cache_want *want, const char *hash)
{
    return want->hash == NULL || strcmp(want->hash, hash) == 0
               ? DP_OK
               : DP_FAIL(DP_ERR_DATA,
                         "%s: its hash is another than in index.json: copy it again, or pack again",
                         want->origin);
}

/* Fills half a copy, and opens it before it has its name: from then on others may delete it. */
static dp_status fill(const struct dp_shard_cache *cache, const struct dp_cache_want *want,
                      const char *name, struct dp_file *half, struct dp_data_file *copy)
{
    char hash[DP_HASH_TEXT];
    dp_status status = want->fill(want->context, half);

    if (status != DP_OK) {
        dp_file_discard(half);
        return status;
    }
    DP_TRY(dp_file_finish(half, hash));
    DP_TRY(check(want, hash));
    return find(cache, name, want->bytes, copy)
               ? DP_OK
               : DP_FAIL(DP_ERR_WRITE, "%s: a copy of %s is gone, or of another length", cache->dir,
                         want->origin);
}

/* With the lock. */
static dp_status make(const struct dp_shard_cache *cache, const struct dp_cache_want *want,
                      struct dp_data_file *copy)
{
    char part[DP_PATH_BYTES], path[DP_PATH_BYTES], name[DP_CACHE_NAME + sizeof(PART)];
    struct dp_file half;
    dp_status status;

    (void)snprintf(name, sizeof(name), "%s" PART, want->name);
    DP_TRY(dp_file_join(part, cache->dir, name));
    DP_TRY(dp_file_join(path, cache->dir, want->name));
    DP_TRY(begin(cache, want, part, &half));
    status = fill(cache, want, name, &half, copy);
    if (status == DP_OK && dp_disk_rename(part, path) != 0) {
        status = dp_file_fail(path, errno);
    }
    if (status == DP_OK) {
        copy->path[strlen(copy->path) - strlen(PART)] = '\0';
    } else {
        dp_data_file_close(copy);
        (void)dp_disk_unlink(part);
    }
    return status;
}

dp_status dp_shard_cache_get(const struct dp_shard_cache *cache, const struct dp_cache_want *want,
                             struct dp_data_file *file)
{
    const struct timespec pause = {.tv_nsec = WAIT_NS};
    struct dp_lock *lock;
    dp_status status;

    while (!find(cache, want->name, want->bytes, file)) {
        DP_TRY(try_lock(cache, want->name, &lock));
        if (lock == NULL) {
            (void)nanosleep(&pause, NULL);
            continue;
        }
        /* Another may have made it between the look and the lock. */
        status = find(cache, want->name, want->bytes, file) ? DP_OK : make(cache, want, file);
        dp_lock_release(lock);
        return status;
    }
    return DP_OK;
}

/* ---- a text ---- */

/* Reads it if it is there, and fresh. */
static bool find_text(const char *path, char **text, size_t *bytes)
{
    struct dp_log_capture capture;
    struct stat info;
    dp_status status;

    if (lstat(path, &info) != 0 || !S_ISREG(info.st_mode) ||
        time(NULL) - info.st_mtim.tv_sec > FRESH_S || info.st_mtim.tv_sec - time(NULL) > FRESH_S) {
        return false;
    }
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = dp_file_read(path, (size_t)info.st_size, text, bytes);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    return status == DP_OK;
}

/* For others; it is no harm where that fails. */
static void keep_text(const char *path, const char *text, size_t bytes)
{
    struct dp_log_capture capture;

    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    (void)!dp_file_replace(path, text, bytes);
    dp_log_capture_end(&capture, DP_LOG_DROP);
}

dp_status dp_shard_cache_text(const struct dp_shard_cache *cache, const char *what,
                              dp_status (*fetch)(void *context, char **text, size_t *bytes),
                              void *context, char **text, size_t *bytes)
{
    const XXH128_hash_t hash = XXH3_128bits(what, strlen(what));
    const struct timespec pause = {.tv_nsec = WAIT_NS};
    struct dp_lock *lock = NULL;
    char name[DP_CACHE_NAME], path[DP_PATH_BYTES];
    dp_status status = DP_OK;

    (void)snprintf(name, sizeof(name), "%016" PRIx64 "%016" PRIx64 ".idx", hash.high64, hash.low64);
    DP_TRY(dp_file_join(path, cache->dir, name));
    while (!find_text(path, text, bytes)) {
        struct dp_log_capture capture;
        dp_log_capture_begin(&capture, DP_LOG_ERROR);
        status = try_lock(cache, name, &lock);
        dp_log_capture_end(&capture, DP_LOG_DROP);
        if (status != DP_OK || lock != NULL) {
            break;
        }
        (void)nanosleep(&pause, NULL);
    }
    if (lock == NULL && status == DP_OK) {
        return DP_OK;
    }
    if (lock == NULL || !find_text(path, text, bytes)) {
        status = fetch(context, text, bytes);
        if (status == DP_OK && lock != NULL) {
            keep_text(path, *text, *bytes);
        }
    } else {
        status = DP_OK;
    }
    dp_lock_release(lock);
    return status;
}
