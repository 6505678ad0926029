/*
 * file.h - writes files so that a full disk is noticed, and reads small ones whole.
 *
 * Every failed write is DP_ERR_WRITE and reports the path, the system's reason and what to do.
 */
#ifndef DP_BASE_FILES_FILE_H
#define DP_BASE_FILES_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/mem.h"
#include "base/status.h"

enum { DP_PATH_BYTES = 4096 };

enum { DP_HASH_TEXT = 33 }; /* 32 hexadecimal digits, as xxhsum prints them, and a NUL */

/* A file being written, through a buffer. */
struct dp_file {
    int fd;
    const char *path;      /* borrowed, for messages */
    unsigned char *memory; /* owned: holds the buffer; NULL: the buffer is borrowed */
    unsigned char *buffer;
    size_t used, capacity;     /* bytes of the buffer */
    bool direct;               /* direct I/O: the kernel writes from the buffer, past the page
                                * cache */
    struct XXH3_state_s *hash; /* owned: of all appended bytes */
};

/* Free bytes in the file system of `folder`; ULLONG_MAX where that is unknown. */
unsigned long long dp_file_free(const char *folder);

/* Reports that `path` cannot be written, for a reason of errno.h, and what to do. Returns
 * DP_ERR_WRITE. */
DP_CHECKED dp_status dp_file_fail(const char *path, int reason);

/* Creates or empties `path`. After success dp_file_finish() or dp_file_discard() must be called.
 * Errors: DP_ERR_WRITE, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_file_create(struct dp_file *file, const char *path);

/*
 * The same for a large file that will not be read soon. Where the file system can, it is written
 * past the page cache, which saves most of the processor's work (the pages, a copy, freeing them
 * when the file is deleted). Elsewhere it is written as any other file.
 *
 *   buffer  in  DP_FILE_BUFFER bytes of dp_mem_huge(), borrowed until the file is closed; NULL:
 *             allocates a smaller buffer of small pages, which is slower
 */
enum { DP_FILE_BUFFER = 2 * 1024 * 1024 - DP_MEM_ALIGN };
DP_CHECKED dp_status dp_file_create_large(struct dp_file *file, const char *path, void *buffer);

DP_CHECKED dp_status dp_file_append(struct dp_file *file, const void *data, size_t bytes);

/* These two calls replace an append. `*place` is memory for `bytes`, at most DP_FILE_PIECE, in the
 * buffer; the caller fills it, and dp_file_placed() appends it. */
enum { DP_FILE_PIECE = 64 * 1024 };
DP_CHECKED dp_status dp_file_place(struct dp_file *file, size_t bytes, void **place);
void dp_file_placed(struct dp_file *file, size_t bytes);

/*
 * Writes what is buffered, waits until it is on disk, and closes the file, also on error.
 *
 *   hash  out  the XXH3-128 hash of the content; NULL: not needed
 */
DP_CHECKED dp_status dp_file_finish(struct dp_file *file, char hash[DP_HASH_TEXT]);

/* Prints the hash of what an XXH3 state has seen so far. */
void dp_hash_print(const struct XXH3_state_s *state, char hash[DP_HASH_TEXT]);

/* Closes an unfinished file; what was written stays on disk. */
void dp_file_discard(struct dp_file *file);

/* Writes all bytes to an open descriptor; `path` is for the message. Errors: DP_ERR_WRITE. */
DP_CHECKED dp_status dp_file_write_all(int fd, const char *path, const void *data, size_t bytes);

/* Writes `path` whole: create, append, finish. */
DP_CHECKED dp_status dp_file_save(const char *path, const void *data, size_t bytes,
                                  char hash[DP_HASH_TEXT]);

/* Replaces `path` in one step: a reader sees the old content or the new, never a part. On error the
 * old content stays and nothing else is left. Other files of the folder are never touched. */
DP_CHECKED dp_status dp_file_replace(const char *path, const void *data, size_t bytes);

/* The same unless a file `other` is there by the time that the new content is on disk: then `path`
 * stays as it is, which is no error. NULL: always. */
DP_CHECKED dp_status dp_file_replace_unless(const char *path, const void *data, size_t bytes,
                                            const char *other);

/* Waits until the entries of a folder (new names, renames) are on disk. Errors: DP_ERR_WRITE. */
DP_CHECKED dp_status dp_file_sync_folder(const char *path);

/*
 * Opens a regular file for reading; the caller closes `*fd`. Anything else is refused immediately:
 * opening a pipe waits for a writer, which may never come, and each of several ranks would get a
 * part of the data.
 *
 *   bytes  out  the current length of the file
 *
 * Errors: DP_ERR_NOINPUT (cannot be opened), DP_ERR_DATA (not a regular file).
 */
DP_CHECKED dp_status dp_file_open(const char *path, int *fd, size_t *bytes);

/* Whether what a flag of the command line names, such as --init, is there and may be read. Its
 * reader would name the path alone. Errors: DP_ERR_NOINPUT. */
DP_CHECKED dp_status dp_file_of_flag(const char *flag, const char *path);

/* Reads up to `bytes` from an open file; fewer only at its end. `path` is for the message. Errors:
 * DP_ERR_DATA. */
DP_CHECKED dp_status dp_file_take(int fd, const char *path, void *data, size_t bytes, size_t *got);

/* The same from byte `at` on; where the file stands does not change, so that several threads may
 * read it at once. */
DP_CHECKED dp_status dp_file_take_at(int fd, const char *path, size_t at, void *data, size_t bytes,
                                     size_t *got);

/*
 * Reads a file whole.
 *
 *   most   refuses longer files
 *   text   out  owned by the caller (dp_free); with a NUL after the last byte
 *   bytes  out  without that NUL
 *
 * Errors: DP_ERR_NOINPUT (cannot be opened), DP_ERR_DATA (not a regular file, too long, cannot be
 * read), DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_file_read(const char *path, size_t most, char **text, size_t *bytes);

/* The folder that a file lies in: "runs/a/run.json" -> "runs/a", "run.json" -> ".",
 * "/run.json" -> "/". */
void dp_file_folder(const char *path, char folder[DP_PATH_BYTES]);

/* Writes "folder/name" to out[DP_PATH_BYTES]. Errors: DP_ERR_ARG if that is too long. */
DP_CHECKED dp_status dp_file_join(char *out, const char *folder, const char *name);

#endif
