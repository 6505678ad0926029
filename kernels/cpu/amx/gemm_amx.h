/*
 * gemm_amx.h - products of float32 at the shapes of dense layers, by tiles that multiply bfloat16.
 *
 * A float32 has 24 bits, a bfloat16 8: x is the sum of three of them, each the nearest to what the
 * ones before leave. Of the nine products of two such sums six are computed; the others are below
 * 2^-25 of the whole (Henry, Tang and Heinecke, Leveraging the bfloat16 Artificial Intelligence
 * Datatype for Higher-Precision Computations, 2019, section III). A tile adds 32 products before it
 * rounds to a sum, so that errors are smaller than those of adding one product after the other: see
 * test_matmul. Numbers below 2^-103 lose bits, since tiles take what is subnormal as 0; a sum with
 * an infinity, or a number above 3.39e38, is no number, since that meets parts that are 0.
 *
 * Samples are packed and stay in the second cache, weights are read once for each chunk of samples,
 * as in dense_amx.h, whose blocks these are. Bits do not depend on threads, nor on how
 * many rows and columns are computed together.
 */
#ifndef DP_KERNELS_CPU_AMX_GEMM_AMX_H
#define DP_KERNELS_CPU_AMX_GEMM_AMX_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/cpu/gemm/call.h"

/* Whether it can be computed here: dp_amx_has(), and not both operands transposed. */
bool dp_gemm_amx_can(const struct dp_matmul *product);

/* Bytes of scratch on so many threads. */
size_t dp_gemm_amx_bytes(const struct dp_matmul *product, int threads);

/* Computes on `threads` threads. No dimension is 0. */
void dp_gemm_amx(const struct dp_gemm *gemm, int threads);

#endif
