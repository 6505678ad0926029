/*
 * op_path.h - which implementation computed an operation: the library and its own name for the
 * code, such as "oneDNN jit:avx512_core".
 *
 * Libraries choose among several implementations of one operation, which differ in speed by up to a
 * hundred times. Whoever wants to know sets stream->path to a text of DP_OP_PATH_BYTES, empty at
 * first; operations that call a library, and the slow loops of `ref`, then add what computed them.
 * An operation that adds nothing is a loop or kernel of this repository for its device.
 */
#ifndef DP_KERNELS_OP_PATH_H
#define DP_KERNELS_OP_PATH_H

#include "kernels/device.h"

enum { DP_OP_PATH_BYTES = 96 };

/* Adds "library code" to the stream's path, if there is one, unless it is in it. `code` may be
 * empty. */
void dp_op_path_note(const struct dp_stream *stream, const char *library, const char *code);

/* Adds FLOPs of the definition that an operation did without to the stream's sum, if there is one:
 * stream->spared. */
void dp_op_path_spare(const struct dp_stream *stream, double flops);

#endif
