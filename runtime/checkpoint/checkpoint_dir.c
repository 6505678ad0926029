#include "runtime/checkpoint/checkpoint_dir.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/files/disk.h"
#include "base/files/file.h"
#include "base/files/folder.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/system/process_tag.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/manifest.h"

enum { NAME_BYTES = 64, HIDDEN_BYTES = NAME_BYTES + DP_PROCESS_TAG_BYTES, OLD_S = 3600 };

/* Parses "step-NNNNNNNN"; false for any other name. */
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

bool dp_checkpoint_dir_is_ours(const char *path)
{
    return dp_manifest_lists(path, dp_checkpoint_files, DP_CHECKPOINT_CONTENT);
}

dp_status dp_checkpoint_dir_hidden(char out[DP_PATH_BYTES], const char *folder,
                                   const char *beginning, const char *name)
{
    char tag[DP_PROCESS_TAG_BYTES], hidden[HIDDEN_BYTES];

    dp_process_tag(tag);
    (void)snprintf(hidden, sizeof(hidden), "%s%s-%s", beginning, name, tag);
    return dp_file_join(out, folder, hidden);
}

bool dp_checkpoint_dir_remove(const char *path)
{
    if (!dp_folder_remove(path, dp_checkpoint_files, DP_CHECKPOINT_FILES)) {
        DP_WARN("cannot delete %s: %s", path, strerror(errno));
        return false;
    }
    return true;
}

/* A temporary name: ".tmp-", maybe "old-", a step's name or "latest", and the tag of a process. */
struct hidden {
    char name[NAME_BYTES]; /* between the two; empty: not a temporary name */
    bool aside;
    const char *tag;
};

static struct hidden parse_hidden(const char *text)
{
    const size_t before = strlen(DP_CHECKPOINT_DIR_TEMPORARY),
                 aside = strlen(DP_CHECKPOINT_DIR_ASIDE);
    struct hidden h = {.aside = strncmp(text, DP_CHECKPOINT_DIR_ASIDE, aside) == 0};
    const char *name = text + (h.aside ? aside : before), *dash;
    uint64_t step;

    if (!h.aside && strncmp(text, DP_CHECKPOINT_DIR_TEMPORARY, before) != 0) {
        return h;
    }
    dash = strchr(name, '-');
    if (dash != NULL && strncmp(name, "step-", 5) == 0) {
        dash = strchr(dash + 1, '-');
    }
    if (dash == NULL || dash - name >= NAME_BYTES) {
        return h;
    }
    h.tag = dash + 1;
    (void)snprintf(h.name, sizeof(h.name), "%.*s", (int)(dash - name), name);
    if ((!step_of(h.name, &step) && (h.aside || strcmp(h.name, DP_CHECKPOINT_DIR_LATEST) != 0)) ||
        dp_process_judge(h.tag) == DP_PROCESS_NO_TAG) {
        h.name[0] = '\0';
    }
    return h;
}

/* Calls `visit` for all temporary entries except those of living processes of this host. */
static void each_leftover(const char *folder, void (*visit)(const char *folder, const char *path,
                                                            const struct hidden *hidden))
{
    DIR *entries = opendir(folder);
    const struct dirent *entry;
    char path[DP_PATH_BYTES];

    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        const struct hidden hidden = parse_hidden(entry->d_name);

        if (hidden.name[0] != '\0' && dp_process_judge(hidden.tag) != DP_PROCESS_ALIVE &&
            dp_file_join(path, folder, entry->d_name) == DP_OK) {
            visit(folder, path, &hidden);
        }
    }
    if (entries != NULL) {
        (void)closedir(entries);
    }
}

/* Restores a checkpoint that was moved aside for one of the same step, if that was never
 * finished. */
static void put_back(const char *folder, const char *path, const struct hidden *hidden)
{
    char to[DP_PATH_BYTES];
    struct stat info;

    if (hidden->aside && dp_file_join(to, folder, hidden->name) == DP_OK && lstat(to, &info) != 0 &&
        dp_disk_rename(path, to) == 0) {
        DP_WARN("restored %s: the checkpoint that was to replace it was never finished", to);
    }
}

static bool is_old(const char *path, const struct stat *info)
{
    const int64_t touched =
        S_ISLNK(info->st_mode)
            ? (int64_t)info->st_mtim.tv_sec
            : dp_folder_touched_ns(path, dp_checkpoint_files, DP_CHECKPOINT_FILES) / 1000000000;

    return touched > 0 && touched + OLD_S < (int64_t)time(NULL);
}

static void delete (const char *folder, const char *path, const struct hidden *hidden)
{
    struct stat info;

    (void)folder;
    if (lstat(path, &info) != 0 ||
        (dp_process_judge(hidden->tag) != DP_PROCESS_GONE && !is_old(path, &info))) {
        return;
    }
    if (S_ISLNK(info.st_mode) && strcmp(hidden->name, DP_CHECKPOINT_DIR_LATEST) == 0) {
        (void)dp_disk_unlink(path);
    } else if (S_ISDIR(info.st_mode)) {
        (void)dp_checkpoint_dir_remove(path);
    }
}

void dp_checkpoint_dir_clean(const char *folder)
{
    each_leftover(folder, put_back);
    each_leftover(folder, delete);
}

/* ---- listing ---- */

struct entry {
    uint64_t step;
    int64_t made_ns; /* mtime of its MANIFEST; 0: it has none */
};

/* Calls `visit` for the step of every checkpoint in a folder. */
static void each_step(const char *folder, void (*visit)(void *context, uint64_t step),
                      void *context)
{
    DIR *entries = opendir(folder);
    const struct dirent *entry;
    uint64_t step = 0;

    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        if (step_of(entry->d_name, &step)) {
            visit(context, step);
        }
    }
    if (entries != NULL) {
        (void)closedir(entries);
    }
}

/* ---- deleting old ones ---- */

struct census {
    const char *folder;
    uint64_t from, current, keep_every;
    uint64_t oldest; /* the oldest one that may be deleted, from `from` on */
    bool any;        /* there is one */
    int newer;       /* number of newer ones, up to the current one */
};

static bool is_ours(const struct census *c, uint64_t step, char path[DP_PATH_BYTES])
{
    char name[NAME_BYTES];

    (void)snprintf(name, sizeof(name), DP_STEP_FORMAT, step);
    return dp_file_join(path, c->folder, name) == DP_OK && dp_checkpoint_dir_is_ours(path);
}

static void find_oldest(void *context, uint64_t step)
{
    struct census *c = context;
    const bool held = c->keep_every > 0 && step % c->keep_every == 0;
    char path[DP_PATH_BYTES];

    if (step >= c->from && step < c->current && !held && (!c->any || step < c->oldest) &&
        is_ours(c, step, path)) {
        c->oldest = step;
        c->any = true;
    }
}

static void count_newer(void *context, uint64_t step)
{
    struct census *c = context;
    char path[DP_PATH_BYTES];

    c->newer += step > c->oldest && step <= c->current && is_ours(c, step, path);
}

void dp_checkpoint_dir_prune(const char *folder, uint64_t current, int keep, uint64_t keep_every)
{
    struct census census = {.folder = folder, .current = current, .keep_every = keep_every};
    char path[DP_PATH_BYTES];

    while (keep > 0) {
        census.any = false;
        census.newer = 0;
        each_step(folder, find_oldest, &census);
        each_step(folder, count_newer, &census);
        if (!census.any || census.newer < keep) {
            return;
        }
        if (is_ours(&census, census.oldest, path)) {
            (void)dp_checkpoint_dir_remove(path);
        }
        census.from = census.oldest + 1;
    }
}

/* ---- finding the newest ---- */

struct listing {
    const char *folder;
    struct entry *entries; /* NULL: only counts */
    int count, capacity;
    struct entry latest; /* the target of the link; step UINT64_MAX: none */
};

static int64_t made_ns(const char *folder, uint64_t step)
{
    char name[NAME_BYTES], path[DP_PATH_BYTES];
    struct stat info;

    (void)snprintf(name, sizeof(name), DP_STEP_FORMAT "/" DP_MANIFEST, step);
    if (dp_file_join(path, folder, name) != DP_OK || stat(path, &info) != 0) {
        return 0;
    }
    return (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;
}

static void list_step(void *context, uint64_t step)
{
    struct listing *l = context;

    if (l->entries != NULL && l->count < l->capacity) {
        l->entries[l->count] = (struct entry){step, made_ns(l->folder, step)};
    }
    l->count++;
}

static struct entry read_latest(const char *folder)
{
    char path[DP_PATH_BYTES], target[NAME_BYTES] = "";
    struct entry latest = {UINT64_MAX, 0};

    if (dp_file_join(path, folder, DP_CHECKPOINT_DIR_LATEST) == DP_OK &&
        readlink(path, target, sizeof(target) - 1) > 0 && step_of(target, &latest.step)) {
        latest.made_ns = made_ns(folder, latest.step);
    }
    return latest;
}

/* Sort order: 0: newer than the latest, finished but not linked yet; 1: the latest; 2: earlier
 * steps; 3: older ones of later steps, from before training went back to the latest. */
static int class_of(const struct entry *e, const struct entry *latest)
{
    if (latest->step == UINT64_MAX || e->step == latest->step) {
        return 1;
    }
    if (e->step < latest->step) {
        return 2;
    }
    return e->made_ns > latest->made_ns ? 0 : 3;
}

static void sort_newest_first(struct listing *l)
{
    for (int i = 1; i < l->count; i++) {
        const struct entry moving = l->entries[i];
        const int class = class_of(&moving, &l->latest);
        int k = i;

        for (; k > 0; k--) {
            const struct entry *before = &l->entries[k - 1];
            const int other = class_of(before, &l->latest);
            if (other < class || (other == class && before->step > moving.step)) {
                break;
            }
            l->entries[k] = *before;
        }
        l->entries[k] = moving;
    }
}

static dp_status list_checkpoints(const char *folder, struct listing *l)
{
    *l = (struct listing){.folder = folder};
    each_step(folder, list_step, l);
    l->capacity = l->count;
    l->entries = dp_zalloc((size_t)l->capacity, sizeof(*l->entries));
    if (l->entries == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: list of %d checkpoints", folder, l->capacity);
    }
    l->count = 0;
    l->latest = read_latest(folder);
    each_step(folder, list_step, l);
    l->count = l->count < l->capacity ? l->count : l->capacity;
    sort_newest_first(l);
    return DP_OK;
}

/* Finds the first of the listing that is whole. Errors of the others are logged as warnings. */
static dp_status first_whole(const struct listing *l, char *out)
{
    char name[NAME_BYTES];

    for (int i = 0; i < l->count; i++) {
        struct dp_log_capture capture;
        dp_status status;
        bool torn;

        (void)snprintf(name, sizeof(name), DP_STEP_FORMAT, l->entries[i].step);
        DP_TRY(dp_file_join(out, l->folder, name));
        dp_log_capture_begin(&capture, DP_LOG_ERROR);
        status = dp_checkpoint_verify(out);
        torn = status == DP_ERR_DATA || status == DP_ERR_NOINPUT;
        dp_log_capture_end(&capture, torn ? DP_LOG_SOFTEN : DP_LOG_PRINT);
        if (!torn) {
            return status;
        }
        DP_WARN("%s is not whole; trying the one before it", out);
    }
    return DP_FAIL(DP_ERR_DATA, "%s: none of %d checkpoint%s is whole", l->folder, l->count,
                   dp_plural(l->count));
}

static bool has_entry(const char *folder, const char *name)
{
    char path[DP_PATH_BYTES];
    struct stat info;

    return dp_file_join(path, folder, name) == DP_OK && stat(path, &info) == 0;
}

/* A checkpoint, whole or torn: it has a file of one, or the name of one. */
static bool is_checkpoint(const char *path)
{
    const char *slash = strrchr(path, '/');
    uint64_t step;

    return step_of(slash == NULL ? path : slash + 1, &step) || has_entry(path, DP_MANIFEST) ||
           has_entry(path, "state.json");
}

/* Finds the folder of checkpoints for a path. For a run's folder it is the one inside; for the link
 * `latest` it is the folder with the link. */
static dp_status find_folder(const char *path, char *folder)
{
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
    struct stat info;

    if (strcmp(name, DP_CHECKPOINT_DIR_LATEST) == 0 && lstat(path, &info) == 0 &&
        S_ISLNK(info.st_mode)) {
        const int length = slash == NULL || slash == path ? 1 : (int)(slash - path);

        (void)snprintf(folder, DP_PATH_BYTES, "%.*s", length, slash == NULL ? "." : path);
        return DP_OK;
    }
    DP_TRY(dp_file_join(folder, path, "checkpoints"));
    if (stat(folder, &info) != 0) {
        (void)snprintf(folder, DP_PATH_BYTES, "%s", path);
    }
    return DP_OK;
}

dp_status dp_checkpoint_dir_find(const char *given, char *out, bool *found)
{
    char folder[DP_PATH_BYTES], path[DP_PATH_BYTES];
    size_t length = strlen(given);
    struct listing l;
    struct stat info;
    dp_status status;

    while (length > 1 && given[length - 1] == '/') {
        length--;
    }
    if (length >= sizeof(path)) {
        return DP_FAIL(DP_ERR_NOINPUT, "%.80s...: the path is too long", given);
    }
    (void)snprintf(path, sizeof(path), "%.*s", (int)length, given);
    DP_TRY(find_folder(path, folder));
    if (stat(folder, &info) != 0 || !S_ISDIR(info.st_mode)) {
        return DP_FAIL(DP_ERR_NOINPUT, "%s: no checkpoint is there", path);
    }
    if (strcmp(folder, path) == 0 && is_checkpoint(path)) {
        (void)snprintf(out, DP_PATH_BYTES, "%s", path);
        return dp_checkpoint_verify(path);
    }
    each_leftover(folder, put_back);
    DP_TRY(list_checkpoints(folder, &l));
    status = l.count > 0 ? first_whole(&l, out) : DP_OK;
    if (found != NULL) {
        *found = l.count > 0;
    } else if (l.count == 0) {
        status = DP_FAIL(DP_ERR_NOINPUT, "%s: no checkpoint is there", path);
    }
    dp_free(l.entries);
    return status;
}
