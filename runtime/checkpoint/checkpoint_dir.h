/*
 * checkpoint_dir.h - the folder of a run's checkpoints: which are there, which is the newest whole
 * one, and which are deleted.
 *
 * It holds step-NNNNNNNN/ folders, temporary ones that begin with ".tmp-" and end with the tag of
 * the process that writes them (base/process_tag.h), and `latest`, a symbolic link to the newest.
 * Nothing else in it is ever deleted or replaced.
 */
#ifndef DP_RUNTIME_CHECKPOINT_CHECKPOINT_DIR_H
#define DP_RUNTIME_CHECKPOINT_CHECKPOINT_DIR_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"

#define DP_STEP_FORMAT "step-%08" PRIu64
#define DP_CHECKPOINT_DIR_TEMPORARY ".tmp-"
#define DP_CHECKPOINT_DIR_ASIDE \
    DP_CHECKPOINT_DIR_TEMPORARY "old-" /* before the name that a checkpoint had */
#define DP_CHECKPOINT_DIR_LATEST "latest"

/* Whether `path` is a folder with the MANIFEST of a checkpoint, which may be torn. */
bool dp_checkpoint_dir_is_ours(const char *path);

/* The temporary name, in `folder`, that this process gives to what is, or was, called `name`; it
 * begins with one of the two above. Errors: DP_ERR_ARG (too long). */
DP_CHECKED dp_status dp_checkpoint_dir_hidden(char out[DP_PATH_BYTES], const char *folder,
                                              const char *beginning, const char *name);

/* Deletes the files of a checkpoint, and its folder if nothing else is left in it; MANIFEST goes
 * last, so that an interrupted deletion is carried on by the next. False, and a warning, where the
 * folder stays. */
bool dp_checkpoint_dir_remove(const char *path);

/*
 * Deletes what processes that are gone, or this one, left unfinished; but a checkpoint that had
 * stepped aside for another one of its step gets its name back if that one did not come.
 *
 * Whether a process of another host or container lives is not known here. It writes to its folder
 * every few seconds, so one that was left alone for an hour is deleted, since restarts on ever
 * other hosts would fill the disk; if it lives after all, it only has to save once more.
 */
void dp_checkpoint_dir_clean(const char *folder);

/*
 * Deletes checkpoints of steps before `current` until only the `keep` newest, `current` included,
 * are left, and those whose step is a multiple of `keep_every` (0: none is kept for that). keep 0
 * keeps all. Those of later steps, which training has yet to reach again, are left alone, and
 * folders without a checkpoint's MANIFEST. One that cannot be deleted is a warning.
 */
void dp_checkpoint_dir_prune(const char *folder, uint64_t current, int keep, uint64_t keep_every);

/*
 * The newest whole checkpoint that the path `given` leads to: a checkpoint itself or a link to one,
 * a folder of checkpoints, or the folder of a run. In a folder, torn ones are told (a warning each)
 * and the one before is taken; without `latest`, the highest step is the newest.
 *
 *   out    out  [DP_PATH_BYTES]; the checkpoint's folder
 *   found  out  false: there is no checkpoint, whole or torn; NULL: that is an error
 *
 * Errors: DP_ERR_NOINPUT (nothing is there), DP_ERR_DATA (none is whole), DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_checkpoint_dir_find(const char *given, char *out, bool *found);

#endif
