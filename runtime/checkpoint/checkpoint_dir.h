/*
 * checkpoint_dir.h - the folder of a run's checkpoints: lists them, finds the newest whole one, and
 * deletes old ones.
 *
 * It holds step-NNNNNNNN/ folders, and `latest`, a symbolic link to the newest. Temporary folders
 * begin with ".tmp-" and end with the tag of the process that writes them
 * (base/system/process_tag.h). Nothing else in it is ever deleted or replaced.
 */
#ifndef DP_RUNTIME_CHECKPOINT_CHECKPOINT_DIR_H
#define DP_RUNTIME_CHECKPOINT_CHECKPOINT_DIR_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/files/file.h"
#include "base/status.h"

#define DP_STEP_FORMAT "step-%08" PRIu64
#define DP_CHECKPOINT_DIR_TEMPORARY ".tmp-"
#define DP_CHECKPOINT_DIR_ASIDE \
    DP_CHECKPOINT_DIR_TEMPORARY "old-" /* precedes the name that a checkpoint had */
#define DP_CHECKPOINT_DIR_LATEST "latest"

/* Whether `path` is a folder with the MANIFEST of a checkpoint, which may be torn. */
bool dp_checkpoint_dir_is_ours(const char *path);

/* The temporary name, in `folder`, that this process uses for `name`; it begins with one of the two
 * prefixes above. Errors: DP_ERR_ARG (too long). */
DP_CHECKED dp_status dp_checkpoint_dir_hidden(char out[DP_PATH_BYTES], const char *folder,
                                              const char *beginning, const char *name);

/* Deletes the files of a checkpoint, and its folder if that is then empty. MANIFEST goes last, so
 * that the next deletion continues an interrupted one. If the folder remains, logs a warning and
 * returns false. */
bool dp_checkpoint_dir_remove(const char *path);

/*
 * Deletes what processes that have ended, or this one, left unfinished. A checkpoint that was moved
 * aside for another one of its step gets its name back if that one was never finished.
 *
 * Whether a process of another host or container lives is unknown here. It writes to its folder
 * every few seconds, so a folder that has not changed for an hour is deleted: otherwise restarts on
 * new hosts would fill the disk. If that process lives after all, it only has to save again.
 */
void dp_checkpoint_dir_clean(const char *folder);

/*
 * Deletes checkpoints of steps before `current` until only the `keep` newest, with `current`, are
 * left, and those whose step is a multiple of `keep_every` (0: none). keep 0 keeps all. Checkpoints
 * of later steps, which training has not reached again, are kept, and so are folders without a
 * checkpoint's MANIFEST. A failure to delete one is logged as a warning.
 */
void dp_checkpoint_dir_prune(const char *folder, uint64_t current, int keep, uint64_t keep_every);

/*
 * Finds the newest whole checkpoint for the path `given`: a checkpoint or a link to one, a folder
 * of checkpoints, or the folder of a run. In a folder, torn ones are reported (a warning each) and
 * the previous one is used; without `latest`, the highest step is the newest.
 *
 *   out    out  [DP_PATH_BYTES]; the checkpoint's folder
 *   found  out  false: there is no checkpoint, whole or torn; NULL: that is an error
 *
 * Errors: DP_ERR_NOINPUT (there is none), DP_ERR_DATA (none is whole), DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_checkpoint_dir_find(const char *given, char *out, bool *found);

#endif
