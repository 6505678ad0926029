#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"

enum { BUFFER_BYTES = 256 * 1024 };

dp_status dp_file_write_all(int fd, const char *path, const void *data, size_t bytes)
{
    const unsigned char *rest = data;

    while (bytes > 0) {
        const ssize_t done = write(fd, rest, bytes);

        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done < 0) {
            return DP_FAIL(DP_ERR_WRITE, "%s: %s", path, strerror(errno));
        }
        rest += done;
        bytes -= (size_t)done;
    }
    return DP_OK;
}

/* Pipes, devices and some network file systems cannot be synchronised: that is no failure. */
static dp_status sync_file(int fd, const char *path)
{
    if (fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP && errno != ENOSYS) {
        return DP_FAIL(DP_ERR_WRITE, "%s: %s", path, strerror(errno));
    }
    return DP_OK;
}

dp_status dp_file_create(struct dp_file *file, const char *path)
{
    unsigned char *buffer = dp_zalloc(1, BUFFER_BYTES);
    int fd;

    if (buffer == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: no buffer to write through", path);
    }
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        dp_free(buffer);
        return DP_FAIL(DP_ERR_WRITE, "%s: %s", path, strerror(errno));
    }
    *file = (struct dp_file){.fd = fd, .path = path, .buffer = buffer};
    return DP_OK;
}

static dp_status flush(struct dp_file *file)
{
    const size_t used = file->used;

    file->used = 0;
    return dp_file_write_all(file->fd, file->path, file->buffer, used);
}

dp_status dp_file_append(struct dp_file *file, const void *data, size_t bytes)
{
    if (bytes > BUFFER_BYTES - file->used) {
        DP_TRY(flush(file));
    }
    if (bytes >= BUFFER_BYTES) {
        return dp_file_write_all(file->fd, file->path, data, bytes);
    }
    if (bytes > 0) {
        memcpy(file->buffer + file->used, data, bytes);
        file->used += bytes;
    }
    return DP_OK;
}

dp_status dp_file_finish(struct dp_file *file)
{
    dp_status status = flush(file);

    if (status == DP_OK) {
        status = sync_file(file->fd, file->path);
    }
    /* Network file systems report a full disk only here. */
    if (close(file->fd) != 0 && status == DP_OK) {
        status = DP_FAIL(DP_ERR_WRITE, "%s: %s", file->path, strerror(errno));
    }
    dp_free(file->buffer);
    *file = (struct dp_file){.fd = -1};
    return status;
}

void dp_file_discard(struct dp_file *file)
{
    if (file->fd >= 0) {
        (void)close(file->fd);
    }
    dp_free(file->buffer);
    *file = (struct dp_file){.fd = -1};
}

dp_status dp_file_save(const char *path, const void *data, size_t bytes)
{
    struct dp_file file;
    dp_status status;

    DP_TRY(dp_file_create(&file, path));
    status = dp_file_append(&file, data, bytes);
    if (status != DP_OK) {
        dp_file_discard(&file);
        return status;
    }
    return dp_file_finish(&file);
}

dp_status dp_file_sync_folder(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    dp_status status;

    if (fd < 0) {
        return DP_FAIL(DP_ERR_WRITE, "%s: %s", path, strerror(errno));
    }
    status = sync_file(fd, path);
    (void)close(fd);
    return status;
}

/* "runs/a/run.json" -> "runs/a", "run.json" -> ".", "/run.json" -> "/". */
static void folder_of(const char *path, char *folder)
{
    const char *slash = strrchr(path, '/');
    const size_t length = slash == NULL ? 0 : (size_t)(slash - path);

    if (slash == NULL) {
        (void)snprintf(folder, DP_PATH_BYTES, ".");
    } else {
        (void)snprintf(folder, DP_PATH_BYTES, "%.*s", length == 0 ? 1 : (int)length, path);
    }
}

dp_status dp_file_replace(const char *path, const void *data, size_t bytes)
{
    char temporary[DP_PATH_BYTES], folder[DP_PATH_BYTES];
    const int length = snprintf(temporary, sizeof(temporary), "%s.tmp-%ld", path, (long)getpid());
    dp_status status;

    if (length < 0 || length >= (int)sizeof(temporary)) {
        return DP_FAIL(DP_ERR_ARG, "%.80s...: the path is too long", path);
    }
    status = dp_file_save(temporary, data, bytes);
    if (status == DP_OK && rename(temporary, path) != 0) {
        status = DP_FAIL(DP_ERR_WRITE, "%s: %s", path, strerror(errno));
    }
    if (status != DP_OK) {
        (void)unlink(temporary);
        return status;
    }
    folder_of(path, folder);
    return dp_file_sync_folder(folder);
}

/* The file's length, or a reason why it has none that could be read. */
static dp_status measure(int fd, const char *path, size_t most, size_t *bytes)
{
    struct stat info;

    if (fstat(fd, &info) != 0) {
        return DP_FAIL(DP_ERR_DATA, "%s: %s", path, strerror(errno));
    }
    if (!S_ISREG(info.st_mode)) {
        return DP_FAIL(DP_ERR_DATA, "%s: not a regular file", path);
    }
    if ((unsigned long long)info.st_size > most) {
        return DP_FAIL(DP_ERR_DATA, "%s: %lld bytes, at most %zu were expected", path,
                       (long long)info.st_size, most);
    }
    *bytes = (size_t)info.st_size;
    return DP_OK;
}

/* Reads up to `bytes`; a file that shrinks meanwhile gives fewer. */
static dp_status read_all(int fd, const char *path, char *text, size_t bytes, size_t *got)
{
    *got = 0;
    while (*got < bytes) {
        const ssize_t done = read(fd, text + *got, bytes - *got);

        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done < 0) {
            return DP_FAIL(DP_ERR_DATA, "%s: %s", path, strerror(errno));
        }
        if (done == 0) {
            break;
        }
        *got += (size_t)done;
    }
    return DP_OK;
}

dp_status dp_file_read(const char *path, size_t most, char **text, size_t *bytes)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *content = NULL;
    size_t length = 0, got = 0;
    dp_status status;

    if (fd < 0) {
        return DP_FAIL(DP_ERR_NOINPUT, "%s: %s", path, strerror(errno));
    }
    status = measure(fd, path, most, &length);
    if (status == DP_OK) {
        content = dp_zalloc(1, length + 1);
        status = content != NULL ? read_all(fd, path, content, length, &got)
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
