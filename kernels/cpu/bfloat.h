/*
 * bfloat.h - bfloat16 in registers: for loops that are written once for arrays of float32 and of
 * bfloat16, and compute in float32.
 *
 * A float32 has 23 fraction bits, a bfloat16 7. The others are rounded off by adding just under
 * half of the last remaining bit, and one more where that bit is odd. A carry goes into the
 * exponent, up to infinity, as it should. Integer arithmetic gives the same bits with every
 * instruction set, also of numbers that the processor's own instruction (AVX512_BF16) flushes to 0.
 */
#ifndef DP_KERNELS_CPU_BFLOAT_H
#define DP_KERNELS_CPU_BFLOAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/float_bits.h"

/* Inlined into each loop for an instruction set: see DP_HOT. */
#define DP_INLINE static inline __attribute__((always_inline))

enum { DP_BFLOAT_INFINITY = 0x7f80 };

DP_INLINE uint16_t dp_bfloat_of(float x)
{
    const uint32_t a = dp_bits_of(x);
    const uint32_t rounded = (a + 0x7fff + (a >> 16 & 1)) >> 16;

    return (uint16_t)((a & DP_F32_MAGNITUDE) > DP_F32_INFINITY ? (a >> 16 & 0x8000) | 0x7fc0
                                                               : rounded);
}

/* What rounding makes of a bfloat: a NaN becomes the one with its sign. */
DP_INLINE uint16_t dp_bfloat_rounded(uint16_t b)
{
    return (b & 0x7fff) > DP_BFLOAT_INFINITY ? (b & 0x8000) | 0x7fc0 : b;
}

/* Exact; a NaN keeps its bits. */
DP_INLINE float dp_of_bfloat(uint16_t b)
{
    return dp_float_of((uint32_t)b << 16);
}

/* The address of element i of an array of bfloat16 (narrow) or float32. */
DP_INLINE const void *dp_element(const void *x, size_t i, bool narrow)
{
    return narrow ? (const void *)((const uint16_t *)x + i) : (const void *)((const float *)x + i);
}

DP_INLINE void *dp_element_to(void *y, size_t i, bool narrow)
{
    return narrow ? (void *)((uint16_t *)y + i) : (void *)((float *)y + i);
}

/* Element i as float32. */
DP_INLINE float dp_number(const void *x, size_t i, bool narrow)
{
    return narrow ? dp_of_bfloat(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

/* Sets element i, rounded once. */
DP_INLINE void dp_number_to(void *y, size_t i, float value, bool narrow)
{
    if (narrow) {
        ((uint16_t *)y)[i] = dp_bfloat_of(value);
    } else {
        ((float *)y)[i] = value;
    }
}

#endif
