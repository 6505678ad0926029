/*
 * file.h - files written so that a full disk is noticed, and small ones read whole.
 *
 * Every failed write is DP_ERR_WRITE and names the path and the system's reason.
 */
#ifndef DP_BASE_FILE_H
#define DP_BASE_FILE_H

#include <stddef.h>

#include "base/status.h"

enum { DP_PATH_BYTES = 4096 };

/* A file being written, through a buffer. */
struct dp_file {
    int fd;
    const char *path; /* borrowed, for messages */
    unsigned char *buffer;
    size_t used;
};

/* Creates or empties `path`. After success dp_file_finish() or dp_file_discard() must be called.
 * Errors: DP_ERR_WRITE, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_file_create(struct dp_file *file, const char *path);

DP_CHECKED dp_status dp_file_append(struct dp_file *file, const void *data, size_t bytes);

/* Writes what is buffered, waits until the disk has it, and closes the file, also on error. */
DP_CHECKED dp_status dp_file_finish(struct dp_file *file);

/* Closes an unfinished file and leaves on disk what was written of it. */
void dp_file_discard(struct dp_file *file);

/* Writes all bytes to an open descriptor; `path` is for the message. Errors: DP_ERR_WRITE. */
DP_CHECKED dp_status dp_file_write_all(int fd, const char *path, const void *data, size_t bytes);

/* Writes `path` whole: create, append, finish. */
DP_CHECKED dp_status dp_file_save(const char *path, const void *data, size_t bytes);

/* Replaces `path` in one step: a reader sees the old content or the new, never a part. On error
 * the old content stays and nothing else is left behind. */
DP_CHECKED dp_status dp_file_replace(const char *path, const void *data, size_t bytes);

/* Waits until the entries of a folder (new names, renames) are on disk. Errors: DP_ERR_WRITE. */
DP_CHECKED dp_status dp_file_sync_folder(const char *path);

/*
 * Reads a file whole.
 *
 *   most   refuses longer files
 *   text   out  owned by the caller (dp_free); a NUL stands behind the last byte
 *   bytes  out  without that NUL
 *
 * Errors: DP_ERR_NOINPUT (cannot be opened), DP_ERR_DATA (too long, cannot be read), DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_file_read(const char *path, size_t most, char **text, size_t *bytes);

/* Writes "folder/name" to out[DP_PATH_BYTES]. Errors: DP_ERR_ARG if that is too long. */
DP_CHECKED dp_status dp_file_join(char *out, const char *folder, const char *name);

#endif
