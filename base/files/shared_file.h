/*
 * shared_file.h - whether this process can share memory through a file. Call it before a library
 * that does so and hangs on failure.
 */
#ifndef DP_BASE_FILES_SHARED_FILE_H
#define DP_BASE_FILES_SHARED_FILE_H

#include <stdbool.h>

/*
 * Whether a file of `bytes` > 0 can be made in the folder, and mapped. The folder must exist and be
 * writable, and its file system must have space, and an entry for one more file. The limits of this
 * process on files (ulimit -n), their size (-f) and the address space (-v) must allow it.
 *
 * It makes such a file, without content, and deletes it immediately; other jobs may take the space
 * afterwards.
 */
bool dp_shared_file_possible(const char *folder, unsigned long long bytes);

#endif
