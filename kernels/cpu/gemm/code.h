/*
 * code.h - what gemm.c shares with its loops, which are compiled for AVX-512.
 */
#ifndef DP_KERNELS_CPU_GEMM_CODE_H
#define DP_KERNELS_CPU_GEMM_CODE_H

#include "kernels/cpu/gemm/call.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define DP_GEMM_CODE 1
#else
#define DP_GEMM_CODE 0
#endif

enum {
    DP_GEMM_LANES = 16,
    DP_GEMM_WIDTH = 32, /* columns of a panel: two vectors */
    DP_GEMM_ROWS = 12,  /* of a tile: 24 of 32 registers are sums */
    DP_GEMM_EXTRA = 16, /* floats between copied rows: 4096 bytes apart they would share a cache's
                         * set */
};

/* One block: samples [row, row + rows) and products [at, at + depth) of each sum. Of c = a' b
 * samples are what is summed over, and there is one block of rows. */
struct dp_gemm_block {
    const struct dp_gemm *call;
    size_t row, rows, at, depth;
    bool keep, last; /* adds to c; is the last of its sums */
    float *packed;   /* samples in the order of the loops, shared by threads */
    float *own;      /* a thread's scratch */
};

/* Copies part [begin, end) of the samples into b->packed: panels of c = a' b, 16 samples of
 * c = a b', samples of c = a b. */
void dp_gemm_pack(const struct dp_gemm_block *b, size_t begin, size_t end);

/* Computes part [begin, end) of the side of c that samples are not on; begin is a multiple of
 * DP_GEMM_WIDTH columns, or of DP_GEMM_ROWS weights. */
void dp_gemm_compute(const struct dp_gemm_block *b, size_t begin, size_t end);

#endif
