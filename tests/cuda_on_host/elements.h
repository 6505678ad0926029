/*
 * elements.h - numbers of any element type, for the libraries on the host.
 */
#ifndef DP_TESTS_CUDA_ON_HOST_ELEMENTS_H
#define DP_TESTS_CUDA_ON_HOST_ELEMENTS_H

#include <string.h>

#include "cublasLt.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"

static inline float get(const void *array, cudaDataType type, size_t i)
{
    switch (type) {
    case CUDA_R_16BF:
        return __bfloat162float(static_cast<const __nv_bfloat16 *>(array)[i]);
    case CUDA_R_16F:
        return __half2float(static_cast<const __half *>(array)[i]);
    default:
        return static_cast<const float *>(array)[i];
    }
}

static inline void put(void *array, cudaDataType type, size_t i, float value)
{
    switch (type) {
    case CUDA_R_16BF:
        static_cast<__nv_bfloat16 *>(array)[i] = __float2bfloat16_rn(value);
        break;
    case CUDA_R_16F:
        static_cast<__half *>(array)[i] = __float2half_rn(value);
        break;
    default:
        static_cast<float *>(array)[i] = value;
    }
}

/* What tensor cores make of a float32 factor: 10 bits after the point, to nearest even. */
static inline float to_tf32(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    if ((bits & 0x7f800000) != 0x7f800000) {
        bits += 0xfff + (bits >> 13 & 1);
        bits &= ~0x1fffu;
    }
    memcpy(&value, &bits, sizeof(value));
    return value;
}

#endif
