/*
 * call.h - one product that gemm.h computes.
 */
#ifndef DP_KERNELS_CPU_GEMM_CALL_H
#define DP_KERNELS_CPU_GEMM_CALL_H

#include <stdbool.h>

#include "kernels/cpu/matmul.h"

struct dp_gemm {
    struct dp_matmul product;
    const float *bias; /* [n], added to each row; NULL: none. Only for c = a b' */
    bool relu;         /* only for c = a b' */
    float *scratch;    /* dp_gemm_bytes(), aligned to 64 bytes */
};

#endif
