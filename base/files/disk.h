/*
 * disk.h - the system's calls that change files, with a place for a fault before each.
 *
 * They are POSIX's, and return and set errno as these do. While there are faults of files each call
 * of the process has a number, from 1, and the fault of that number happens (base/fault.h):
 *
 *   kill  the process is killed before the call
 *   torn  the process is killed after it; a write has then written half of its bytes
 *   full  from this call on there is no space (ENOSPC): this write is short, later ones fail; what
 *         needs no space works
 *   eio   this call fails alone (EIO)
 *
 * Otherwise a call costs a look at a pointer, and counts while it is under way.
 */
#ifndef DP_BASE_FILES_DISK_H
#define DP_BASE_FILES_DISK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/fault.h"

/* From now on calls are numbered and these faults happen to those of this rank. first: borrowed;
 * NULL: none, and calls are not numbered. No call may be in progress. */
void dp_disk_set_faults(const struct dp_fault *first, int rank);

/* name, whether it fails on a full disk */
#define DP_FILE_CALLS_OF(X) \
    X(CREATE, true)         \
    X(WRITE, true)          \
    X(SYNC, false)          \
    X(RENAME, true)         \
    X(UNLINK, false)        \
    X(MKDIR, true)          \
    X(RMDIR, false)         \
    X(SYMLINK, true)

enum dp_file_call {
#define X(name, space) DP_FILE_CALL_##name,
    DP_FILE_CALLS_OF(X)
#undef X
        DP_FILE_CALLS
};

/* Calls since the faults were set: of each kind, and of all. */
uint64_t dp_disk_calls(uint64_t of[DP_FILE_CALLS]);

/* Calls that have not returned yet: with a slow disk, of any thread. */
int dp_disk_under_way(void);

/* Opens for writing, with O_CREAT. */
int dp_disk_create(const char *path, int flags);
ssize_t dp_disk_write(int fd, const void *data, size_t bytes);
int dp_disk_sync(int fd);
int dp_disk_rename(const char *from, const char *to);
int dp_disk_rename_at(int from_folder, const char *from, int to_folder, const char *to);
int dp_disk_unlink(const char *path);
int dp_disk_unlink_at(int folder, const char *name);
int dp_disk_mkdir(const char *path);
int dp_disk_rmdir(const char *path);
int dp_disk_symlink(const char *target, const char *path);

#endif
