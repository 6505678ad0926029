/*
 * manifest.h - a list of files with the XXH3-128 hash of each, to detect torn or altered files.
 * "xxhsum -c MANIFEST" reads it too.
 */
#ifndef DP_RUNTIME_CHECKPOINT_MANIFEST_H
#define DP_RUNTIME_CHECKPOINT_MANIFEST_H

#include <stdbool.h>

#include "base/files/file.h"
#include "base/status.h"

#define DP_MANIFEST "MANIFEST" /* its name */

/* Writes folder/MANIFEST: hashes[i] is that of names[i], from writing it. Waits until it is on
 * disk. Errors: DP_ERR_WRITE, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_manifest_write(const char *folder, const char *const *names,
                                       char (*hashes)[DP_HASH_TEXT], int count);

/* Checks that each file exists and has the hash in folder/MANIFEST. Errors: DP_ERR_DATA (torn or
 * altered: one line names the file), DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_manifest_verify(const char *folder, const char *const *names, int count);

/* Whether `folder` is a folder, not a link to one, with a MANIFEST that lists all names. Logs
 * nothing. */
bool dp_manifest_lists(const char *folder, const char *const *names, int count);

#endif
