#include "runtime/checkpoint/checkpoint_save.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files/disk.h"
#include "base/files/file.h"
#include "base/files/folder.h"
#include "base/log.h"
#include "base/mem.h"
#include "runtime/checkpoint/checkpoint_dir.h"
#include "runtime/checkpoint/manifest.h"

enum { NAME_BYTES = 64, NAMES_MOST = 1000 };

static const char *const *const content = dp_checkpoint_files;

static dp_status write_state(const char *path, const struct dp_checkpoint *checkpoint,
                             char hash[DP_HASH_TEXT])
{
    char *text = NULL;
    size_t bytes;
    dp_status status;

    DP_TRY(dp_json_set_text(checkpoint->state, "schema", DP_CHECKPOINT_SCHEMA));
    DP_TRY(dp_json_set_int(checkpoint->state, "step", (int64_t)checkpoint->step));
    DP_TRY(dp_json_dump(checkpoint->state, 2, DP_JSON_EXACT, &text));
    bytes = strlen(text);
    text[bytes] = '\n'; /* replaces the NUL, which a file does not need */
    status = dp_file_save(path, text, bytes + 1, hash);
    dp_free(text);
    return status;
}

/* Writes the model, unless training has diverged. */
static dp_status write_model(const char *path, const struct dp_checkpoint *checkpoint,
                             char hash[DP_HASH_TEXT])
{
    const char *broken;

    DP_TRY(dp_weights_save(path, checkpoint->weights, checkpoint->buffer, &broken, hash));
    if (broken != NULL) {
        /* The message does not say that training has diverged: it may continue
         * (failure_stop.nan). */
        dp_log(DP_LOG_ERROR, __FILE__, __LINE__,
               "step %" PRIu64
               ": '%s' has numbers that are not finite: no checkpoint of them is written; try a "
               "lower optimizer.lr, or optimizer.clip_norm",
               checkpoint->step, broken);
        return DP_ERR_DIVERGED;
    }
    return DP_OK;
}

static dp_status write_content(const char *folder, const struct dp_checkpoint *checkpoint)
{
    const struct dp_weights *weights = checkpoint->weights;
    char path[DP_PATH_BYTES], hashes[DP_CHECKPOINT_CONTENT][DP_HASH_TEXT];

    DP_TRY(dp_file_join(path, folder, content[0]));
    DP_TRY(write_model(path, checkpoint, hashes[0]));
    DP_TRY(dp_file_join(path, folder, content[1]));
    DP_TRY(dp_slots_save(path, weights->params, weights->param_count, checkpoint->slots,
                         checkpoint->slot_count, checkpoint->buffer, hashes[1]));
    DP_TRY(dp_file_join(path, folder, content[2]));
    DP_TRY(write_state(path, checkpoint, hashes[2]));
    DP_TRY(dp_manifest_write(folder, content, hashes, DP_CHECKPOINT_CONTENT));
    return dp_file_sync_folder(folder);
}

static dp_status move(const char *from, const char *to)
{
    if (dp_disk_rename(from, to) != 0) {
        return dp_file_fail(to, errno);
    }
    return DP_OK;
}

/* Renames an entry that has the checkpoint's name but is not one, or has lost its MANIFEST. */
static dp_status give_way(const char *place)
{
    char other[DP_PATH_BYTES];
    struct stat info;

    for (int i = 1; i <= NAMES_MOST; i++) {
        const int length = snprintf(other, sizeof(other), "%s.other-%d", place, i);

        if (length < (int)sizeof(other) && lstat(other, &info) != 0) {
            DP_TRY(move(place, other));
            DP_WARN("%s was not a whole checkpoint: it is renamed to %s", place, other);
            return DP_OK;
        }
    }
    return DP_FAIL(DP_ERR_WRITE, "cannot write %s: it exists and is not a checkpoint; move it away",
                   place);
}

/* Renames the finished folder. A checkpoint of that name is moved aside and then deleted. */
static dp_status put_in_place(const char *temporary, const char *aside, const char *place)
{
    struct stat info;
    const bool taken = lstat(place, &info) == 0,
               replaces = taken && dp_checkpoint_dir_is_ours(place);
    dp_status status;

    if (taken) {
        DP_TRY(replaces ? move(place, aside) : give_way(place));
    }
    status = move(temporary, place);
    if (status != DP_OK && replaces && dp_disk_rename(aside, place) != 0) {
        DP_WARN("the checkpoint %s is now named %s", place, aside);
    } else if (status == DP_OK && replaces) {
        dp_folder_move_others(aside, place, dp_checkpoint_files, DP_CHECKPOINT_FILES);
        (void)dp_checkpoint_dir_remove(aside);
    }
    return status;
}

/* Replaces the link in one step, after its target has been renamed. */
static dp_status point_latest(const char *folder, const char *name)
{
    char temporary[DP_PATH_BYTES], link[DP_PATH_BYTES];
    struct stat info;

    DP_TRY(dp_checkpoint_dir_hidden(temporary, folder, DP_CHECKPOINT_DIR_TEMPORARY,
                                    DP_CHECKPOINT_DIR_LATEST));
    DP_TRY(dp_file_join(link, folder, DP_CHECKPOINT_DIR_LATEST));
    if (lstat(link, &info) == 0 && !S_ISLNK(info.st_mode)) {
        DP_WARN("%s is not a symbolic link and is left unchanged: move it away, or the newest "
                "checkpoint can only be found by its step",
                link);
        return DP_OK;
    }
    if (dp_disk_symlink(name, temporary) != 0) {
        return dp_file_fail(temporary, errno);
    }
    if (dp_disk_rename(temporary, link) != 0) {
        const int reason = errno;

        (void)dp_disk_unlink(temporary);
        return dp_file_fail(link, reason);
    }
    return dp_file_sync_folder(folder);
}

/* Writes the temporary folder and renames it; on error it is deleted. */
static dp_status save_folder(const char *folder, const struct dp_checkpoint *checkpoint,
                             const char *name)
{
    char temporary[DP_PATH_BYTES], aside[DP_PATH_BYTES], place[DP_PATH_BYTES];
    dp_status status;

    DP_TRY(dp_checkpoint_dir_hidden(temporary, folder, DP_CHECKPOINT_DIR_TEMPORARY, name));
    DP_TRY(dp_checkpoint_dir_hidden(aside, folder, DP_CHECKPOINT_DIR_ASIDE, name));
    DP_TRY(dp_file_join(place, folder, name));
    if (dp_disk_mkdir(temporary) != 0) {
        return dp_file_fail(temporary, errno);
    }
    status = write_content(temporary, checkpoint);
    if (status == DP_OK) {
        status = put_in_place(temporary, aside, place);
    }
    if (status != DP_OK) {
        (void)dp_checkpoint_dir_remove(temporary);
    }
    return status;
}

/* Makes the folder and syncs it to disk, unless it exists. */
static dp_status make_folder(const char *folder)
{
    char above[DP_PATH_BYTES];

    if (dp_disk_mkdir(folder) != 0) {
        return errno == EEXIST ? DP_OK : dp_file_fail(folder, errno);
    }
    DP_TRY(dp_file_join(above, folder, ".."));
    return dp_file_sync_folder(above);
}

dp_status dp_checkpoint_save(const char *folder, const struct dp_checkpoint *checkpoint, int keep,
                             uint64_t keep_every)
{
    char name[NAME_BYTES];

    DP_TRY(make_folder(folder));
    dp_checkpoint_dir_clean(folder);
    (void)snprintf(name, sizeof(name), DP_STEP_FORMAT, checkpoint->step);
    DP_TRY(save_folder(folder, checkpoint, name));
    DP_TRY(dp_file_sync_folder(folder)); /* before anything points to it */
    DP_TRY(point_latest(folder, name));
    dp_checkpoint_dir_prune(folder, checkpoint->step, keep, keep_every);
    return DP_OK;
}

dp_status dp_checkpoint_mend(const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[DP_PATH_BYTES], link[DP_PATH_BYTES], target[NAME_BYTES + 1];
    ssize_t length;

    if (slash == NULL) {
        return DP_FAIL(DP_ERR_ARG, "%s is not in a folder of checkpoints", path);
    }
    (void)snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
    dp_checkpoint_dir_clean(folder);
    DP_TRY(dp_file_join(link, folder, DP_CHECKPOINT_DIR_LATEST));
    length = readlink(link, target, sizeof(target));
    if (length == (ssize_t)strlen(slash + 1) && memcmp(target, slash + 1, (size_t)length) == 0) {
        return DP_OK;
    }
    return point_latest(folder, slash + 1);
}
