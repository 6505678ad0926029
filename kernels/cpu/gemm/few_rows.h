/*
 * few_rows.h - matrix products of float32 of a dense layer with few samples, with AVX-512, without
 * code that is generated when the program runs.
 *
 * oneDNN generates its kernels anew in each process, which takes 20 to 40 ms of computing; where
 * hundreds of ranks share cores each of them has few rows. These loops add in the order of oneDNN
 * 2.6 on one thread, so the bits are the same (test_few_rows):
 *
 *   c = a b'    result      16 sums, of each 16th product; then 8 + 8, 4 + 4, 2 + 2, 1 + 1 of them
 *   c = a b     back to x   one product after the other, in blocks of 384, which are added; the
 *                           last two share what is left
 *   c = a' b    weights     one product after the other
 */
#ifndef DP_KERNELS_CPU_GEMM_FEW_ROWS_H
#define DP_KERNELS_CPU_GEMM_FEW_ROWS_H

#include <stdbool.h>

#include "kernels/cpu/matmul.h"

/* Computes the product where ranks crowd (base/system/crowd.h), if it has 2 to 15 samples and the
 * processor can, and returns whether it has. With a core for each rank oneDNN is up to three times
 * as fast. Another version of oneDNN may add in another order: then nothing is computed here, or
 * bits would depend on the number of ranks. */
bool dp_few_rows(int threads, const struct dp_matmul *product);

#endif
