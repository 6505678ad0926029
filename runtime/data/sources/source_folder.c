/*
 * source_folder.c - pictures in folders of classes, as they are: see class_folders.h.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/trace.h"
#include "runtime/data/formats/class_folders.h"
#include "runtime/data/pictures/pixels.h"
#include "runtime/data/source.h"

struct pictures {
    struct dp_class_folders *folders; /* owned */
};

/* What is worth a warning. */
static void put_note(const struct pictures *p, struct dp_source_info *info)
{
    const char *test = dp_class_folders_test_name(p->folders);
    size_t left_out, folders;
    const char *example = dp_class_folders_left_out(p->folders, &left_out, &folders);
    int length = 0;

    if (strcmp(test, "test") != 0) {
        length = snprintf(info->note, sizeof(info->note), "there is no folder test: %s is taken%s",
                          test, left_out > 0 ? "; " : "");
    }
    if (left_out > 0) {
        (void)snprintf(
            info->note + length, sizeof(info->note) - (size_t)length,
            "%zu entr%s of class folders %s left out, for being no PNG or JPEG%s: %s%.60s",
            left_out, left_out == 1 ? "y" : "ies", left_out == 1 ? "is" : "are",
            folders > 0 ? " directly in them" : "", left_out == 1 ? "" : "for one, ", example);
    }
}

static dp_status folder_open(void *state, const struct dp_source_config *config,
                             struct dp_source_info *info)
{
    struct pictures *p = state;

    if (config->dir == NULL || config->dir[0] == '\0') {
        return DP_FAIL(DP_ERR_CONFIG, "data.dir: source folder needs the folder of its pictures");
    }
    DP_TRY(dp_class_folders_create(config->dir, config->test_fraction <= 0.0, &p->folders));
    *info = (struct dp_source_info){.classes = dp_class_folders_classes(p->folders),
                                    .class_names = dp_class_folders_names(p->folders)};
    for (int set = 0; set < DP_SETS; set++) {
        info->count[set] = dp_class_folders_count(p->folders, (enum dp_set)set);
    }
    put_note(p, info);
    return DP_OK;
}

static dp_status read_file(const char *path, struct dp_buffer *memory, size_t *bytes)
{
    size_t length;
    dp_status status;
    int fd;

    DP_TRY(dp_file_open(path, &fd, &length));
    if (length > DP_PICTURE_FILE) {
        status = DP_FAIL(DP_ERR_DATA, "%s: has %zu bytes, at most %d are taken", path, length,
                         DP_PICTURE_FILE);
    } else if (!dp_buffer_reserve(memory, length)) {
        status = DP_FAIL(DP_ERR_NOMEM, "%s: has %zu bytes", path, length);
    } else {
        status = dp_file_take(fd, path, memory->data, length, bytes);
    }
    (void)close(fd);
    return status;
}

static dp_status folder_fetch(void *state, struct dp_fetcher *fetcher, enum dp_set set, size_t row,
                              struct dp_raw *raw)
{
    const struct pictures *p = state;
    const uint8_t *kept = dp_kept_unit(fetcher, set, row);
    char path[DP_PATH_BYTES];
    const int label = dp_class_folders_path(p->folders, set, row, path);
    size_t bytes = 0;

    if (kept != NULL) {
        bytes = (size_t)(fetcher->kept->at[set][row + 1] - fetcher->kept->at[set][row]);
    } else {
        const uint64_t begin_ns = dp_now_ns();
        DP_TRY(read_file(path, &fetcher->bytes, &bytes));
        fetcher->read_ns += dp_now_ns() - begin_ns;
        fetcher->read_bytes += bytes;
        kept = fetcher->bytes.data;
    }
    *raw = (struct dp_raw){.kind = DP_RAW_PICTURE, .data = kept, .bytes = bytes, .label = label};
    return DP_OK;
}

/* ---- files as units ---- */

static size_t folder_units(const void *state, enum dp_set set)
{
    const struct pictures *p = state;

    return dp_class_folders_count(p->folders, set);
}

static size_t folder_unit_bytes(const void *state, enum dp_set set, size_t unit)
{
    const struct pictures *p = state;
    char path[DP_PATH_BYTES];
    struct stat info;

    (void)dp_class_folders_path(p->folders, set, unit, path);
    return stat(path, &info) == 0 && info.st_size > 0 && info.st_size <= DP_PICTURE_FILE
               ? (size_t)info.st_size
               : 0;
}

static dp_status folder_read_unit(const void *state, enum dp_set set, size_t unit, size_t bytes,
                                  uint8_t *out)
{
    const struct pictures *p = state;
    char path[DP_PATH_BYTES];
    size_t length, got = 0;
    dp_status status;
    int fd;

    (void)dp_class_folders_path(p->folders, set, unit, path);
    DP_TRY(dp_file_open(path, &fd, &length));
    status = dp_file_take(fd, path, out, bytes, &got);
    (void)close(fd);
    return status == DP_OK && (length != bytes || got != bytes)
               ? DP_FAIL(DP_ERR_DATA, "%s: changes while it is read", path)
               : status;
}

static void folder_name(const void *state, enum dp_set set, size_t row, char *text, size_t size)
{
    const struct pictures *p = state;
    char path[DP_PATH_BYTES];

    (void)dp_class_folders_path(p->folders, set, row, path);
    (void)snprintf(text, size, "%s", path);
}

static void folder_close(void *state)
{
    struct pictures *p = state;

    dp_class_folders_destroy(p->folders);
    p->folders = NULL;
}

const struct dp_source dp_source_folder = {
    .plugin = {.name = "folder",
               .help = "PNG and JPEG in data.dir/train/CLASS and data.dir/test/CLASS, or in "
                       "data.dir/CLASS with data.test_fraction",
               .options = NULL,
               .state_bytes = sizeof(struct pictures)},
    .open = folder_open,
    .fetch = folder_fetch,
    .units = folder_units,
    .unit_bytes = folder_unit_bytes,
    .read_unit = folder_read_unit,
    .name = folder_name,
    .close = folder_close,
};
