/*
 * data_file.h - a file of a data set: open from the source's open() to its close(), so that the
 * file that was checked is the one that is read, and read at any place by several threads at once.
 */
#ifndef DP_RUNTIME_DATA_FORMATS_DATA_FILE_H
#define DP_RUNTIME_DATA_FORMATS_DATA_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Begins with zeros. */
struct dp_data_file {
    char *path; /* owned; NULL: it is not open */
    int fd;
    size_t bytes; /* when it was opened */
};

/* Whether there is an entry of that name. */
bool dp_data_file_exists(const char *dir, const char *name);

/* Reports that a file is missing in `dir`, and what to do about it; or that there is no such
 * folder. Returns DP_ERR_NOINPUT. */
DP_CHECKED dp_status dp_data_file_missing(const char *dir, const char *name, const char *advice);

/* Opens dir/name. Errors: DP_ERR_NOINPUT (not there, or it cannot be opened), DP_ERR_DATA (no
 * regular file), DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_data_file_open(struct dp_data_file *file, const char *dir,
                                       const char *name);

/* Reads `bytes` from byte `at` on. Errors: DP_ERR_DATA (it cannot be read, or ends before). */
DP_CHECKED dp_status dp_data_file_read(const struct dp_data_file *file, size_t at, void *out,
                                       size_t bytes);

/* The same; where the file ends before, it is no error, and `*got` is less. */
DP_CHECKED dp_status dp_data_file_take(const struct dp_data_file *file, size_t at, void *out,
                                       size_t bytes, size_t *got);

void dp_data_file_close(struct dp_data_file *file);

#endif
