#include "runtime/checkpoint/safetensors.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors are little endian, and this machine is not"
#endif

enum {
    LENGTH_BYTES = 8,
    HEADER_MOST = 100 * 1000 * 1000 /* the reference implementation's limit */
};

struct dp_safetensors {
    char *source;
    char *bytes;            /* owned; NULL: the caller owns them */
    struct dp_json *header; /* names and types point into it */
    struct dp_stored *tensors;
    const struct dp_stored **by_name; /* sorted */
    int count;
};

size_t dp_stored_width(const char *type)
{
    static const struct {
        const char *name;
        size_t width;
    } types[] = {{"F32", 4}, {"I64", 8}, {"F16", 2}, {"BF16", 2},    {"F64", 8},
                 {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U8", 1},      {"BOOL", 1},
                 {"U16", 2}, {"U32", 4}, {"U64", 8}, {"F8_E5M2", 1}, {"F8_E4M3", 1}};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (strcmp(types[i].name, type) == 0) {
            return types[i].width;
        }
    }
    return 0;
}

bool dp_stored_measure(const struct dp_stored *tensor, size_t *bytes)
{
    size_t product = dp_stored_width(tensor->type);

    for (int i = 0; i < tensor->dims; i++) {
        if (tensor->shape[i] != 0 && product > SIZE_MAX / tensor->shape[i]) {
            return false;
        }
        product *= tensor->shape[i];
    }
    *bytes = product;
    return true;
}

const char *dp_stored_shape_text(int dims, const size_t *shape, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");

    for (int i = 0; i < dims && used < size; i++) {
        used += (size_t)snprintf(text + used, size - used, i == 0 ? "%zu" : ", %zu", shape[i]);
    }
    if (used < size) {
        (void)snprintf(text + used, size - used, "]");
    }
    return text;
}

/* A size from JSON: an integer that is not negative. */
static bool read_size(const struct dp_json *json, size_t *size)
{
    int64_t value = 0;

    if (!dp_json_int(json, &value) || value < 0) {
        return false;
    }
    *size = (size_t)value;
    return true;
}

/* Reads shape and type; `product` is the number of bytes that they imply. */
static dp_status read_form(const char *source, const struct dp_json *json, struct dp_stored *tensor,
                           size_t *product)
{
    const struct dp_json *shape = dp_json_get(json, "shape");

    tensor->type = dp_json_text(dp_json_get(json, "dtype"));
    if (tensor->type == NULL || dp_stored_width(tensor->type) == 0) {
        return DP_FAIL(DP_ERR_DATA, "%s: '%.100s': unknown element type '%.20s'", source,
                       tensor->name, tensor->type == NULL ? "" : tensor->type);
    }
    if (!dp_json_is_array(shape) || dp_json_length(shape) > DP_STORED_DIMS) {
        return DP_FAIL(DP_ERR_DATA, "%s: '%.100s': the shape is not a list of at most %d sizes",
                       source, tensor->name, DP_STORED_DIMS);
    }
    tensor->dims = (int)dp_json_length(shape);
    for (int i = 0; i < tensor->dims; i++) {
        if (!read_size(dp_json_at(shape, (size_t)i), &tensor->shape[i])) {
            return DP_FAIL(DP_ERR_DATA, "%s: '%.100s': size %d of the shape is not a size", source,
                           tensor->name, i);
        }
    }
    if (!dp_stored_measure(tensor, product)) {
        return DP_FAIL(DP_ERR_DATA, "%s: '%.100s' is larger than memory", source, tensor->name);
    }
    return DP_OK;
}

/* Reads one member of the header; `data` is the `size` bytes after it. */
static dp_status read_tensor(const char *source, const struct dp_json *json,
                             const unsigned char *data, size_t size, struct dp_stored *tensor)
{
    const struct dp_json *offsets = dp_json_get(json, "data_offsets");
    size_t begin = 0, end = 0, product = 0;

    DP_TRY(read_form(source, json, tensor, &product));
    if (dp_json_length(offsets) != 2 || !read_size(dp_json_at(offsets, 0), &begin) ||
        !read_size(dp_json_at(offsets, 1), &end) || begin > end) {
        return DP_FAIL(DP_ERR_DATA, "%s: '%.100s': data_offsets are not [begin, end]", source,
                       tensor->name);
    }
    if (end > size) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: '%.100s' ends at byte %zu of the data, the file has %zu: cut off?",
                       source, tensor->name, end, size);
    }
    if (end - begin != product) {
        return DP_FAIL(DP_ERR_DATA, "%s: '%.100s' has %zu bytes, its shape makes %zu", source,
                       tensor->name, end - begin, product);
    }
    tensor->data = data + begin;
    tensor->bytes = product;
    return DP_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct dp_stored *left = a, *right = b;
    const unsigned char *x = left->data, *y = right->data;

    if (x != y) {
        return x < y ? -1 : 1;
    }
    return (left->bytes > right->bytes) - (left->bytes < right->bytes); /* empty ones first */
}

static int compare_names(const void *a, const void *b)
{
    const struct dp_stored *const *left = a, *const *right = b;

    return strcmp((*left)->name, (*right)->name);
}

static int compare_name(const void *name, const void *tensor)
{
    const struct dp_stored *const *stored = tensor;

    return strcmp(name, (*stored)->name);
}

/* Files with many tensors are looked through once a tensor. */
static void sort_names(struct dp_safetensors *file)
{
    for (int i = 0; i < file->count; i++) {
        file->by_name[i] = &file->tensors[i];
    }
    if (file->count > 1) {
        qsort(file->by_name, (size_t)file->count, sizeof(const void *), compare_names);
    }
}

/* The tensors must follow each other from the first byte to the last. */
static dp_status check_cover(struct dp_safetensors *file, const unsigned char *data, size_t size)
{
    size_t covered = 0;

    if (file->count > 1) {
        qsort(file->tensors, (size_t)file->count, sizeof(*file->tensors), by_place);
    }
    for (int i = 0; i < file->count; i++) {
        const struct dp_stored *tensor = &file->tensors[i];
        const size_t begin = (size_t)((const unsigned char *)tensor->data - data);

        if (begin != covered) {
            return DP_FAIL(DP_ERR_DATA, "%s: '%.100s' begins at byte %zu of the data, %s %zu",
                           file->source, tensor->name, begin,
                           begin < covered ? "overlapping what ends at" : "after a hole from",
                           covered);
        }
        covered += tensor->bytes;
    }
    if (covered != size) {
        return DP_FAIL(DP_ERR_DATA, "%s: %zu bytes of data belong to no tensor", file->source,
                       size - covered);
    }
    return DP_OK;
}

static dp_status check_metadata(const char *source, const struct dp_json *metadata)
{
    struct dp_json_member member = {0};

    if (!dp_json_is_object(metadata)) {
        return DP_FAIL(DP_ERR_DATA, "%s: " DP_STORED_METADATA " is not an object", source);
    }
    while (dp_json_next(metadata, &member)) {
        if (dp_json_text(member.value) == NULL) {
            return DP_FAIL(DP_ERR_DATA, "%s: " DP_STORED_METADATA ": '%.100s' is not a text",
                           source, member.key);
        }
    }
    return DP_OK;
}

static dp_status read_header(struct dp_safetensors *file, const unsigned char *data, size_t size)
{
    struct dp_json_member member = {0};
    const size_t members = dp_json_length(file->header);

    file->tensors = dp_zalloc(members, sizeof(*file->tensors));
    file->by_name = dp_zalloc(members, sizeof(const void *));
    if (file->tensors == NULL || file->by_name == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: list of %zu tensors", file->source, members);
    }
    while (dp_json_next(file->header, &member)) {
        struct dp_stored *tensor = &file->tensors[file->count];

        if (strcmp(member.key, DP_STORED_METADATA) == 0) {
            DP_TRY(check_metadata(file->source, member.value));
            continue;
        }
        tensor->name = member.key;
        DP_TRY(read_tensor(file->source, member.value, data, size, tensor));
        file->count++;
    }
    DP_TRY(check_cover(file, data, size));
    sort_names(file); /* which no longer move */
    return DP_OK;
}

static dp_status read_bytes(struct dp_safetensors *file, const unsigned char *bytes, size_t size)
{
    uint64_t length = 0;

    if (size < LENGTH_BYTES) {
        return DP_FAIL(DP_ERR_DATA, "%s: %zu bytes are not a safetensors file", file->source, size);
    }
    memcpy(&length, bytes, sizeof(length));
    if (length > size - LENGTH_BYTES || length > HEADER_MOST) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: a header of %llu bytes in a file of %zu: cut off, or not safetensors",
                       file->source, (unsigned long long)length, size);
    }
    bytes += LENGTH_BYTES;
    if (length == 0 || bytes[0] != '{') {
        return DP_FAIL(DP_ERR_DATA, "%s: the header does not begin with '{'", file->source);
    }
    DP_TRY(dp_json_parse((const char *)bytes, (size_t)length, file->source, &file->header));
    return read_header(file, bytes + length, size - LENGTH_BYTES - (size_t)length);
}

dp_status dp_safetensors_parse(const void *bytes, size_t size, const char *source,
                               struct dp_safetensors **out)
{
    struct dp_safetensors *file = dp_zalloc(1, sizeof(*file));
    dp_status status = DP_ERR_NOMEM;

    if (file == NULL || (file->source = dp_strdup(source)) == NULL) {
        status = DP_FAIL(status, "%s: opening", source);
    } else {
        status = read_bytes(file, bytes, size);
    }
    if (status != DP_OK) {
        dp_safetensors_close(file);
        return status;
    }
    *out = file;
    return DP_OK;
}

dp_status dp_safetensors_open(const char *path, struct dp_safetensors **out)
{
    char *bytes = NULL;
    size_t size = 0;
    dp_status status;

    /* Not mapped: if a mapped file is truncated, or its disk fails, reading it causes SIGBUS. */
    DP_TRY(dp_file_read(path, SIZE_MAX - 1, &bytes, &size));
    status = dp_safetensors_parse(bytes, size, path, out);
    if (status != DP_OK) {
        dp_free(bytes);
        return status;
    }
    (*out)->bytes = bytes;
    return DP_OK;
}

void dp_safetensors_close(struct dp_safetensors *file)
{
    if (file == NULL) {
        return;
    }
    dp_free(file->bytes);
    dp_json_destroy(file->header);
    dp_free(file->tensors);
    dp_free(file->by_name);
    dp_free(file->source);
    dp_free(file);
}

int dp_safetensors_count(const struct dp_safetensors *file)
{
    return file->count;
}

const struct dp_stored *dp_safetensors_at(const struct dp_safetensors *file, int i)
{
    return i >= 0 && i < file->count ? &file->tensors[i] : NULL;
}

const struct dp_stored *dp_safetensors_find(const struct dp_safetensors *file, const char *name)
{
    const struct dp_stored *const *found =
        file->count == 0
            ? NULL
            : bsearch(name, file->by_name, (size_t)file->count, sizeof(const void *), compare_name);

    return found == NULL ? NULL : *found;
}

const char *dp_safetensors_note(const struct dp_safetensors *file, const char *key)
{
    return dp_json_text(dp_json_get(dp_json_get(file->header, DP_STORED_METADATA), key));
}
