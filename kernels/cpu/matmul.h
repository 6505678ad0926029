/*
 * matmul.h - matrix products on the CPU, by the library that is faster on this processor.
 *
 * OpenBLAS has the faster kernels for AVX2, oneDNN for AVX-512. On AMD's processors the difference
 * is large, since OpenBLAS 0.3.21 uses its AVX2 kernels there: 215 against 113 GFLOP/s at the
 * shapes of models/mlp.cfg (one core, Zen 5). The choice depends only on the processor, so bits are
 * reproducible.
 */
#ifndef DP_KERNELS_CPU_MATMUL_H
#define DP_KERNELS_CPU_MATMUL_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/ops.h"

/* c = op(a) op(b) + keep c: op(a) is [m, k], op(b) is [k, n], c is [m, n], none of them empty. lda,
 * ldb and ldc are the columns of a, b and c in memory. keep is 0 (c is not read) or 1. */
struct dp_matmul {
    float *c;
    const float *a, *b;
    enum dp_order order_a, order_b;
    size_t m, n, k, lda, ldb, ldc;
    float keep;
};

/* A dense layer's sizes, and one of DP_DENSE_FORWARD, _BACKWARD_DATA and _BACKWARD_WEIGHTS. */
struct dp_dense_key {
    size_t rows, in, out;
    unsigned use;
    enum dp_type type;
};

/* The product of packed arrays that a use is, as in kernels/ops.h. */
struct dp_matmul dp_dense_product(const struct dp_dense_key *key, float *c, const float *a,
                                  const float *b, float keep);

void dp_matmul_blas(int threads, const struct dp_matmul *product);
void dp_matmul_onednn(int threads, const struct dp_matmul *product);

/* Whether dp_matmul_onednn() adds in the order that gemm/few_rows.h has, too. */
bool dp_matmul_onednn_is_known(void);

#endif
