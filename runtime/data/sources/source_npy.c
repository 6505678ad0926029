/*
 * source_npy.c - arrays as numpy.save writes them: train_images.npy and train_labels.npy,
 * test_images.npy and test_labels.npy.
 */
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/mem.h"
#include "runtime/data/formats/data_file.h"
#include "runtime/data/formats/npy.h"
#include "runtime/data/source.h"

enum part { IMAGES, LABELS, PARTS };

static const char *const names[DP_SETS][PARTS] = {
    {"train_images.npy", "train_labels.npy"},
    {"test_images.npy", "test_labels.npy"},
};

struct array {
    struct dp_data_file file;
    struct dp_npy npy;
};

struct arrays {
    struct array of[DP_SETS][PARTS];
    size_t targets; /* numbers of a label that is not a class; 0: it is one number */
};

/* ---- opening ---- */

static dp_status refuse(const struct array *array, const struct dp_problem *problem)
{
    return DP_FAIL(DP_ERR_DATA, "%s: %s", array->file.path, problem->text);
}

static dp_status open_array(struct array *array, const char *dir, const char *name)
{
    struct dp_problem problem;
    dp_status status;
    uint8_t *head;
    size_t count;

    if (!dp_data_file_exists(dir, name)) {
        return dp_data_file_missing(dir, name, "save it there with numpy.save, or set data.dir");
    }
    DP_TRY(dp_data_file_open(&array->file, dir, name));
    count = array->file.bytes < DP_NPY_HEAD ? array->file.bytes : DP_NPY_HEAD;
    head = dp_zalloc(1, DP_NPY_HEAD);
    if (head == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: header", array->file.path);
    }
    status = dp_data_file_read(&array->file, 0, head, count);
    if (status == DP_OK &&
        dp_npy_parse(head, count, array->file.bytes, &array->npy, &problem) != DP_OK) {
        status = refuse(array, &problem);
    }
    dp_free(head);
    return status;
}

/* Bytes or float32: [rows, features], [rows, height, width] or [rows, height, width, channels]. */
static dp_status check_images(const struct array *images)
{
    const struct dp_npy *npy = &images->npy;
    char type[16];

    if (npy->width != (npy->kind == DP_NPY_FLOAT ? sizeof(float) : 1) ||
        npy->kind == DP_NPY_SIGNED) {
        dp_npy_type_text(npy, type);
        return DP_FAIL(DP_ERR_DATA,
                       "%s: holds %s: save it with astype('float32'), or 'uint8' for 0 to 255",
                       images->file.path, type);
    }
    if (npy->dims < 2 || npy->dims > 4) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: has %d dimension%s: save it as [rows, features] or [rows, height, "
                       "width, channels]",
                       images->file.path, npy->dims, npy->dims == 1 ? "" : "s");
    }
    for (int i = 1; i < npy->dims; i++) {
        if (npy->dim[i] == 0 || npy->dim[i] > INT_MAX) {
            return DP_FAIL(DP_ERR_DATA, "%s: its rows have a dimension of %zu: save it again",
                           images->file.path, npy->dim[i]);
        }
    }
    return DP_OK;
}

/* How many numbers a label may have; where there is no model, as in ddp_data, any number. */
static dp_status check_labels(const struct array *labels, const struct array *images,
                              const struct dp_source_config *config)
{
    const struct dp_npy *npy = &labels->npy;
    const size_t targets = config->input.count > 0 ? config->targets : npy->count;

    if (npy->count != 1 && npy->rows > 0 && targets > 0 && npy->count != targets) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: has %zu numbers a row, the model has %zu output%s: give its last dense "
                       "layer units: %zu, or save labels as [rows, %zu]",
                       labels->file.path, npy->count, targets, targets == 1 ? "" : "s", npy->count,
                       targets);
    }
    if (npy->count != 1 && npy->rows > 0 && targets == 0) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: has %zu numbers a row, a label is one: save labels as [rows] (of "
                       "one-hot rows argmax(1))",
                       labels->file.path, npy->count);
    }
    if (npy->rows != images->npy.rows) {
        return DP_FAIL(DP_ERR_DATA, "%s: has %zu labels, and %s %zu rows: save both again",
                       labels->file.path, npy->rows, images->file.path, images->npy.rows);
    }
    if (npy->rows == 0) {
        return DP_FAIL(DP_ERR_DATA, "%s: has no rows", images->file.path);
    }
    return DP_OK;
}

static struct dp_sample_shape shape_of(const struct dp_npy *npy)
{
    struct dp_sample_shape shape = {.count = npy->count,
                                    .element = npy->kind == DP_NPY_FLOAT ? DP_ELEMENT_FLOAT
                                                                         : DP_ELEMENT_BYTE};

    if (npy->dims > 2) {
        shape.height = (int)npy->dim[1];
        shape.width = (int)npy->dim[2];
        shape.channels = npy->dims == 4 ? (int)npy->dim[3] : 1;
    }
    return shape;
}

static dp_status check_same(const struct array *train, const struct array *test)
{
    const struct dp_npy *a = &train->npy, *b = &test->npy;
    bool same = a->dims == b->dims && a->kind == b->kind;

    for (int i = 1; same && i < a->dims; i++) {
        same = a->dim[i] == b->dim[i];
    }
    return same ? DP_OK
                : DP_FAIL(DP_ERR_DATA,
                          "%s: its rows are of another shape or type than those of %s: save both "
                          "alike",
                          test->file.path, train->file.path);
}

static dp_status open_set(struct arrays *a, const struct dp_source_config *config, enum dp_set set)
{
    struct array *of = a->of[set];

    for (int part = 0; part < PARTS; part++) {
        DP_TRY(open_array(&of[part], config->dir, names[set][part]));
    }
    DP_TRY(check_images(&of[IMAGES]));
    return check_labels(&of[LABELS], &of[IMAGES], config);
}

/* A label of several numbers in one set is one in both. */
static dp_status check_same_labels(const struct array *train, const struct array *test)
{
    return train->npy.count == test->npy.count
               ? DP_OK
               : DP_FAIL(DP_ERR_DATA, "%s: has %zu numbers a row, and %s %zu: save both alike",
                         test->file.path, test->npy.count, train->file.path, train->npy.count);
}

static dp_status open_all(struct arrays *a, const struct dp_source_config *config,
                          struct dp_source_info *info)
{
    const char *dir = config->dir;
    const char *const *test = names[DP_SET_TEST];

    DP_TRY(open_set(a, config, DP_SET_TRAIN));
    a->targets = a->of[DP_SET_TRAIN][LABELS].npy.count;
    a->targets = a->targets > 1 ? a->targets : 0;
    info->targets = a->targets;
    info->shape = shape_of(&a->of[DP_SET_TRAIN][IMAGES].npy);
    info->count[DP_SET_TRAIN] = a->of[DP_SET_TRAIN][IMAGES].npy.rows;
    if (!dp_data_file_exists(dir, test[IMAGES]) && !dp_data_file_exists(dir, test[LABELS])) {
        return DP_OK;
    }
    DP_TRY(open_set(a, config, DP_SET_TEST));
    DP_TRY(check_same_labels(&a->of[DP_SET_TRAIN][LABELS], &a->of[DP_SET_TEST][LABELS]));
    info->count[DP_SET_TEST] = a->of[DP_SET_TEST][IMAGES].npy.rows;
    return check_same(&a->of[DP_SET_TRAIN][IMAGES], &a->of[DP_SET_TEST][IMAGES]);
}

static void npy_close(void *state)
{
    struct arrays *a = state;

    for (int set = 0; set < DP_SETS; set++) {
        for (int part = 0; part < PARTS; part++) {
            dp_data_file_close(&a->of[set][part].file);
        }
    }
}

static dp_status npy_open(void *state, const struct dp_source_config *config,
                          struct dp_source_info *info)
{
    struct dp_source_info found = {.classes = 0};
    dp_status status;

    if (config->dir == NULL || config->dir[0] == '\0') {
        return DP_FAIL(DP_ERR_CONFIG, "data.dir: source npy needs the folder of its arrays");
    }
    status = open_all(state, config, &found);
    if (status != DP_OK) {
        npy_close(state);
        return status;
    }
    *info = found;
    return DP_OK;
}

/* ---- reading ---- */

/* Row `row` of an array into memory of at least its size. */
static dp_status read_row(const struct array *array, size_t row, void *out)
{
    const struct dp_npy *npy = &array->npy;
    const size_t bytes = npy->count * npy->width;

    return dp_data_file_read(&array->file, npy->begin + row * bytes, out, bytes);
}

static dp_status npy_fetch(void *state, struct dp_fetcher *fetcher, enum dp_set set, size_t row,
                           struct dp_raw *raw)
{
    const struct arrays *a = state;
    const struct array *images = &a->of[set][IMAGES], *labels = &a->of[set][LABELS];
    const size_t bytes = images->npy.count * images->npy.width, count = labels->npy.count;
    double *label;
    char *numbers; /* of the label, as they are in the file */

    if (!dp_buffer_reserve(&fetcher->bytes, bytes) ||
        !dp_buffer_reserve(&fetcher->more, count * (sizeof(*label) + labels->npy.width))) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: a row of %zu bytes", images->file.path, bytes);
    }
    label = fetcher->more.data;
    numbers = (char *)fetcher->more.data + count * sizeof(*label);
    DP_TRY(read_row(images, row, fetcher->bytes.data));
    DP_TRY(read_row(labels, row, numbers));
    for (size_t i = 0; i < count; i++) {
        label[i] = dp_npy_number(&labels->npy, numbers, i);
    }
    *raw = (struct dp_raw){.kind = DP_RAW_ARRAY,
                           .data = fetcher->bytes.data,
                           .bytes = bytes,
                           .shape = shape_of(&images->npy),
                           .label = *label,
                           .targets = a->targets > 1 ? label : NULL};
    return DP_OK;
}

static void name_row(const struct array *array, size_t row, char *text, size_t size)
{
    (void)snprintf(text, size, "%s: row %zu (counted from 0)", array->file.path, row);
}

static void npy_name(const void *state, enum dp_set set, size_t row, char *text, size_t size)
{
    const struct arrays *a = state;

    name_row(&a->of[set][IMAGES], row, text, size);
}

static void npy_name_label(const void *state, enum dp_set set, size_t row, char *text, size_t size)
{
    const struct arrays *a = state;

    name_row(&a->of[set][LABELS], row, text, size);
}

const struct dp_source dp_source_npy = {
    .plugin = {.name = "npy",
               .help = "train_images.npy, train_labels.npy, test_... in data.dir; uint8 or "
                       "float32, [rows, features] or NHWC",
               .options = NULL,
               .state_bytes = sizeof(struct arrays)},
    .open = npy_open,
    .fetch = npy_fetch,
    .name = npy_name,
    .name_label = npy_name_label,
    .close = npy_close,
};
