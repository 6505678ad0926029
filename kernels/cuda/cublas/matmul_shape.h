/*
 * matmul_shape.h - what a product of matrices is.
 *
 * d [m, n] = act(op(a) op(b) + bias) + keep d, row-major and densely packed; a is [m, k], or [k, m]
 * where it is transposed, b is [k, n] or [n, k]. a, b and bias [n] are in the stream's compute
 * type, and so is d unless `wide` says float32. Sums are float32; with dp_stream.tf32 factors are
 * rounded to tf32. With `sums` the sums of a over k [m] are made on the way, in the type of d.
 */
#ifndef DP_KERNELS_CUDA_CUBLAS_MATMUL_SHAPE_H
#define DP_KERNELS_CUDA_CUBLAS_MATMUL_SHAPE_H

#include <stddef.h>
#include <stdint.h>

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

#endif
