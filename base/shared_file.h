/*
 * shared_file.h - whether this process can share memory by way of a file. Whoever asks a library
 * to do so asks here before, where the library does not come back from a failure.
 */
#ifndef DP_BASE_SHARED_FILE_H
#define DP_BASE_SHARED_FILE_H

#include <stdbool.h>

/*
 * Whether a file of `bytes` > 0 can be made in the folder, and mapped: the folder is there and may
 * be written to, its file system has the room and an entry for one more file, and the limits of
 * this process on files (ulimit -n), their size (-f) and the address space (-v) allow it.
 *
 * It makes such a file, without content, and deletes it at once; other jobs may take the room
 * afterwards.
 */
bool dp_shared_file_possible(const char *folder, unsigned long long bytes);

#endif
