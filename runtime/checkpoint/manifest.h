/*
 * manifest.h - a list of files with the XXH3-128 hash of each, so that a torn or altered one is
 * noticed. "xxhsum -c MANIFEST" reads it too.
 */
#ifndef DP_RUNTIME_CHECKPOINT_MANIFEST_H
#define DP_RUNTIME_CHECKPOINT_MANIFEST_H

#include <stdbool.h>

#include "base/file.h"
#include "base/status.h"

#define DP_MANIFEST "MANIFEST" /* its name */

/* Writes folder/MANIFEST: hashes[i], which writing gave, is that of names[i]. Waits until the disk
 * has it. Errors: DP_ERR_WRITE, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_manifest_write(const char *folder, const char *const *names,
                                       char (*hashes)[DP_HASH_TEXT], int count);

/* Checks that each file is there and has the hash that folder/MANIFEST says.
 * Errors: DP_ERR_DATA (torn or altered: one line names the file), DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_manifest_verify(const char *folder, const char *const *names, int count);

/* Whether `folder` is a folder, not a link to one, with a MANIFEST that lists all names. Silent. */
bool dp_manifest_lists(const char *folder, const char *const *names, int count);

#endif
