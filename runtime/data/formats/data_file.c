#include "runtime/data/formats/data_file.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files/file.h"
#include "base/mem.h"

bool dp_data_file_exists(const char *dir, const char *name)
{
    char path[DP_PATH_BYTES];
    const int length = snprintf(path, sizeof(path), "%s/%s", dir, name);

    return length > 0 && (size_t)length < sizeof(path) && access(path, F_OK) == 0;
}

dp_status dp_data_file_missing(const char *dir, const char *name, const char *advice)
{
    char packed[NAME_MAX + 1];
    struct stat info;

    (void)snprintf(packed, sizeof(packed), "%s.gz", name);
    if (stat(dir, &info) != 0) {
        return DP_FAIL(DP_ERR_NOINPUT, "%s: no %s, nor such a folder: %s", dir, name, advice);
    }
    if (!S_ISDIR(info.st_mode)) {
        return DP_FAIL(DP_ERR_NOINPUT,
                       "%s: no %s, for it is a file: give a folder; unpack an archive first", dir,
                       name);
    }
    if (dp_data_file_exists(dir, packed)) {
        return DP_FAIL(DP_ERR_NOINPUT, "%s: no %s: unpack %s there", dir, name, packed);
    }
    return DP_FAIL(DP_ERR_NOINPUT, "%s: no %s: %s", dir, name, advice);
}

dp_status dp_data_file_open(struct dp_data_file *file, const char *dir, const char *name)
{
    char path[DP_PATH_BYTES];
    dp_status status;

    DP_TRY(dp_file_join(path, dir, name));
    file->path = dp_zalloc(strlen(path) + 1, 1);
    if (file->path == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: name", path);
    }
    memcpy(file->path, path, strlen(path) + 1);
    status = dp_file_open(path, &file->fd, &file->bytes);
    if (status != DP_OK) {
        dp_free(file->path);
        file->path = NULL;
    }
    return status;
}

dp_status dp_data_file_take(const struct dp_data_file *file, size_t at, void *out, size_t bytes,
                            size_t *got)
{
    return dp_file_take_at(file->fd, file->path, at, out, bytes, got);
}

dp_status dp_data_file_read(const struct dp_data_file *file, size_t at, void *out, size_t bytes)
{
    size_t got;

    DP_TRY(dp_file_take_at(file->fd, file->path, at, out, bytes, &got));
    if (got < bytes) {
        return DP_FAIL(DP_ERR_DATA, "%s: ends at byte %zu, %zu were there when the run began",
                       file->path, at + got, file->bytes);
    }
    return DP_OK;
}

void dp_data_file_close(struct dp_data_file *file)
{
    if (file->path != NULL) {
        (void)close(file->fd);
        dp_free(file->path);
    }
    *file = (struct dp_data_file){NULL, 0, 0};
}
