#include "runtime/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

#define STEP_FORMAT "step-%08" PRIu64
#define TEMPORARY ".tmp-"
#define LATEST "latest"
#define MANIFEST "MANIFEST"

enum { NAME_BYTES = 64, HASH_CHARS = 32, READ_BYTES = 256 * 1024, MANIFEST_MOST = 64 * 1024 };

static const char *const content[] = {"model.safetensors", "optimizer.safetensors", "state.json"};
enum { CONTENT_COUNT = sizeof(content) / sizeof(content[0]) };

/* ---- hashes ---- */

/* Feeds a file to `state`. */
static dp_status hash_stream(FILE *file, const char *path, XXH3_state_t *state)
{
    unsigned char *block = dp_zalloc(1, READ_BYTES);
    dp_status status = DP_OK;
    size_t got;

    if (block == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: reading", path);
    }
    while ((got = fread(block, 1, READ_BYTES, file)) > 0) {
        (void)XXH3_128bits_update(state, block, got); /* fails only for a NULL block */
    }
    if (ferror(file)) {
        status = DP_FAIL(DP_ERR_DATA, "%s: cannot be read", path);
    }
    dp_free(block);
    return status;
}

/* The XXH3-128 hash of a file, as xxhsum prints it. */
static dp_status hash_file(const char *path, char hex[HASH_CHARS + 1])
{
    XXH3_state_t *state = XXH3_createState();
    FILE *file = fopen(path, "rb");
    dp_status status;

    if (state == NULL) {
        status = DP_FAIL(DP_ERR_NOMEM, "%s: hash", path);
    } else if (file == NULL) {
        status = DP_FAIL(DP_ERR_DATA, "%s: %s", path, strerror(errno));
    } else {
        (void)XXH3_128bits_reset(state);
        status = hash_stream(file, path, state);
    }
    if (status == DP_OK) {
        const XXH128_hash_t hash = XXH3_128bits_digest(state);

        (void)snprintf(hex, HASH_CHARS + 1, "%016" PRIx64 "%016" PRIx64, (uint64_t)hash.high64,
                       (uint64_t)hash.low64);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    (void)XXH3_freeState(state);
    return status;
}

static dp_status write_manifest(const char *folder)
{
    char text[CONTENT_COUNT * (HASH_CHARS + NAME_BYTES)], path[DP_PATH_BYTES];
    size_t used = 0;

    for (int i = 0; i < CONTENT_COUNT; i++) {
        char hex[HASH_CHARS + 1] = "";

        DP_TRY(dp_file_join(path, folder, content[i]));
        DP_TRY(hash_file(path, hex));
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s  %s\n", hex, content[i]);
    }
    DP_TRY(dp_file_join(path, folder, MANIFEST));
    return dp_file_save(path, text, used);
}

/* ---- folders ---- */

/* The number in "step-NNNNNNNN"; false for any other name. */
static bool step_of(const char *name, uint64_t *step)
{
    static const char prefix[] = "step-";
    const size_t length = sizeof(prefix) - 1, digits = strlen(name) - length;

    if (strncmp(name, prefix, length) != 0 || digits < 8 || digits > 19 ||
        strspn(name + length, "0123456789") != digits) {
        return false;
    }
    *step = strtoull(name + length, NULL, 10);
    return true;
}

/* Deletes a folder of files, but nothing behind a link; a warning when that fails, unless there is none. */
static bool remove_folder(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    char file[DP_PATH_BYTES];

    if (fd < 0 && errno == ENOENT) {
        return true;
    }
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            dp_file_join(file, path, entry->d_name) == DP_OK) {
            (void)unlink(file); /* rmdir below fails if this does */
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    } else if (fd >= 0) {
        (void)close(fd);
    }
    if (rmdir(path) != 0) {
        DP_WARN("cannot delete %s: %s", path, strerror(errno));
        return false;
    }
    return true;
}

/* Temporary names end with the process that made them: another that still lives may be writing. */
static bool is_leftover(const char *name)
{
    const char *dash = strrchr(name, '-');
    long pid;

    if (strncmp(name, TEMPORARY, strlen(TEMPORARY)) != 0) {
        return false;
    }
    pid = strtol(dash + 1, NULL, 10);
    return pid <= 0 || pid == (long)getpid() || (kill((pid_t)pid, 0) != 0 && errno == ESRCH);
}

static void remove_leftovers(const char *folder)
{
    DIR *entries = opendir(folder);
    const struct dirent *entry;
    char path[DP_PATH_BYTES];

    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        if (is_leftover(entry->d_name) && dp_file_join(path, folder, entry->d_name) == DP_OK &&
            unlink(path) != 0) {
            (void)remove_folder(path);
        }
    }
    if (entries != NULL) {
        (void)closedir(entries);
    }
}

/* ---- saving ---- */

static dp_status write_content(const char *folder, const struct dp_checkpoint *checkpoint)
{
    const struct dp_weights *weights = checkpoint->weights;
    char path[DP_PATH_BYTES];

    DP_TRY(dp_file_join(path, folder, content[0]));
    DP_TRY(dp_weights_save(path, weights));
    DP_TRY(dp_file_join(path, folder, content[1]));
    DP_TRY(dp_slots_save(path, weights->params, weights->param_count, checkpoint->slots,
                         checkpoint->slot_count));
    DP_TRY(dp_json_set_text(checkpoint->state, "schema", DP_CHECKPOINT_SCHEMA));
    DP_TRY(dp_json_set_int(checkpoint->state, "step", (int64_t)checkpoint->step));
    DP_TRY(dp_file_join(path, folder, content[2]));
    DP_TRY(dp_json_save(checkpoint->state, DP_JSON_EXACT, path));
    DP_TRY(write_manifest(folder));
    return dp_file_sync_folder(folder);
}

static dp_status move(const char *from, const char *to)
{
    if (rename(from, to) != 0) {
        return DP_FAIL(DP_ERR_WRITE, "%s: %s", to, strerror(errno));
    }
    return DP_OK;
}

/* Gives the finished folder its name. One of that name steps aside and is deleted afterwards. */
static dp_status put_in_place(const char *temporary, const char *aside, const char *place)
{
    struct stat info;
    const bool replaces = lstat(place, &info) == 0;
    dp_status status;

    if (replaces) {
        DP_TRY(move(place, aside));
    }
    status = move(temporary, place);
    if (status != DP_OK && replaces && rename(aside, place) != 0) {
        DP_WARN("the checkpoint %s is now called %s", place, aside);
    } else if (status == DP_OK && replaces) {
        (void)remove_folder(aside);
    }
    return status;
}

/* Replaces the link in one step, after the folder it is to point to has its name. */
static dp_status point_latest(const char *folder, const char *name)
{
    char temporary[DP_PATH_BYTES], link[DP_PATH_BYTES], hidden[NAME_BYTES];

    (void)snprintf(hidden, sizeof(hidden), TEMPORARY LATEST "-%ld", (long)getpid());
    DP_TRY(dp_file_join(temporary, folder, hidden));
    DP_TRY(dp_file_join(link, folder, LATEST));
    if (symlink(name, temporary) != 0) {
        return DP_FAIL(DP_ERR_WRITE, "%s: %s", temporary, strerror(errno));
    }
    if (rename(temporary, link) != 0) {
        const int reason = errno;

        (void)unlink(temporary);
        return DP_FAIL(DP_ERR_WRITE, "%s: %s", link, strerror(reason));
    }
    return dp_file_sync_folder(folder);
}

/* Writes the folder "temporary" and renames it; on error it is gone. */
static dp_status save_folder(const char *folder, const struct dp_checkpoint *checkpoint,
                             const char *name)
{
    char temporary[DP_PATH_BYTES], aside[DP_PATH_BYTES], place[DP_PATH_BYTES];
    char hidden[2 * NAME_BYTES];
    dp_status status;

    (void)snprintf(hidden, sizeof(hidden), TEMPORARY "%s-%ld", name, (long)getpid());
    DP_TRY(dp_file_join(temporary, folder, hidden));
    (void)snprintf(hidden, sizeof(hidden), TEMPORARY "old-%s-%ld", name, (long)getpid());
    DP_TRY(dp_file_join(aside, folder, hidden));
    DP_TRY(dp_file_join(place, folder, name));
    if (mkdir(temporary, 0777) != 0) {
        return DP_FAIL(DP_ERR_WRITE, "%s: %s", temporary, strerror(errno));
    }
    status = write_content(temporary, checkpoint);
    if (status == DP_OK) {
        status = put_in_place(temporary, aside, place);
    }
    if (status != DP_OK) {
        (void)remove_folder(temporary);
    }
    return status;
}

/* ---- keeping the newest ---- */

/* The checkpoints in a folder, but for the one with number `except`. */
struct census {
    int others; /* how many there are */
    int newer;  /* how many of all are newer than the oldest of the others */
    uint64_t oldest;
};

static struct census count_steps(const char *folder, uint64_t except)
{
    struct census census = {0};
    DIR *entries = opendir(folder);
    const struct dirent *entry;
    uint64_t step = 0;

    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        if (step_of(entry->d_name, &step) && step != except) {
            census.oldest = census.others == 0 || step < census.oldest ? step : census.oldest;
            census.others++;
        }
    }
    if (entries != NULL) {
        (void)closedir(entries);
    }
    census.newer = census.others - 1 + (except > census.oldest);
    return census;
}

/* Deletes the oldest until `keep` are left, never the one that `latest` points to. */
static void prune(const char *folder, uint64_t latest, int keep)
{
    char name[NAME_BYTES], path[DP_PATH_BYTES];
    struct census census = count_steps(folder, latest);

    while (census.others > 0 && census.newer >= keep) {
        (void)snprintf(name, sizeof(name), STEP_FORMAT, census.oldest);
        if (dp_file_join(path, folder, name) != DP_OK || !remove_folder(path)) {
            return;
        }
        census = count_steps(folder, latest);
    }
}

dp_status dp_checkpoint_save(const char *folder, const struct dp_checkpoint *checkpoint, int keep)
{
    char name[NAME_BYTES];

    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        return DP_FAIL(DP_ERR_WRITE, "%s: %s", folder, strerror(errno));
    }
    remove_leftovers(folder);
    (void)snprintf(name, sizeof(name), STEP_FORMAT, checkpoint->step);
    DP_TRY(save_folder(folder, checkpoint, name));
    DP_TRY(point_latest(folder, name));
    if (keep > 0) {
        prune(folder, checkpoint->step, keep);
    }
    return DP_OK;
}

/* ---- checking ---- */

static dp_status verify_file(const char *folder, const char *name, const char *expected)
{
    char path[DP_PATH_BYTES], hex[HASH_CHARS + 1] = "";

    DP_TRY(dp_file_join(path, folder, name));
    DP_TRY(hash_file(path, hex));
    if (memcmp(hex, expected, HASH_CHARS) != 0) {
        return DP_FAIL(DP_ERR_DATA,
                       "checkpoint %s: %s does not match " MANIFEST ", it is torn or was altered",
                       folder, name);
    }
    return DP_OK;
}

/* The hash in front of "  NAME\n", or NULL when no line has this name. */
static const char *manifest_hash(const char *manifest, const char *name)
{
    char ending[NAME_BYTES];
    const size_t length = (size_t)snprintf(ending, sizeof(ending), "  %s\n", name);

    for (const char *line = manifest; line != NULL && *line != '\0';) {
        const char *end = strchr(line, '\n');

        if (strspn(line, "0123456789abcdef") == HASH_CHARS &&
            strncmp(line + HASH_CHARS, ending, length) == 0) {
            return line;
        }
        line = end == NULL ? NULL : end + 1;
    }
    return NULL;
}

dp_status dp_checkpoint_verify(const char *path)
{
    char file[DP_PATH_BYTES], *manifest = NULL;
    struct stat info;
    size_t bytes = 0;
    dp_status status;

    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        return DP_FAIL(DP_ERR_NOINPUT, "%s: no checkpoint is there", path);
    }
    DP_TRY(dp_file_join(file, path, MANIFEST));
    status = dp_file_read(file, MANIFEST_MOST, &manifest, &bytes);
    if (status != DP_OK) {
        return status == DP_ERR_NOINPUT ? DP_ERR_DATA : status; /* the folder is there: torn */
    }
    for (int i = 0; i < CONTENT_COUNT && status == DP_OK; i++) {
        const char *expected = manifest_hash(manifest, content[i]);

        status = expected != NULL
                     ? verify_file(path, content[i], expected)
                     : DP_FAIL(DP_ERR_DATA, "%s: no line for %s: torn", file, content[i]);
    }
    dp_free(manifest);
    return status;
}
