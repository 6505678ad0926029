/*
 * dense_amx.h - the three products of a dense layer by AMX: bfloat16, sums in float32.
 *
 * A tile A holds numbers that are neighbours along the sum, and a tile B pairs of them. Samples, a
 * few hundred rows, are copied once into that order and stay in the second cache. Weights, which
 * do not fit there, are read once for each 256 samples, in blocks of 32 by 32:
 *
 *   c = a b'    result      32 rows of weights are A, samples B; sums are transposed when they are
 *                           stored, with bias and relu, so that weights need not be
 *   c = a b     back to x   pairs of rows of weights are B, samples A
 *   c = a' b    weights     32 columns of dy at a time are A, pairs of samples of x B
 *
 * A block of sums takes in all blocks along its sum in their order; in the first two products it
 * is put aside between strips of 128, as float32, so that weights stay in the first cache while all
 * samples meet them. Bits depend neither on threads nor, in the first two, on the number of rows.
 */
#ifndef DP_KERNELS_CPU_AMX_DENSE_AMX_H
#define DP_KERNELS_CPU_AMX_DENSE_AMX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/matmul.h"

/* c, a and b are packed, as in kernels/ops.h: y, x, w; dx, dy, w; dw, dy, x. */
struct dp_dense_amx {
    struct dp_dense_key key; /* nothing of it is 0 */
    void *c;                 /* bfloats; of DP_DENSE_BACKWARD_WEIGHTS floats */
    const uint16_t *a, *b;
    const uint16_t *bias; /* of DP_DENSE_FORWARD; NULL: none */
    bool relu;            /* of DP_DENSE_FORWARD */
    bool adds;            /* of DP_DENSE_BACKWARD_WEIGHTS: c is added to, else set */
    void *scratch;        /* dp_dense_amx_bytes(), aligned to 64 bytes */
};

/* Bytes of scratch on so many threads. */
size_t dp_dense_amx_bytes(const struct dp_dense_key *key, int threads);

/* Computes on `threads` threads; only where dp_amx_has(). */
void dp_dense_amx(const struct dp_dense_amx *call, int threads);

#endif
