/*
 * source_cifar10.c - CIFAR-10's binary version: data_batch_1.bin and so on, test_batch.bin, and the
 * names of the classes in batches.meta.txt, if it is there.
 */
#include <stdio.h>
#include <string.h>

#include "base/files/file.h"
#include "base/mem.h"
#include "runtime/data/formats/cifar10.h"
#include "runtime/data/formats/data_file.h"
#include "runtime/data/source.h"

enum {
    BATCHES_MOST = 1000,
    NAME_BYTES = 32,
    NAMES_MOST = 4096 /* bytes of batches.meta.txt */
};

static const char test_name[] = "test_batch.bin", names_name[] = "batches.meta.txt";

struct cifar10 {
    struct dp_data_file batches[BATCHES_MOST];
    size_t before[BATCHES_MOST + 1]; /* records of the batches before */
    int count;                       /* of batches */
    struct dp_data_file test;
    char names[DP_CIFAR10_CLASSES][DP_CIFAR10_NAME];
    const char *name_list[DP_CIFAR10_CLASSES];
};

/* ---- opening ---- */

static const char *batch_name(int i, char name[NAME_BYTES])
{
    (void)snprintf(name, NAME_BYTES, "data_batch_%d.bin", i + 1);
    return name;
}

static dp_status open_records(struct dp_data_file *file, const char *dir, const char *name,
                              size_t *records)
{
    DP_TRY(dp_data_file_open(file, dir, name));
    *records = file->bytes / DP_CIFAR10_RECORD;
    if (*records == 0 || file->bytes % DP_CIFAR10_RECORD != 0) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: has %zu bytes, which are no records of %d: it is cut off, or not of "
                       "CIFAR-10's binary version: fetch it again",
                       file->path, file->bytes, DP_CIFAR10_RECORD);
    }
    return DP_OK;
}

/* A batch that is missing between others is an error, and no smaller set. */
static dp_status check_gap(const char *dir, int count)
{
    char name[NAME_BYTES], missing[NAME_BYTES];

    for (int i = count + 1; i < count + 10; i++) {
        if (dp_data_file_exists(dir, batch_name(i, name))) {
            return DP_FAIL(DP_ERR_NOINPUT, "%s: %s is there, but no %s: fetch it again", dir, name,
                           batch_name(count, missing));
        }
    }
    return DP_OK;
}

static dp_status open_batches(struct cifar10 *c, const char *dir)
{
    char name[NAME_BYTES];
    size_t records;

    while (c->count < BATCHES_MOST && dp_data_file_exists(dir, batch_name(c->count, name))) {
        const int i = c->count++;
        DP_TRY(open_records(&c->batches[i], dir, name, &records));
        c->before[i + 1] = c->before[i] + records;
    }
    DP_TRY(check_gap(dir, c->count));
    return c->count > 0 ? DP_OK
                        : dp_data_file_missing(
                              dir, "data_batch_1.bin",
                              "put the files of cifar-10-binary.tar.gz there, or set data.dir");
}

static dp_status read_names(struct cifar10 *c, const char *dir)
{
    struct dp_problem problem;
    char path[DP_PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    dp_status status;

    DP_TRY(dp_file_join(path, dir, names_name));
    DP_TRY(dp_file_read(path, NAMES_MOST, &text, &bytes));
    status = dp_cifar10_names(text, bytes, c->names, &problem);
    dp_free(text);
    for (int i = 0; i < DP_CIFAR10_CLASSES; i++) {
        c->name_list[i] = c->names[i];
    }
    return status == DP_OK ? DP_OK : DP_FAIL(status, "%s: %s", path, problem.text);
}

static dp_status open_all(struct cifar10 *c, const char *dir, struct dp_source_info *info)
{
    DP_TRY(open_batches(c, dir));
    info->count[DP_SET_TRAIN] = c->before[c->count];
    if (dp_data_file_exists(dir, test_name)) {
        DP_TRY(open_records(&c->test, dir, test_name, &info->count[DP_SET_TEST]));
    }
    if (dp_data_file_exists(dir, names_name)) {
        DP_TRY(read_names(c, dir));
        info->class_names = c->name_list;
    }
    info->classes = DP_CIFAR10_CLASSES;
    info->shape = (struct dp_sample_shape){.height = DP_CIFAR10_SIDE,
                                           .width = DP_CIFAR10_SIDE,
                                           .channels = 3,
                                           .count = DP_CIFAR10_IMAGE,
                                           .element = DP_ELEMENT_BYTE};
    return DP_OK;
}

static void cifar10_close(void *state)
{
    struct cifar10 *c = state;

    for (int i = 0; i < c->count; i++) {
        dp_data_file_close(&c->batches[i]);
    }
    dp_data_file_close(&c->test);
    c->count = 0;
}

static dp_status cifar10_open(void *state, const struct dp_source_config *config,
                              struct dp_source_info *info)
{
    struct dp_source_info found = {.classes = 0};
    dp_status status;

    if (config->dir == NULL || config->dir[0] == '\0') {
        return DP_FAIL(DP_ERR_CONFIG, "data.dir: source cifar10 needs the folder of its files");
    }
    status = open_all(state, config->dir, &found);
    if (status != DP_OK) {
        cifar10_close(state);
        return status;
    }
    *info = found;
    return DP_OK;
}

/* ---- reading ---- */

/* The file of a sample, and its place there. */
static const struct dp_data_file *file_of(const struct cifar10 *c, enum dp_set set, size_t *row)
{
    int i = 0;

    if (set == DP_SET_TEST) {
        return &c->test;
    }
    while (c->before[i + 1] <= *row) {
        i++;
    }
    *row -= c->before[i];
    return &c->batches[i];
}

static dp_status cifar10_fetch(void *state, struct dp_fetcher *fetcher, enum dp_set set, size_t row,
                               struct dp_raw *raw)
{
    const struct cifar10 *c = state;
    const struct dp_data_file *file = file_of(c, set, &row);
    uint8_t *record, *image;

    if (!dp_buffer_reserve(&fetcher->bytes, DP_CIFAR10_RECORD) ||
        !dp_buffer_reserve(&fetcher->more, DP_CIFAR10_IMAGE)) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: an image", file->path);
    }
    record = fetcher->bytes.data;
    image = fetcher->more.data;
    DP_TRY(dp_data_file_read(file, row * DP_CIFAR10_RECORD, record, DP_CIFAR10_RECORD));
    if (record[0] >= DP_CIFAR10_CLASSES) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: image %zu (counted from 0): label %d is not one of 0 to 9: the file is "
                       "damaged, fetch it again",
                       file->path, row, record[0]);
    }
    dp_cifar10_interleave(record + 1, image);
    *raw = (struct dp_raw){.kind = DP_RAW_ARRAY,
                           .data = image,
                           .bytes = DP_CIFAR10_IMAGE,
                           .shape = {.height = DP_CIFAR10_SIDE,
                                     .width = DP_CIFAR10_SIDE,
                                     .channels = 3,
                                     .count = DP_CIFAR10_IMAGE},
                           .label = (double)record[0]};
    return DP_OK;
}

static void cifar10_name(const void *state, enum dp_set set, size_t row, char *text, size_t size)
{
    const struct dp_data_file *file = file_of(state, set, &row);

    (void)snprintf(text, size, "%s: image %zu (counted from 0)", file->path, row);
}

const struct dp_source dp_source_cifar10 = {
    .plugin = {.name = "cifar10",
               .help = "CIFAR-10's binary version in data.dir: data_batch_1.bin ..., "
                       "test_batch.bin; 32x32x3",
               .options = NULL,
               .state_bytes = sizeof(struct cifar10)},
    .open = cifar10_open,
    .fetch = cifar10_fetch,
    .name = cifar10_name,
    .close = cifar10_close,
};
