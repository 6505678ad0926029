/*
 * matmul_cublas.h - products of matrices by cuBLASLt, prepared once for each shape.
 *
 * d [m, n] = act(op(a) op(b) + bias) + keep d, row-major and densely packed; a is [m, k], or [k, m]
 * where it is transposed, b is [k, n] or [n, k]. a, b and bias [n] are in the stream's compute
 * type, and so is d unless `wide` says float32. Sums are float32; with dp_stream.tf32 factors are
 * rounded to tf32. With `sums` the sums of a over k [m] are made on the way, in the type of d.
 */
#ifndef DP_KERNELS_CUDA_CUBLAS_MATMUL_CUBLAS_H
#define DP_KERNELS_CUDA_CUBLAS_MATMUL_CUBLAS_H

#include "kernels/device.h"

/* Unused bytes must be zero: shapes are compared as bytes. */
struct dp_matmul {
    size_t m, n, k;
    uint32_t a_order, b_order; /* enum dp_order */
    uint32_t wide;             /* 1: d is float32 whatever the compute type */
    uint32_t bias, act;        /* 1: there is one; enum dp_activation */
    uint32_t sums;             /* 1: makes them, and has neither bias nor act */
    uint32_t type;             /* enum dp_type; set here */
    uint32_t unused;
};

struct dp_matmuls;

DP_CHECKED dp_status dp_matmuls_create(struct dp_matmuls **out);
void dp_matmuls_destroy(struct dp_matmuls *matmuls);

/* Forgets what was prepared, which the stream is through with. */
void dp_matmuls_forget(struct dp_matmuls *matmuls);

/* Chooses an algorithm: plan_cublas.h. Twice for one shape costs nothing. m, n, k above 0. With
 * `sums` cuBLASLt may have none, which is no error. */
DP_CHECKED dp_status dp_matmul_prepare(struct dp_stream *s, const struct dp_matmul *shape);

/* Whether it was prepared, and cuBLASLt has one. */
bool dp_matmul_has(const struct dp_stream *s, const struct dp_matmul *shape);

/* bias in, or sums out, of shapes that have them. Errors: DP_ERR_INTERNAL (not prepared),
 * DP_ERR_CUDA. */
DP_CHECKED dp_status dp_matmul_run(struct dp_stream *s, const struct dp_matmul *shape, void *d,
                                   const void *a, const void *b, const void *bias, float *sums,
                                   float keep);

#endif
