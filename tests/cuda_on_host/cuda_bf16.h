/*
 * cuda_bf16.h - bfloat16 on the host: the upper half of a float, rounded to nearest even.
 */
#ifndef DP_TESTS_CUDA_ON_HOST_CUDA_BF16_H
#define DP_TESTS_CUDA_ON_HOST_CUDA_BF16_H

#include <stdint.h>
#include <string.h>

struct __nv_bfloat16 {
    uint16_t bits;
};

static inline float __bfloat162float(__nv_bfloat16 value)
{
    const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
    float wide;

    memcpy(&wide, &bits, sizeof(wide));
    return wide;
}

static inline __nv_bfloat16 __float2bfloat16_rn(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    if (value != value) {
        return __nv_bfloat16{0x7fff};
    }
    bits += 0x7fff + (bits >> 16 & 1);
    return __nv_bfloat16{static_cast<uint16_t>(bits >> 16)};
}

static inline uint16_t __bfloat16_as_ushort(__nv_bfloat16 value)
{
    return value.bits;
}

static inline __nv_bfloat16 __ushort_as_bfloat16(uint16_t bits)
{
    return __nv_bfloat16{bits};
}

#endif
