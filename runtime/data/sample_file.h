/*
 * sample_file.h - samples in a file that belongs to no data set: a picture (PNG or JPEG), an array
 * of numpy, or lines of numbers. Its first bytes tell which, not its name.
 *
 *   picture   one sample, decoded and scaled as those of source folder
 *   array     uint8, or floats: [rows, features], [rows, height, width(, channels)]; without rows
 *             it is one sample
 *   lines     as many fields as the model takes numbers, or more: then a label is there, which is
 *             left out. The first line may be a header
 */
#ifndef DP_RUNTIME_DATA_SAMPLE_FILE_H
#define DP_RUNTIME_DATA_SAMPLE_FILE_H

#include <stddef.h>

#include "runtime/data/decode.h"

/* What samples are wanted for. */
struct dp_sample_file_form {
    struct dp_sample_shape input; /* of the model; its element is not looked at */
    size_t outputs;               /* a label has one number, or so many */
    enum dp_resize resize;
    bool label_last; /* of lines */
};

struct dp_sample_file_info {
    size_t rows;             /* 0 or more */
    enum dp_element element; /* of all samples of the file, as they are given out */
    bool has_rows;           /* it may hold several, so that a row is named by its number */
};

struct dp_sample_file;

/*
 * Reads a file whole.
 *
 *   path     in   "-": standard input, which is read to its end
 *   problem  out  what is wrong, where nothing was logged: continues the path
 *   out      out  owned by the caller; set only on success
 *
 * Errors: DP_ERR_NOINPUT (no file), DP_ERR_DATA (none of these, damaged, or of samples that the
 * model does not take), DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_sample_file_open(const char *path, const struct dp_sample_file_form *form,
                                         struct dp_sample_file **out, struct dp_problem *problem);
void dp_sample_file_close(struct dp_sample_file *file); /* NULL is allowed */
const struct dp_sample_file_info *dp_sample_file_info(const struct dp_sample_file *file);

/*
 * Sample `row`, as the model takes it.
 *
 *   out  out  [input.count] of info->element
 *
 * Errors: DP_ERR_DATA, DP_ERR_NOMEM; nothing is logged, `problem` says why.
 */
DP_CHECKED dp_status dp_sample_file_read(const struct dp_sample_file *file,
                                         struct dp_decoder *decoder, size_t row, void *out,
                                         struct dp_problem *problem);

#endif
