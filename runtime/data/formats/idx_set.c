#include "runtime/data/formats/idx_set.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/data/formats/data_file.h"

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

static dp_status check_images(const struct dp_idx *file)
{
    const struct dp_idx_header *h = dp_idx_header(file);

    if (h->dims < 3) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: has %d dimensions, images have 3 (or 4, the last one for channels): "
                       "take the file of the images",
                       dp_idx_name(file), h->dims);
    }
    for (int i = 1; i < h->dims; i++) {
        if (h->dim[i] == 0 || h->dim[i] > INT_MAX) {
            return DP_FAIL(DP_ERR_DATA, "%s: has impossible dimensions: it is damaged",
                           dp_idx_name(file));
        }
    }
    return DP_OK;
}

static struct dp_sample_shape shape_of(const struct dp_idx *file)
{
    const struct dp_idx_header *h = dp_idx_header(file);

    return (struct dp_sample_shape){.height = (int)h->dim[1],
                                    .width = (int)h->dim[2],
                                    .channels = h->dims == 4 ? (int)h->dim[3] : 1,
                                    .count = h->row_bytes,
                                    .element = DP_ELEMENT_BYTE};
}

/* Checks images and labels of one half of the set. */
static dp_status check_pair(const struct dp_idx *images, const struct dp_idx *labels)
{
    const size_t image_rows = dp_idx_header(images)->rows;
    const size_t label_rows = dp_idx_header(labels)->rows;

    DP_TRY(check_images(images));
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

/* Opens `count` of the files, from `first` on. */
static dp_status open_parts(struct dp_idx_set *set, const char *dir, const char *hint, int first,
                            int count)
{
    char path[PATH_MAX], name[64];

    for (int part = first; part < first + count; part++) {
        if (!find_file(dir, part, path, sizeof(path))) {
            (void)snprintf(name, sizeof(name), "%s-idx%d-ubyte, nor the same with .gz", stems[part],
                           is_images(part) ? 3 : 1);
            return dp_data_file_missing(dir, name, hint);
        }
        DP_TRY(dp_idx_create(path, &set->parts[part]));
    }
    return DP_OK;
}

static dp_status check_same_size(const struct dp_idx *train, const struct dp_idx *test)
{
    const struct dp_sample_shape a = shape_of(train), b = shape_of(test);

    if (a.height != b.height || a.width != b.width || a.channels != b.channels) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: images of %dx%dx%d, but %s has some of %dx%dx%d: fetch both again",
                       dp_idx_name(test), b.height, b.width, b.channels, dp_idx_name(train),
                       a.height, a.width, a.channels);
    }
    return DP_OK;
}

static dp_status open_train(struct dp_idx_set *set, const char *dir, const char *hint)
{
    DP_TRY(open_parts(set, dir, hint, DP_IDX_TRAIN_IMAGES, 2));
    return check_pair(set->parts[DP_IDX_TRAIN_IMAGES], set->parts[DP_IDX_TRAIN_LABELS]);
}

static dp_status open_test(struct dp_idx_set *set, const char *dir, const char *hint)
{
    struct dp_idx *const *parts = set->parts;

    DP_TRY(open_parts(set, dir, hint, DP_IDX_TEST_IMAGES, 2));
    DP_TRY(check_pair(parts[DP_IDX_TEST_IMAGES], parts[DP_IDX_TEST_LABELS]));
    return check_same_size(parts[DP_IDX_TRAIN_IMAGES], parts[DP_IDX_TEST_IMAGES]);
}

/* Without them samples are held out, where that is wanted. */
static bool lacks_test_files(const char *dir)
{
    char path[PATH_MAX];

    return !find_file(dir, DP_IDX_TEST_IMAGES, path, sizeof(path)) &&
           !find_file(dir, DP_IDX_TEST_LABELS, path, sizeof(path));
}

dp_status dp_idx_set_open(struct dp_idx_set *set, const char *dir, const char *hint,
                          const struct dp_source_config *config, struct dp_source_info *info)
{
    dp_status status;

    DP_TRY_GOTO(open_train(set, dir, hint), status, failed);
    if (config->test_fraction <= 0.0 || !lacks_test_files(dir)) {
        DP_TRY_GOTO(open_test(set, dir, hint), status, failed);
    }
    set->classes = config->classes;
    *info = (struct dp_source_info){.shape = shape_of(set->parts[DP_IDX_TRAIN_IMAGES])};
    info->count[DP_SET_TRAIN] = dp_idx_header(set->parts[DP_IDX_TRAIN_IMAGES])->rows;
    if (set->parts[DP_IDX_TEST_IMAGES] != NULL) {
        info->count[DP_SET_TEST] = dp_idx_header(set->parts[DP_IDX_TEST_IMAGES])->rows;
    }
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
            if (classes > 0 && bytes[i] >= classes) {
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

dp_status dp_idx_set_load(struct dp_idx_set *set, uint8_t *const images[DP_SETS],
                          int32_t *const labels[DP_SETS])
{
    struct dp_idx *const *parts = set->parts;
    const bool test = parts[DP_IDX_TEST_IMAGES] != NULL;

    /* Labels first: they are small, so their mistakes come at once. */
    DP_TRY(load_labels(parts[DP_IDX_TRAIN_LABELS], set->classes, labels[DP_SET_TRAIN]));
    if (test) {
        DP_TRY(load_labels(parts[DP_IDX_TEST_LABELS], set->classes, labels[DP_SET_TEST]));
        DP_TRY(load_images(parts[DP_IDX_TEST_IMAGES], images[DP_SET_TEST]));
    }
    return load_images(parts[DP_IDX_TRAIN_IMAGES], images[DP_SET_TRAIN]);
}

void dp_idx_set_close(struct dp_idx_set *set)
{
    for (int part = 0; part < DP_IDX_PARTS; part++) {
        dp_idx_destroy(set->parts[part]);
    }
}
