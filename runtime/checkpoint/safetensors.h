/*
 * safetensors.h - the file format of weights that PyTorch and others read.
 *
 * A file is: 8 bytes length of the header, little endian; the header, a JSON object padded with
 * spaces to a multiple of 8; the tensors' bytes without holes. Each member of the header is
 * {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, with offsets after the header;
 * "__metadata__" maps texts to texts.
 *
 * Source: github.com/huggingface/safetensors, section "Format" of its README.
 */
#ifndef DP_RUNTIME_CHECKPOINT_SAFETENSORS_H
#define DP_RUNTIME_CHECKPOINT_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/files/file.h"
#include "base/status.h"

#define DP_STORED_METADATA "__metadata__" /* the member that is not a tensor */

enum { DP_STORED_DIMS = 8 };

/* One tensor of a file. */
struct dp_stored {
    const char *name;
    const char *type; /* "F32", "I64", ... */
    int dims;         /* 0: a scalar */
    size_t shape[DP_STORED_DIMS];
    size_t bytes; /* set by the reader; the writer computes it */

    /* The elements, densely packed, row-major, little endian. The reader's pointer need not be
     * aligned: use memcpy. */
    const void *data;

    /* Writing only, instead of `data`: called for consecutive pieces, writes elements [begin, begin
     * + count) to `out`, which is aligned for them. Cannot fail. */
    void (*fill)(const void *context, size_t begin, size_t count, void *out);
    const void *context;
};

/* One line of "__metadata__". */
struct dp_stored_note {
    const char *key, *value;
};

/*
 * Writes a file and waits until it is on disk. On error a part of it may be left.
 *
 * Tensors of wide elements come first, so that each begins at a multiple of its element's width;
 * otherwise they keep their order.
 *
 *   buffer  in   as in dp_file_create_large(), or NULL
 *   hash  out  the file's XXH3-128; NULL: not needed
 *
 * Errors: DP_ERR_WRITE, DP_ERR_ARG (unknown type, too many dimensions, a repeated name),
 * DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_safetensors_write(const char *path, const struct dp_stored *tensors,
                                          int count, const struct dp_stored_note *notes,
                                          int note_count, void *buffer, char hash[DP_HASH_TEXT]);

struct dp_safetensors; /* a file being read */

/*
 * Opens a file and checks all of its header: bounds, types, shapes, that the tensors cover the data
 * without overlap or hole. The whole file is read: later changes of it have no effect.
 *
 *   out  owned by the caller (dp_safetensors_close); set only on success
 *
 * Errors: DP_ERR_NOINPUT (cannot be opened), DP_ERR_DATA (not a whole safetensors file: one line
 * says why), DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_safetensors_open(const char *path, struct dp_safetensors **out);

/* The same for bytes in memory, which must outlive `out`; `source` is named in messages. */
DP_CHECKED dp_status dp_safetensors_parse(const void *bytes, size_t size, const char *source,
                                          struct dp_safetensors **out);

/* NULL is allowed. */
void dp_safetensors_close(struct dp_safetensors *file);

/* Tensors, in the order of their data. Borrowed from the file, like all their pointers. */
int dp_safetensors_count(const struct dp_safetensors *file);
const struct dp_stored *dp_safetensors_at(const struct dp_safetensors *file, int i);

/* The tensor with that name, or NULL. */
const struct dp_stored *dp_safetensors_find(const struct dp_safetensors *file, const char *name);

/* A value of "__metadata__", or NULL. */
const char *dp_safetensors_note(const struct dp_safetensors *file, const char *key);

/* Bytes of an element of a type such as "F32"; 0 if it is unknown. */
size_t dp_stored_width(const char *type);

/* Computes the bytes from type and shape; false when that exceeds a size_t. */
bool dp_stored_measure(const struct dp_stored *tensor, size_t *bytes);

/* "[512, 3136]", "[]" for a scalar; truncated if `text` is too short. Returns `text`. */
const char *dp_stored_shape_text(int dims, const size_t *shape, char *text, size_t size);

#endif
