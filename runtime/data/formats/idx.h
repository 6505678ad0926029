/*
 * idx.h - reads one IDX file of bytes, plain or gzipped, from front to back.
 *
 * The format: two zero bytes, the element type (8: unsigned byte, the only one read here), the
 * number of dimensions, each dimension as 32 bits big-endian, then the elements, row-major. Gzip is
 * recognised by its first bytes, not by the file's name; several gzip members in a row are one
 * file. Source: LeCun, Cortes and Burges, "The MNIST database", section "File formats".
 *
 * Every problem is one line that names the file, the place in it, and what to do. All damage is
 * found by the end of dp_idx_finish(), which compares gzip's checksum.
 */
#ifndef DP_RUNTIME_DATA_FORMATS_IDX_H
#define DP_RUNTIME_DATA_FORMATS_IDX_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { DP_IDX_DIMS = 4 };

struct dp_idx_header {
    int dims; /* 1 to DP_IDX_DIMS */
    size_t dim[DP_IDX_DIMS];
    size_t rows;      /* dim[0] */
    size_t row_bytes; /* product of the others; rows * row_bytes does not overflow */
};

struct dp_idx;

/*
 * Opens the file and reads its header. Damage that the file's length shows is reported here.
 *
 *   out  out  owned by the caller (dp_idx_destroy); set only on success
 *
 * Errors: DP_ERR_NOINPUT (cannot be opened or read), DP_ERR_DATA (not an IDX file of bytes,
 * damaged, shorter or longer than its header says), DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_idx_create(const char *path, struct dp_idx **out);

/* The same for a file in memory, which is borrowed; `name` is used in messages. */
DP_CHECKED dp_status dp_idx_create_memory(const void *file, size_t bytes, const char *name,
                                          struct dp_idx **out);

const struct dp_idx_header *dp_idx_header(const struct dp_idx *idx);
const char *dp_idx_name(const struct dp_idx *idx);

/* Reads the next `bytes` bytes of the elements.
 * Errors: DP_ERR_DATA (damaged, or it ends before), DP_ERR_NOINPUT (cannot be read). */
DP_CHECKED dp_status dp_idx_read(struct dp_idx *idx, void *out, size_t bytes);

/* Called after the last element: checks that the file ends here and is whole. Errors: as read. */
DP_CHECKED dp_status dp_idx_finish(struct dp_idx *idx);

/* Closes the file. NULL is allowed. */
void dp_idx_destroy(struct dp_idx *idx);

#endif
