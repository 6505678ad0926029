#include "runtime/checkpoint/safetensors.h"

#include <stdint.h>
#include <string.h>

#include "base/files/file.h"
#include "base/json.h"
#include "base/mem.h"

enum { LENGTH_BYTES = 8, WIDEST = 8 };

static dp_status check_stored(const struct dp_stored *tensor, size_t *bytes)
{
    if (dp_stored_width(tensor->type) == 0 || tensor->dims < 0 || tensor->dims > DP_STORED_DIMS ||
        !dp_stored_measure(tensor, bytes)) {
        return DP_FAIL(DP_ERR_ARG, "tensor '%s' of type '%s' with %d dimensions", tensor->name,
                       tensor->type, tensor->dims);
    }
    return DP_OK;
}

/* Adds a tensor's description; its data begins at *offset, which is then advanced past it. */
static dp_status describe(struct dp_json *header, const struct dp_stored *tensor, size_t *offset)
{
    struct dp_json *object = dp_json_set_object(header, tensor->name);
    struct dp_json *shape, *offsets;
    size_t bytes = 0;

    DP_TRY(check_stored(tensor, &bytes));
    DP_TRY(dp_json_set_text(object, "dtype", tensor->type));
    shape = dp_json_set_array(object, "shape");
    for (int i = 0; i < tensor->dims; i++) {
        DP_TRY(dp_json_push_int(shape, (int64_t)tensor->shape[i]));
    }
    offsets = dp_json_set_array(object, "data_offsets");
    DP_TRY(dp_json_push_int(offsets, (int64_t)*offset));
    DP_TRY(dp_json_push_int(offsets, (int64_t)(*offset + bytes)));
    *offset += bytes;
    return DP_OK;
}

static dp_status build_header(struct dp_json *header, const struct dp_stored *tensors, int count,
                              const struct dp_stored_note *notes, int note_count)
{
    size_t offset = 0;

    if (note_count > 0) {
        struct dp_json *metadata = dp_json_set_object(header, DP_STORED_METADATA);

        for (int i = 0; i < note_count; i++) {
            DP_TRY(dp_json_set_text(metadata, notes[i].key, notes[i].value));
        }
    }
    for (int i = 0; i < count; i++) {
        DP_TRY(describe(header, &tensors[i], &offset));
    }
    if (dp_json_length(header) != (size_t)count + (note_count > 0)) {
        return DP_FAIL(DP_ERR_ARG, "two of %d tensors have the same name", count);
    }
    return DP_OK;
}

/* `length` is the text's, without the padding. */
static dp_status write_padded(struct dp_file *file, const char *text, size_t length)
{
    static const char spaces[LENGTH_BYTES] = "        ";
    const size_t padding = (LENGTH_BYTES - length % LENGTH_BYTES) % LENGTH_BYTES;
    const uint64_t whole = length + padding;

    DP_TRY(dp_file_append(file, &whole, sizeof(whole)));
    DP_TRY(dp_file_append(file, text, length));
    return dp_file_append(file, spaces, padding);
}

static dp_status write_header(struct dp_file *file, const struct dp_json *header)
{
    char *text = NULL;
    dp_status status;

    DP_TRY(dp_json_dump(header, 0, DP_JSON_EXACT, &text));
    status = write_padded(file, text, strlen(text));
    dp_free(text);
    return status;
}

static dp_status write_tensor(struct dp_file *file, const struct dp_stored *tensor)
{
    const size_t width = dp_stored_width(tensor->type), piece = DP_FILE_PIECE / width;
    size_t bytes = 0;

    DP_TRY(check_stored(tensor, &bytes));
    if (tensor->fill == NULL) {
        return dp_file_append(file, tensor->data, bytes);
    }
    for (size_t begin = 0, count = bytes / width; begin < count; begin += piece) {
        const size_t now = count - begin < piece ? count - begin : piece;
        void *place;

        DP_TRY(dp_file_place(file, now * width, &place));
        tensor->fill(tensor->context, begin, now, place);
        dp_file_placed(file, now * width);
    }
    return DP_OK;
}

static dp_status write_all(struct dp_file *file, const struct dp_json *header,
                           const struct dp_stored *tensors, int count)
{
    DP_TRY(write_header(file, header));
    for (int i = 0; i < count; i++) {
        DP_TRY(write_tensor(file, &tensors[i]));
    }
    return DP_OK;
}

static dp_status write_file(const char *path, const struct dp_json *header,
                            const struct dp_stored *tensors, int count, void *buffer,
                            char hash[DP_HASH_TEXT])
{
    struct dp_file file;
    dp_status status;

    DP_TRY(dp_file_create_large(&file, path, buffer));
    status = write_all(&file, header, tensors, count);
    if (status != DP_OK) {
        dp_file_discard(&file);
        return status;
    }
    return dp_file_finish(&file, hash);
}

dp_status dp_safetensors_write(const char *path, const struct dp_stored *tensors, int count,
                               const struct dp_stored_note *notes, int note_count, void *buffer,
                               char hash[DP_HASH_TEXT])
{
    struct dp_stored *ordered = dp_zalloc((size_t)count, sizeof(*ordered));
    struct dp_json *header = dp_json_create();
    dp_status status = DP_OK;
    int placed = 0;

    if (ordered == NULL || header == NULL) {
        status = DP_FAIL(DP_ERR_NOMEM, "%s: header of %d tensors", path, count);
        goto done;
    }
    for (size_t width = WIDEST; width > 0; width /= 2) {
        for (int i = 0; i < count; i++) {
            if (dp_stored_width(tensors[i].type) == width) {
                ordered[placed++] = tensors[i];
            }
        }
    }
    if (placed != count) {
        status = DP_FAIL(DP_ERR_ARG, "%s: %d tensors of unknown type", path, count - placed);
        goto done;
    }
    DP_TRY_GOTO(build_header(header, ordered, count, notes, note_count), status, done);
    status = write_file(path, header, ordered, count, buffer, hash);
done:
    dp_json_destroy(header);
    dp_free(ordered);
    return status;
}
