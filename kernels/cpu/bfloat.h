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

/* x, or 0 where it is less; a NaN stays a NaN. By a mask of bits, since of a choice before a
 * rounding the compiler makes one of all ways through both. */
DP_INLINE float dp_rectified(float x)
{
    const uint32_t kept = x < 0 ? 0 : UINT32_MAX;

    return dp_float_of(dp_bits_of(x) & kept);
}

/* A number, rounded, in the upper half of a word; the lower half means nothing. */
DP_INLINE uint32_t dp_bfloat_word(float x)
{
    const uint32_t a = dp_bits_of(x);

    return a + 0x7fff + (a >> 16 & 1);
}

DP_INLINE uint16_t dp_bfloat_of(float x)
{
    const uint32_t a = dp_bits_of(x);

    return (uint16_t)((a & DP_F32_MAGNITUDE) > DP_F32_INFINITY ? (a >> 16 & 0x8000) | 0x7fc0
                                                               : dp_bfloat_word(x) >> 16);
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

/*
 * Two neighbours of an array of bfloat16, the first in the lower half of the word. One is widened
 * by a shift, the other by a mask, and both are rounded and put together without moving numbers
 * between lanes: loops over pairs take half to two thirds of the time.
 */
typedef uint32_t __attribute__((may_alias, aligned(2))) dp_bfloat_pair;

DP_INLINE float dp_half_of(uint32_t pair, size_t half)
{
    return dp_float_of(half == 0 ? pair << 16 : pair & 0xffff0000);
}

/* Rounds each once. A NaN must have no bits in its lower half, since it is not looked for, and a
 * carry could make a number of it. Arithmetic gives such NaN where its operands are bfloats, and
 * float32 after dp_plain_nan(): the processor's own, or an operand's upper half. */
DP_INLINE uint32_t dp_bfloat_pair_of(const float values[2])
{
    return dp_bfloat_word(values[0]) >> 16 | (dp_bfloat_word(values[1]) & 0xffff0000);
}

/* x, but of all NaN one without bits in its lower half. */
DP_INLINE float dp_plain_nan(float x)
{
    return x != x ? dp_float_of(0x7fc00000) : x;
}

#endif
