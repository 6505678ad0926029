#define _DEFAULT_SOURCE /* d_type, which spares a call for each file */

#include "runtime/data/formats/class_folders.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "runtime/data/formats/name_list.h"

enum { EXAMPLE = 96 };

/* What others call the sets. */
static const char *const set_names[] = {"test", "val", "valid", "validation", "train"};

/* What systems leave in folders, beside names with a dot. */
static const char *const litter[] = {"__MACOSX", "Thumbs.db", "desktop.ini"};

/* The pictures of a set. */
struct set {
    char path[DP_PATH_BYTES];
    struct dp_name_list *pictures; /* owned; [classes] */
    size_t *before;                /* owned; [classes + 1]: pictures of the classes before */
};

struct dp_class_folders {
    char root[DP_PATH_BYTES]; /* where the folder really is */
    struct dp_name_list classes;
    struct set sets[DP_SETS];
    size_t left_out, left_folders; /* entries that are none of ours; folders among them */
    char example[EXAMPLE];         /* the first of them */
    const char *test_name;         /* the folder of the test set */
};

enum kind { FILE_ENTRY, FOLDER_ENTRY, OTHER_ENTRY };

static dp_status no_memory(const char *path)
{
    return DP_FAIL(DP_ERR_NOMEM, "%s: list of its files", path);
}

/* A terminal, a log or a report would obey control characters; JSON wants UTF-8. */
static dp_status check_name(const char *folder, const char *name)
{
    char clean[4 * NAME_MAX + 4];

    (void)dp_text_clean(name, clean, sizeof(clean));
    if (strcmp(name, clean) != 0) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s/%s: the name has control characters, or is no UTF-8: rename it", folder,
                       name);
    }
    return DP_OK;
}

/* What a link leads to, which has to lie in the data folder. */
static dp_status follow_link(const struct dp_class_folders *f, const char *path, enum kind *kind)
{
    const size_t length = strlen(f->root);
    char target[PATH_MAX];
    struct stat info;

    if (realpath(path, target) == NULL || stat(target, &info) != 0) {
        return DP_FAIL(DP_ERR_DATA, "%s: a link that leads nowhere (%s): take it out", path,
                       strerror(errno));
    }
    if (strncmp(target, f->root, length) != 0 || (target[length] != '/' && f->root[1] != '\0')) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: a link out of the data folder, to %s: put a copy in its place", path,
                       target);
    }
    *kind = S_ISDIR(info.st_mode) ? FOLDER_ENTRY : S_ISREG(info.st_mode) ? FILE_ENTRY : OTHER_ENTRY;
    return DP_OK;
}

static dp_status kind_of(const struct dp_class_folders *f, const char *folder,
                         const struct dirent *entry, enum kind *kind)
{
    char path[DP_PATH_BYTES];
    struct stat info;

    if (entry->d_type == DT_DIR || entry->d_type == DT_REG) {
        *kind = entry->d_type == DT_DIR ? FOLDER_ENTRY : FILE_ENTRY;
        return DP_OK;
    }
    DP_TRY(dp_file_join(path, folder, entry->d_name));
    if (lstat(path, &info) != 0) {
        return DP_FAIL(DP_ERR_NOINPUT, "%s: %s", path, strerror(errno));
    }
    if (S_ISLNK(info.st_mode)) {
        return follow_link(f, path, kind);
    }
    *kind = S_ISDIR(info.st_mode) ? FOLDER_ENTRY : S_ISREG(info.st_mode) ? FILE_ENTRY : OTHER_ENTRY;
    return DP_OK;
}

static bool is_picture(const char *name)
{
    const char *end = strrchr(name, '.');

    return end != NULL && (strcasecmp(end, ".png") == 0 || strcasecmp(end, ".jpg") == 0 ||
                           strcasecmp(end, ".jpeg") == 0);
}

static bool is_among(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Takes an entry into the list if it is of the wanted kind: a folder, or a picture. */
static dp_status take_entry(struct dp_class_folders *f, const char *folder,
                            const struct dirent *entry, enum kind wanted, struct dp_name_list *list)
{
    enum kind kind = OTHER_ENTRY;

    if (entry->d_name[0] == '.' ||
        is_among(entry->d_name, litter, sizeof(litter) / sizeof(litter[0]))) {
        return DP_OK;
    }
    DP_TRY(kind_of(f, folder, entry, &kind));
    if (kind == wanted && (kind == FOLDER_ENTRY || is_picture(entry->d_name))) {
        DP_TRY(check_name(folder, entry->d_name));
        return dp_name_list_add(list, entry->d_name) ? DP_OK : no_memory(folder);
    }
    if (wanted == FILE_ENTRY) {
        f->left_folders += kind == FOLDER_ENTRY;
        if (f->left_out++ == 0) {
            (void)dp_text_clean(entry->d_name, f->example, sizeof(f->example));
        }
    }
    return DP_OK;
}

/* The folders, or the pictures, of a folder, sorted. */
static dp_status list_folder(struct dp_class_folders *f, const char *folder, enum kind wanted,
                             struct dp_name_list *list)
{
    DIR *entries = opendir(folder);
    const struct dirent *entry;
    dp_status status = DP_OK;

    if (entries == NULL) {
        return DP_FAIL(DP_ERR_NOINPUT, "%s: %s", folder, strerror(errno));
    }
    errno = 0;
    while (status == DP_OK && (entry = readdir(entries)) != NULL) {
        status = take_entry(f, folder, entry, wanted, list);
        errno = 0;
    }
    if (status == DP_OK && errno != 0) {
        status = DP_FAIL(DP_ERR_NOINPUT, "%s: %s", folder, strerror(errno));
    }
    (void)closedir(entries);
    DP_TRY(status);
    return dp_name_list_sort(list) ? DP_OK : no_memory(folder);
}

static dp_status make_set(struct dp_class_folders *f, struct set *set)
{
    set->pictures = dp_zalloc(f->classes.count, sizeof(*set->pictures));
    set->before = dp_zalloc(f->classes.count + 1, sizeof(*set->before));
    return set->pictures != NULL && set->before != NULL ? DP_OK : no_memory(set->path);
}

/* A class without pictures, of which so many entries were left out, folders among them. */
static dp_status refuse_class(const char *path, size_t left_out, size_t folders)
{
    if (folders > 0) {
        return DP_FAIL(
            DP_ERR_DATA,
            "%s: has folders, but no PNG or JPEG: pictures of a class lie directly in "
            "its folder; set data.dir to the folder of classes, or to that of sets, which are "
            "named train and test",
            path);
    }
    return DP_FAIL(DP_ERR_DATA, "%s: a class without a PNG or JPEG: %s", path,
                   left_out > 0 ? "convert what is there to one of them, or take the folder out"
                                : "put pictures there, or take the folder out");
}

/* The pictures of class `number`, in the set's folder of that name. */
static dp_status list_class(struct dp_class_folders *f, struct set *set, size_t number)
{
    struct dp_name_list *pictures = &set->pictures[number];
    const size_t left_out = f->left_out, folders = f->left_folders;
    char path[DP_PATH_BYTES];

    DP_TRY(dp_file_join(path, set->path, f->classes.at[number]));
    DP_TRY(list_folder(f, path, FILE_ENTRY, pictures));
    return pictures->count > 0
               ? DP_OK
               : refuse_class(path, f->left_out - left_out, f->left_folders - folders);
}

static void count_pictures(const struct dp_class_folders *f, struct set *set)
{
    for (size_t i = 0; i < f->classes.count; i++) {
        set->before[i + 1] = set->before[i] + set->pictures[i].count;
    }
}

static dp_status list_train(struct dp_class_folders *f)
{
    struct set *set = &f->sets[DP_SET_TRAIN];

    DP_TRY(make_set(f, set));
    for (size_t i = 0; i < f->classes.count; i++) {
        DP_TRY(list_class(f, set, i));
    }
    count_pictures(f, set);
    return DP_OK;
}

static dp_status list_test(struct dp_class_folders *f, const struct dp_name_list *folders)
{
    struct set *set = &f->sets[DP_SET_TEST];

    DP_TRY(make_set(f, set));
    for (size_t i = 0; i < folders->count; i++) {
        const size_t number = dp_name_list_find(&f->classes, folders->at[i]);
        if (number == f->classes.count) {
            return DP_FAIL(DP_ERR_DATA,
                           "%s/%s: a class that is only in %s: put pictures of it into %s/%s, or "
                           "take it out",
                           set->path, folders->at[i], f->test_name, f->sets[DP_SET_TRAIN].path,
                           folders->at[i]);
        }
        DP_TRY(list_class(f, set, number));
    }
    count_pictures(f, set);
    return DP_OK;
}

/* Whether a folder is there; a link counts as what it leads to. */
static dp_status has_folder(const struct dp_class_folders *f, const char *path, bool *has)
{
    enum kind kind = OTHER_ENTRY;
    struct stat info;

    if (lstat(path, &info) == 0) {
        DP_TRY(follow_link(f, path, &kind));
    }
    *has = kind == FOLDER_ENTRY;
    return DP_OK;
}

/* Whether the folders of classes are those of sets instead, whose pictures lie in them directly. */
static bool are_sets(const struct dp_name_list *classes)
{
    for (size_t i = 0; i < classes->count; i++) {
        if (!is_among(classes->at[i], set_names, sizeof(set_names) / sizeof(set_names[0]))) {
            return false;
        }
    }
    return true;
}

/* Whether the classes lie in DIR/train, rather than in DIR, where a class may have that name. */
static dp_status find_classes(struct dp_class_folders *f, const char *dir)
{
    struct set *train = &f->sets[DP_SET_TRAIN];
    bool has;

    DP_TRY(dp_file_join(train->path, dir, "train"));
    DP_TRY(has_folder(f, train->path, &has));
    if (has) {
        DP_TRY(list_folder(f, train->path, FOLDER_ENTRY, &f->classes));
        if (f->classes.count > 0) {
            return DP_OK;
        }
    }
    dp_name_list_release(&f->classes);
    (void)snprintf(train->path, sizeof(train->path), "%s", dir);
    DP_TRY(list_folder(f, dir, FOLDER_ENTRY, &f->classes));
    if (are_sets(&f->classes)) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: no folders of classes: pictures are wanted in %s/train/CLASS and "
                       "%s/test/CLASS, or in %s/CLASS with data.test_fraction",
                       dir, dir, dir, dir);
    }
    return DP_OK;
}

/* Finds the folder of the test set beside DIR/train. */
static dp_status find_test(struct dp_class_folders *f, const char *dir, bool other_names, bool *has)
{
    struct set *test = &f->sets[DP_SET_TEST];
    const size_t names = other_names ? sizeof(set_names) / sizeof(set_names[0]) - 1 : 1;

    *has = false;
    for (size_t i = 0; i < names && !*has; i++) {
        f->test_name = set_names[i];
        DP_TRY(dp_file_join(test->path, dir, f->test_name));
        DP_TRY(has_folder(f, test->path, has));
    }
    return DP_OK;
}

static dp_status list_all(struct dp_class_folders *f, const char *dir, bool other_names)
{
    struct set *test = &f->sets[DP_SET_TEST];
    struct dp_name_list folders = {NULL, 0, NULL, 0, 0};
    bool has_test = false;
    struct stat info;
    dp_status status;

    if (realpath(dir, f->root) == NULL || stat(f->root, &info) != 0) {
        return DP_FAIL(DP_ERR_NOINPUT, "%s: %s: set data.dir to the folder of the pictures", dir,
                       strerror(errno));
    }
    if (!S_ISDIR(info.st_mode)) {
        return DP_FAIL(DP_ERR_NOINPUT,
                       "%s: Not a directory: set data.dir to the folder of the pictures; unpack an "
                       "archive first",
                       dir);
    }
    DP_TRY(find_classes(f, dir));
    DP_TRY(list_train(f));
    if (strcmp(f->sets[DP_SET_TRAIN].path, dir) != 0) {
        DP_TRY(find_test(f, dir, other_names, &has_test));
    }
    if (!has_test) {
        f->test_name = set_names[0];
        return make_set(f, test); /* without pictures */
    }
    status = list_folder(f, test->path, FOLDER_ENTRY, &folders);
    if (status == DP_OK && folders.count == 0 && other_names) { /* else a part is split off */
        status = DP_FAIL(DP_ERR_DATA,
                         "%s: has no folders of classes, as %s has: sort its pictures into them, "
                         "or set data.test_fraction",
                         test->path, f->sets[DP_SET_TRAIN].path);
    }
    status = status == DP_OK ? list_test(f, &folders) : status;
    dp_name_list_release(&folders);
    return status;
}

dp_status dp_class_folders_create(const char *dir, bool other_names, struct dp_class_folders **out)
{
    struct dp_class_folders *f = dp_zalloc(1, sizeof(*f));
    dp_status status;

    if (f == NULL) {
        return no_memory(dir);
    }
    status = list_all(f, dir, other_names);
    if (status != DP_OK) {
        dp_class_folders_destroy(f);
        return status;
    }
    *out = f;
    return DP_OK;
}

void dp_class_folders_destroy(struct dp_class_folders *f)
{
    if (f == NULL) {
        return;
    }
    for (int set = 0; set < DP_SETS; set++) {
        for (size_t i = 0; f->sets[set].pictures != NULL && i < f->classes.count; i++) {
            dp_name_list_release(&f->sets[set].pictures[i]);
        }
        dp_free(f->sets[set].pictures);
        dp_free(f->sets[set].before);
    }
    dp_name_list_release(&f->classes);
    dp_free(f);
}

int dp_class_folders_classes(const struct dp_class_folders *f)
{
    return (int)f->classes.count;
}

const char *const *dp_class_folders_names(const struct dp_class_folders *f)
{
    return f->classes.at;
}

size_t dp_class_folders_count(const struct dp_class_folders *f, enum dp_set set)
{
    return f->sets[set].before[f->classes.count];
}

const char *dp_class_folders_test_name(const struct dp_class_folders *f)
{
    return f->test_name;
}

const char *dp_class_folders_left_out(const struct dp_class_folders *f, size_t *count,
                                      size_t *below)
{
    *count = f->left_out;
    *below = f->left_folders;
    return f->example;
}

int dp_class_folders_path(const struct dp_class_folders *f, enum dp_set set, size_t row,
                          char path[DP_PATH_BYTES])
{
    const struct set *s = &f->sets[set];
    size_t low = 0, high = f->classes.count - 1;

    while (low < high) { /* the last class with no more than `row` pictures before it */
        const size_t middle = low + (high - low + 1) / 2;
        if (s->before[middle] <= row) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    (void)snprintf(path, DP_PATH_BYTES, "%s/%s/%s", s->path, f->classes.at[low],
                   s->pictures[low].at[row - s->before[low]]);
    return (int)low;
}
