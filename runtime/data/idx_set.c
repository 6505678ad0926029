#include "runtime/data/idx_set.h"

#include <assert.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const stems[DP_IDX_PARTS] = {
    [DP_IDX_TRAIN_IMAGES] = "train-images",
    [DP_IDX_TRAIN_LABELS] = "train-labels",
    [DP_IDX_TEST_IMAGES] = "t10k-images",
    [DP_IDX_TEST_LABELS] = "t10k-labels",
};

static bool is_images(int part)
{
    return part == DP_IDX_TRAIN_IMAGES || part == DP_IDX_TEST_IMAGES;
}

/* Writes the path of the file that holds `part`: false when there is none. */
static bool find_file(const char *dir, int part, char *path, size_t size)
{
    static const char *const images[] = {"-idx3-ubyte", "-idx3-ubyte.gz", "-idx4-ubyte",
                                         "-idx4-ubyte.gz", NULL};
    static const char *const labels[] = {"-idx1-ubyte", "-idx1-ubyte.gz", NULL};

    for (const char *const *end = is_images(part) ? images : labels; *end != NULL; end++) {
        const int length = snprintf(path, size, "%s/%s%s", dir, stems[part], *end);
        if (length > 0 && (size_t)length < size && access(path, F_OK) == 0) {
            return true;
        }
    }
    return false;
}

static dp_status check_images(const struct dp_idx *file, const struct dp_source_config *c)
{
    const struct dp_idx_header *h = dp_idx_header(file);
    const size_t channels = h->dims == 4 ? h->dim[3] : 1;
    const bool same = c->height == 0
                          ? h->row_bytes == c->sample_bytes
                          : h->dim[1] == (size_t)c->height && h->dim[2] == (size_t)c->width &&
                                channels == (size_t)c->channels;

    if (h->dims < 3) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: has %d dimensions, images have 3 (or 4, the last one for channels): "
                       "take the file of the images",
                       dp_idx_name(file), h->dims);
    }
    if (!same && c->height == 0) {
        return DP_FAIL(
            DP_ERR_DATA,
            "%s: images of %zux%zux%zu do not fit model.input of %zu: change model.input",
            dp_idx_name(file), h->dim[1], h->dim[2], channels, c->sample_bytes);
    }
    if (!same) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: images of %zux%zux%zu do not fit model.input of %dx%dx%d (height x "
                       "width x channels): change model.input",
                       dp_idx_name(file), h->dim[1], h->dim[2], channels, c->height, c->width,
                       c->channels);
    }
    return DP_OK;
}

/* Checks images and labels of one half of the set. */
static dp_status check_pair(const struct dp_idx *images, const struct dp_idx *labels,
                            const struct dp_source_config *config)
{
    const size_t image_rows = dp_idx_header(images)->rows;
    const size_t label_rows = dp_idx_header(labels)->rows;

    DP_TRY(check_images(images, config));
    if (dp_idx_header(labels)->dims != 1) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: has %d dimensions, labels have 1: take the file of the "
                       "labels",
                       dp_idx_name(labels), dp_idx_header(labels)->dims);
    }
    if (image_rows != label_rows) {
        return DP_FAIL(DP_ERR_DATA, "%s: has %zu images, but %s has %zu labels: fetch both again",
                       dp_idx_name(images), image_rows, dp_idx_name(labels), label_rows);
    }
    if (image_rows == 0) {
        return DP_FAIL(DP_ERR_DATA, "%s: has no rows: fetch it again", dp_idx_name(images));
    }
    return DP_OK;
}

static dp_status open_parts(struct dp_idx_set *set, const char *dir, const char *hint)
{
    char path[PATH_MAX];

    for (int part = 0; part < DP_IDX_PARTS; part++) {
        if (!find_file(dir, part, path, sizeof(path))) {
            return DP_FAIL(DP_ERR_NOINPUT, "%s: no %s-idx%d-ubyte, nor the same with .gz: %s", dir,
                           stems[part], is_images(part) ? 3 : 1, hint);
        }
        DP_TRY(dp_idx_create(path, &set->parts[part]));
    }
    return DP_OK;
}

dp_status dp_idx_set_open(struct dp_idx_set *set, const char *dir, const char *hint,
                          const struct dp_source_config *config, struct dp_source_info *info)
{
    dp_status status;

    assert(config->height == 0 || config->sample_bytes == (size_t)config->height *
                                                              (size_t)config->width *
                                                              (size_t)config->channels);
    DP_TRY_GOTO(open_parts(set, dir, hint), status, failed);
    DP_TRY_GOTO(
        check_pair(set->parts[DP_IDX_TRAIN_IMAGES], set->parts[DP_IDX_TRAIN_LABELS], config),
        status, failed);
    DP_TRY_GOTO(check_pair(set->parts[DP_IDX_TEST_IMAGES], set->parts[DP_IDX_TEST_LABELS], config),
                status, failed);
    set->classes = config->classes;
    info->train_count = dp_idx_header(set->parts[DP_IDX_TRAIN_IMAGES])->rows;
    info->test_count = dp_idx_header(set->parts[DP_IDX_TEST_IMAGES])->rows;
    info->sample_bytes = config->sample_bytes;
    return DP_OK;

failed:
    dp_idx_set_close(set);
    return status;
}

static dp_status load_images(struct dp_idx *file, uint8_t *out)
{
    const struct dp_idx_header *h = dp_idx_header(file);

    DP_TRY(dp_idx_read(file, out, h->rows * h->row_bytes));
    return dp_idx_finish(file);
}

/* Widens the bytes to int32, and refuses labels that the model has no output for. */
static dp_status load_labels(struct dp_idx *file, int classes, int32_t *out)
{
    const size_t rows = dp_idx_header(file)->rows;
    uint8_t bytes[4096];

    for (size_t row = 0; row < rows; row += sizeof(bytes)) {
        const size_t count = rows - row < sizeof(bytes) ? rows - row : sizeof(bytes);
        DP_TRY(dp_idx_read(file, bytes, count));
        for (size_t i = 0; i < count; i++) {
            if (bytes[i] >= classes) {
                return DP_FAIL(DP_ERR_DATA,
                               "%s: label %d of row %zu (counted from 0) is too large for %d "
                               "classes: give the model more outputs, or mend the file",
                               dp_idx_name(file), bytes[i], row + i, classes);
            }
            out[row + i] = bytes[i];
        }
    }
    return dp_idx_finish(file);
}

dp_status dp_idx_set_load(struct dp_idx_set *set, uint8_t *train_images, int32_t *train_labels,
                          uint8_t *test_images, int32_t *test_labels)
{
    /* Labels first: they are small, so their mistakes come at once. */
    DP_TRY(load_labels(set->parts[DP_IDX_TRAIN_LABELS], set->classes, train_labels));
    DP_TRY(load_labels(set->parts[DP_IDX_TEST_LABELS], set->classes, test_labels));
    DP_TRY(load_images(set->parts[DP_IDX_TEST_IMAGES], test_images));
    return load_images(set->parts[DP_IDX_TRAIN_IMAGES], train_images);
}

void dp_idx_set_close(struct dp_idx_set *set)
{
    for (int part = 0; part < DP_IDX_PARTS; part++) {
        dp_idx_destroy(set->parts[part]);
        set->parts[part] = NULL;
    }
}
