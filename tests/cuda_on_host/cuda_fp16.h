/*
 * cuda_fp16.h - IEEE half precision on the host, rounded to nearest even.
 */
#ifndef DP_TESTS_CUDA_ON_HOST_CUDA_FP16_H
#define DP_TESTS_CUDA_ON_HOST_CUDA_FP16_H

#include <math.h>
#include <stdint.h>

struct __half {
    uint16_t bits;
};

static inline float __half2float(__half value)
{
    const int exponent = value.bits >> 10 & 31, fraction = value.bits & 1023;
    const float sign = (value.bits & 0x8000) != 0 ? -1.0f : 1.0f;

    if (exponent == 31) {
        return fraction != 0 ? NAN : sign * INFINITY;
    }
    return sign * (exponent == 0 ? ldexpf(static_cast<float>(fraction), -24)
                                 : ldexpf(static_cast<float>(fraction + 1024), exponent - 25));
}

static inline __half __float2half_rn(float value)
{
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    const float size = fabsf(value);
    int exponent;

    if (size != size) {
        return __half{0x7fff};
    }
    if (size >= 65520.0f) { /* half way between the largest number and the next power of two */
        return __half{static_cast<uint16_t>(sign | 0x7c00)};
    }
    (void)frexpf(size, &exponent); /* size = m 2^exponent, m in [0.5, 1) */
    exponent = exponent < -13 ? -13 : exponent;
    /* In units of the last place, to nearest even; a carry into the exponent is right, too. */
    const int units = static_cast<int>(rintf(ldexpf(size, 11 - exponent)));
    const int bits = units < 1024 ? units : ((exponent + 13) << 10) + units;
    return __half{static_cast<uint16_t>(sign | bits)};
}

static inline uint16_t __half_as_ushort(__half value)
{
    return value.bits;
}

static inline __half __ushort_as_half(uint16_t bits)
{
    return __half{bits};
}

#endif
