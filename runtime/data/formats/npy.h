/*
 * npy.h - the header of a file of NumPy: what an array holds, and where its elements begin.
 *
 * The format: "\x93NUMPY", a major and a minor version, the length of the header (16 bits
 * little-endian, from version 2 on 32), the header, a Python dictionary of descr, fortran_order and
 * shape, then the elements. Source: numpy.lib.format, "Format specification: .npy".
 */
#ifndef DP_RUNTIME_DATA_FORMATS_NPY_H
#define DP_RUNTIME_DATA_FORMATS_NPY_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "runtime/data/problem.h"

enum {
    DP_NPY_HEAD = 16 * 1024, /* longest header that is taken, with what is in front of it */
    DP_NPY_DIMS = 8
};

/* Kinds of elements, as in NumPy's names of types; all little-endian. */
enum dp_npy_kind { DP_NPY_UNSIGNED = 'u', DP_NPY_SIGNED = 'i', DP_NPY_FLOAT = 'f' };

struct dp_npy {
    enum dp_npy_kind kind;
    size_t width; /* bytes of an element: 1, 2, 4 or 8 */
    int dims;     /* 1 to DP_NPY_DIMS */
    size_t dim[DP_NPY_DIMS];
    size_t rows;  /* dim[0] */
    size_t count; /* elements of a row; rows * count * width does not overflow */
    size_t begin; /* of the first element, in bytes */
};

/*
 * Reads the header from the first bytes of a file.
 *
 *   head   in   [count], the first DP_NPY_HEAD bytes, or the whole file where it is shorter
 *   bytes  in   length of the whole file
 *   out    out  set only on success
 *
 * Errors: DP_ERR_DATA; `problem` says why: it is no such file, or damaged; it holds objects or
 * numbers of another kind; it is in Fortran order; its length is another than the header says.
 */
DP_CHECKED dp_status dp_npy_parse(const uint8_t *head, size_t count, size_t bytes,
                                  struct dp_npy *out, struct dp_problem *problem);

/* Element `i` of a piece of such an array, as a number. */
double dp_npy_number(const struct dp_npy *npy, const void *elements, size_t i);

/* "float32". */
void dp_npy_type_text(const struct dp_npy *npy, char text[16]);

#endif
