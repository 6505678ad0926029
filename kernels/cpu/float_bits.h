/*
 * float_bits.h - a float and its 32 bits. Magnitudes (without the sign) compare as their bits do;
 * magnitudes above DP_F32_INFINITY are NaN.
 */
#ifndef DP_KERNELS_CPU_FLOAT_BITS_H
#define DP_KERNELS_CPU_FLOAT_BITS_H

#include <stdint.h>
#include <string.h>

enum { DP_F32_INFINITY = 0x7f800000, DP_F32_MAGNITUDE = 0x7fffffff };

static inline float dp_float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline uint32_t dp_bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

#endif
