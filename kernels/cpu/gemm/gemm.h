/*
 * gemm.h - matrix products of float32 at the shapes of dense layers, with AVX-512.
 *
 * One operand of each of a layer's three products has the samples of a batch, a few hundred rows or
 * fewer; the other one, or the result, is as large as the weights, which do not fit into a second
 * cache. The usual way (Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication,
 * 2008, section 4) copies both operands into an order of its own. Here weights are read once for
 * each block of samples, and in the first and third product where they lie:
 *
 *   c = a b'    result      samples a are transposed, so that a vector holds one input of 16
 *                           samples; weights b are broadcast; bias and relu come before storing
 *   c = a b     back to x   32 columns of the weights b at a time are copied while they are hot
 *   c = a' b    weights     panels of 32 columns of the samples b stay in the second cache
 *
 * Threads divide the samples of the first two where each has enough of them, else the weights.
 *
 * An element's products are added one after the other in blocks of k: bits do not depend on threads
 * nor on how many rows and columns are computed together.
 */
#ifndef DP_KERNELS_CPU_GEMM_GEMM_H
#define DP_KERNELS_CPU_GEMM_GEMM_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/cpu/gemm/call.h"

/* Whether it can be computed here: AVX-512, and not both operands transposed. */
bool dp_gemm_can(const struct dp_matmul *product);

/* Bytes of scratch on so many threads. */
size_t dp_gemm_bytes(const struct dp_matmul *product, int threads);

/* Computes on `threads` threads. */
void dp_gemm(const struct dp_gemm *gemm, int threads);

#endif
