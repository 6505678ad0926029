#define _GNU_SOURCE /* O_DIRECT */

#include "base/files/file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/files/disk.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/trace.h"

/* In direct I/O addresses and lengths are multiples of ALIGN, and a write waits for the disk, so it
 * is a larger one. */
enum { BUFFER_BYTES = 256 * 1024, LARGE_BYTES = 1024 * 1024, ALIGN = 4096, PIECE = 16 << 20 };

unsigned long long dp_file_free(const char *folder)
{
    struct statvfs info;

    return statvfs(folder, &info) == 0 ? (unsigned long long)info.f_bavail * info.f_frsize
                                       : ULLONG_MAX;
}

dp_status dp_file_fail(const char *path, int reason)
{
    const bool full = reason == ENOSPC || reason == EDQUOT || reason == EFBIG;

    return DP_FAIL(DP_ERR_WRITE, "cannot write %s: %s; %schoose another folder", path,
                   strerror(reason), full ? "make room there, or " : "");
}

dp_status dp_file_write_all(int fd, const char *path, const void *data, size_t bytes)
{
    const unsigned char *rest = data;

    while (bytes > 0) {
        const ssize_t done = dp_disk_write(fd, rest, bytes);

        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done < 0) {
            return dp_file_fail(path, errno);
        }
        rest += done;
        bytes -= (size_t)done;
    }
    return DP_OK;
}

/* Pipes, devices and some network file systems cannot be synchronised: that is no failure. */
static dp_status sync_file(int fd, const char *path)
{
    if (dp_disk_sync(fd) != 0 && errno != EINVAL && errno != ENOTSUP && errno != ENOSYS) {
        return dp_file_fail(path, errno);
    }
    return DP_OK;
}

/* Sets all but the descriptor. `memory` is a borrowed buffer of `bytes`; NULL: allocates one. */
static dp_status prepare(struct dp_file *file, const char *path, unsigned char *memory,
                         size_t bytes)
{
    struct dp_file made = {.fd = -1, .path = path};

    made.memory = memory == NULL ? dp_zalloc(1, bytes) : NULL;
    memory = memory == NULL ? made.memory : memory;
    made.hash = XXH3_createState();
    if (memory == NULL || made.hash == NULL) {
        dp_file_discard(&made);
        return DP_FAIL(DP_ERR_NOMEM, "%s: no buffer to write through", path);
    }
    made.buffer = memory + (ALIGN - (uintptr_t)memory % ALIGN);
    made.capacity = (bytes - (size_t)(made.buffer - memory)) / ALIGN * ALIGN;
    (void)XXH3_128bits_reset(made.hash);
    *file = made;
    return DP_OK;
}

/* Gives a prepared file the descriptor from open(), or releases it if that failed. */
static dp_status begin(struct dp_file *file, int fd)
{
    const int reason = errno;
    const char *path = file->path;

    file->fd = fd;
    if (fd < 0) {
        dp_file_discard(file);
        return dp_file_fail(path, reason);
    }
    return DP_OK;
}

enum { CREATES = O_WRONLY | O_CLOEXEC };

dp_status dp_file_create(struct dp_file *file, const char *path)
{
    DP_TRY(prepare(file, path, NULL, BUFFER_BYTES + ALIGN));
    return begin(file, dp_disk_create(path, CREATES | O_TRUNC));
}

dp_status dp_file_create_large(struct dp_file *file, const char *path, void *capacity)
{
    int fd;

    DP_TRY(prepare(file, path, capacity, capacity != NULL ? DP_FILE_BUFFER : LARGE_BYTES + ALIGN));
    fd = dp_disk_create(path, CREATES | O_TRUNC | O_DIRECT);
    file->direct = fd >= 0;
    if (fd < 0 && errno == EINVAL) { /* this file system has no direct I/O */
        fd = dp_disk_create(path, CREATES | O_TRUNC);
    }
    return begin(file, fd);
}

/* From here on writes through the page cache. */
static void leave_direct(struct dp_file *file)
{
    const int flags = fcntl(file->fd, F_GETFL);

    (void)fcntl(file->fd, F_SETFL, flags & ~O_DIRECT);
    file->direct = false;
}

/* Writes whole pages by direct I/O, and moves the rest to the front. If the file system refuses, or
 * writes only a part, the rest is written through the page cache. */
static void flush_direct(struct dp_file *file)
{
    const size_t whole = file->used - file->used % ALIGN;
    const ssize_t done = whole > 0 ? dp_disk_write(file->fd, file->buffer, whole) : 0;

    if (done < 0 || (size_t)done < whole) {
        leave_direct(file);
    }
    if (done > 0) {
        file->used -= (size_t)done;
        memmove(file->buffer, file->buffer + done, file->used);
    }
}

static dp_status flush(struct dp_file *file)
{
    if (file->direct) {
        flush_direct(file);
    }
    if (!file->direct) {
        const size_t used = file->used;

        file->used = 0;
        return dp_file_write_all(file->fd, file->path, file->buffer, used);
    }
    return DP_OK;
}

dp_status dp_file_place(struct dp_file *file, size_t bytes, void **place)
{
    assert(bytes <= DP_FILE_PIECE);
    if (bytes > file->capacity - file->used) {
        DP_TRY(flush(file));
    }
    *place = file->buffer + file->used;
    return DP_OK;
}

void dp_file_placed(struct dp_file *file, size_t bytes)
{
    (void)XXH3_128bits_update(file->hash, file->buffer + file->used, bytes);
    file->used += bytes;
}

dp_status dp_file_append(struct dp_file *file, const void *data, size_t bytes)
{
    const unsigned char *rest = data;

    while (bytes > 0) {
        const size_t now = bytes < DP_FILE_PIECE ? bytes : DP_FILE_PIECE;
        void *place;

        DP_TRY(dp_file_place(file, now, &place));
        memcpy(place, rest, now);
        dp_file_placed(file, now);
        rest += now;
        bytes -= now;
    }
    return DP_OK;
}

void dp_hash_print(const struct XXH3_state_s *state, char hash[DP_HASH_TEXT])
{
    const XXH128_hash_t value = XXH3_128bits_digest(state);

    (void)snprintf(hash, DP_HASH_TEXT, "%016" PRIx64 "%016" PRIx64, (uint64_t)value.high64,
                   (uint64_t)value.low64);
}

dp_status dp_file_finish(struct dp_file *file, char hash[DP_HASH_TEXT])
{
    dp_status status = flush(file);

    if (status == DP_OK && file->direct) {
        leave_direct(file); /* less than a page is left */
        status = flush(file);
    }
    if (status == DP_OK) {
        status = sync_file(file->fd, file->path);
    }
    /* Network file systems report a full disk only here. */
    if (close(file->fd) != 0 && status == DP_OK) {
        status = dp_file_fail(file->path, errno);
    }
    if (hash != NULL) {
        dp_hash_print(file->hash, hash);
    }
    file->fd = -1;
    dp_file_discard(file);
    return status;
}

void dp_file_discard(struct dp_file *file)
{
    if (file->fd >= 0) {
        (void)close(file->fd);
    }
    (void)XXH3_freeState(file->hash);
    dp_free(file->memory);
    *file = (struct dp_file){.fd = -1};
}

static dp_status fill(struct dp_file *file, const void *data, size_t bytes, char hash[DP_HASH_TEXT])
{
    const dp_status status = dp_file_append(file, data, bytes);

    if (status != DP_OK) {
        dp_file_discard(file);
        return status;
    }
    return dp_file_finish(file, hash);
}

dp_status dp_file_save(const char *path, const void *data, size_t bytes, char hash[DP_HASH_TEXT])
{
    struct dp_file file;

    DP_TRY(dp_file_create(&file, path));
    return fill(&file, data, bytes, hash);
}

dp_status dp_file_sync_folder(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    dp_status status;

    if (fd < 0) {
        return dp_file_fail(path, errno);
    }
    status = sync_file(fd, path);
    (void)close(fd);
    return status;
}

void dp_file_folder(const char *path, char folder[DP_PATH_BYTES])
{
    const char *slash = strrchr(path, '/');
    const size_t length = slash == NULL ? 0 : (size_t)(slash - path);

    if (slash == NULL) {
        (void)snprintf(folder, DP_PATH_BYTES, ".");
    } else {
        (void)snprintf(folder, DP_PATH_BYTES, "%.*s", length == 0 ? 1 : (int)length, path);
    }
}

/* Creates a file next to `path` under a name that does not exist yet: an existing one may be
 * another process's, or a link to a file that must not be emptied. Returns a descriptor, or -1 and
 * errno. */
static int open_beside(const char *path, char name[DP_PATH_BYTES])
{
    enum { NAMES = 100 };
    int fd = -1, length;

    errno = EEXIST;
    for (int i = 0; i < NAMES && fd < 0 && errno == EEXIST; i++) {
        length = snprintf(name, DP_PATH_BYTES, "%s.tmp-%ld-%d", path, (long)getpid(), i);
        if (length >= DP_PATH_BYTES) {
            errno = ENAMETOOLONG;
        } else {
            fd = dp_disk_create(name, CREATES | O_EXCL);
        }
    }
    return fd;
}

dp_status dp_file_replace(const char *path, const void *data, size_t bytes)
{
    return dp_file_replace_unless(path, data, bytes, NULL);
}

dp_status dp_file_replace_unless(const char *path, const void *data, size_t bytes,
                                 const char *other)
{
    char temporary[DP_PATH_BYTES] = "", folder[DP_PATH_BYTES];
    struct dp_file file;
    dp_status status;

    DP_TRY(prepare(&file, path, NULL, BUFFER_BYTES + ALIGN));
    DP_TRY(begin(&file, open_beside(path, temporary)));
    status = fill(&file, data, bytes, NULL);
    if (status == DP_OK && other != NULL && access(other, F_OK) == 0) {
        (void)dp_disk_unlink(temporary);
        return DP_OK;
    }
    if (status == DP_OK && dp_disk_rename(temporary, path) != 0) {
        status = dp_file_fail(path, errno);
    }
    if (status != DP_OK) {
        (void)dp_disk_unlink(temporary);
        return status;
    }
    dp_file_folder(path, folder);
    return dp_file_sync_folder(folder);
}

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)                    ? "a folder"
           : S_ISFIFO(mode)                 ? "a pipe"
           : S_ISCHR(mode) || S_ISBLK(mode) ? "a device"
                                            : "not a file";
}

dp_status dp_file_open(const char *path, int *fd, size_t *bytes)
{
    /* O_NONBLOCK is for pipes and devices: it changes nothing for files. */
    const int file = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat info;
    dp_status status = DP_OK;

    if (file < 0) {
        return DP_FAIL(DP_ERR_NOINPUT, "%s: %s", path, strerror(errno));
    }
    if (fstat(file, &info) != 0) {
        status = DP_FAIL(DP_ERR_DATA, "%s: %s", path, strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        status = DP_FAIL(DP_ERR_DATA, "%s: %s, but a regular file is needed", path,
                         kind_of(info.st_mode));
    }
    if (status != DP_OK) {
        (void)close(file);
        return status;
    }
    *fd = file;
    *bytes = (size_t)info.st_size;
    return DP_OK;
}

dp_status dp_file_of_flag(const char *flag, const char *path)
{
    return access(path, R_OK) == 0
               ? DP_OK
               : DP_FAIL(DP_ERR_NOINPUT, "%s %s: %s", flag, path, strerror(errno));
}

/* at < 0: from where the file stands. Long files are read in pieces, so that it is seen that a slow
 * disk works. */
static dp_status take(int fd, const char *path, off_t at, void *data, size_t bytes, size_t *got)
{
    *got = 0;
    while (*got < bytes) {
        char *to = (char *)data + *got;
        const size_t left = bytes - *got < PIECE ? bytes - *got : PIECE;
        const ssize_t done = at < 0 ? read(fd, to, left) : pread(fd, to, left, at + (off_t)*got);

        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done < 0) {
            return DP_FAIL(DP_ERR_DATA, "%s: cannot be read: %s", path, strerror(errno));
        }
        if (done == 0) {
            break;
        }
        *got += (size_t)done;
        if (bytes > PIECE) {
            dp_trace_beat();
        }
    }
    return DP_OK;
}

dp_status dp_file_take(int fd, const char *path, void *data, size_t bytes, size_t *got)
{
    return take(fd, path, -1, data, bytes, got);
}

dp_status dp_file_take_at(int fd, const char *path, size_t at, void *data, size_t bytes,
                          size_t *got)
{
    return take(fd, path, (off_t)at, data, bytes, got);
}

dp_status dp_file_read(const char *path, size_t most, char **text, size_t *bytes)
{
    char *content = NULL;
    size_t length, got = 0;
    dp_status status;
    int fd;

    DP_TRY(dp_file_open(path, &fd, &length));
    if (length > most) {
        status =
            DP_FAIL(DP_ERR_DATA, "%s: %zu bytes, at most %zu were expected", path, length, most);
    } else {
        content = dp_zalloc(1, length + 1);
        status = content != NULL ? dp_file_take(fd, path, content, length, &got)
                                 : DP_FAIL(DP_ERR_NOMEM, "%s: %zu bytes", path, length);
    }
    (void)close(fd);
    if (status != DP_OK) {
        dp_free(content);
        return status;
    }
    content[got] = '\0';
    *text = content;
    *bytes = got;
    return DP_OK;
}

dp_status dp_file_join(char *out, const char *folder, const char *name)
{
    const int length = snprintf(out, DP_PATH_BYTES, "%s/%s", folder, name);

    if (length < 0 || length >= DP_PATH_BYTES) {
        return DP_FAIL(DP_ERR_ARG, "%.80s...: the path is too long", folder);
    }
    return DP_OK;
}
