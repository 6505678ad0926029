/*
 * split_amx.h - 32 x 32 floats of a matrix as tiles of bfloats: x is the sum of three, of 8 bits
 * each, in three blocks after one another. The first is x rounded, the second what that leaves,
 * rounded, and the third the rest, which is exact but for numbers below 2^-110; tiles take it as 0
 * where it is subnormal, so of some below 2^-103.
 *
 * Numbers 16 apart along a sum are a pair, not neighbours as in pack_amx.h: so a pair comes of the
 * same lane of two vectors. The order along a sum is free, if A and B have the same.
 */
#ifndef DP_KERNELS_CPU_AMX_SPLIT_AMX_H
#define DP_KERNELS_CPU_AMX_SPLIT_AMX_H

#include <stddef.h>

#include "kernels/cpu/amx/pack_amx.h"

#if DP_AMX_CODE

enum { DP_AMX_PARTS = 3, DP_AMX_SPLIT_BLOCK = DP_AMX_PARTS * DP_AMX_BLOCK /* bfloats */ };

struct dp_amx_float_block {
    const float *from;
    size_t ld, rows, columns; /* those that are left; more than 32 count as 32 */
};

/* The parts of 16 pairs. */
struct dp_amx_parts {
    __m512i part[DP_AMX_PARTS];
};

/* The nearest bfloat, as a float. */
DP_AMX_INLINE __m512i dp_amx_rounded(__m512 x)
{
    const __m512i half = _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));

    return _mm512_and_si512(half, _mm512_set1_epi32(-0x10000));
}

DP_AMX_INLINE struct dp_amx_parts dp_amx_split(__m512 x, __m512 y)
{
    const __m512i upper = _mm512_set1_epi32(-0x10000);
    struct dp_amx_parts p = {{_mm512_setzero_si512()}};

#pragma GCC unroll 2
    for (int i = 0; i < DP_AMX_PARTS - 1; i++) {
        const __m512i a = dp_amx_rounded(x), b = dp_amx_rounded(y);
        p.part[i] = _mm512_or_si512(_mm512_srli_epi32(a, 16), b);
        x = _mm512_sub_ps(x, _mm512_castsi512_ps(a));
        y = _mm512_sub_ps(y, _mm512_castsi512_ps(b));
    }
    /* The rest of y may be below what a bfloat can be: its other bits are not x's. */
    p.part[DP_AMX_PARTS - 1] =
        _mm512_ternarylogic_epi32(_mm512_srli_epi32(_mm512_castps_si512(x), 16),
                                  _mm512_castps_si512(y), upper, 0xf8); /* a | (b & c) */
    return p;
}

/* Parts are `apart` bfloats from each other. */
DP_AMX_INLINE void dp_amx_store_parts(uint16_t *to, size_t apart, const struct dp_amx_parts *p)
{
#pragma GCC unroll 3
    for (size_t k = 0; k < DP_AMX_PARTS; k++) {
        _mm512_store_si512((void *)(to + k * apart), p->part[k]);
    }
}

/* Half of a row: 16 floats from `column`. */
DP_AMX_INLINE __m512 dp_amx_half_row(const struct dp_amx_float_block *s, size_t i, size_t column,
                                     __mmask32 mask)
{
    const __mmask32 some = i < s->rows ? mask >> column : 0;

    return _mm512_maskz_loadu_ps((__mmask16)some, s->from + (i < s->rows ? i * s->ld : 0) + column);
}

/* Row i of a block whose rows are rows of A. */
DP_AMX_INLINE void dp_amx_split_row_of_a(uint16_t *to, const struct dp_amx_float_block *s, size_t i,
                                         __mmask32 mask)
{
    const struct dp_amx_parts p =
        dp_amx_split(dp_amx_half_row(s, i, 0, mask), dp_amx_half_row(s, i, DP_AMX_ROWS, mask));

    dp_amx_store_parts(to + i * DP_AMX_DEPTH, DP_AMX_BLOCK, &p);
}

/* Rows i and i + 16 of a block whose columns are columns of B. */
DP_AMX_INLINE void dp_amx_split_rows_of_b(uint16_t *to, const struct dp_amx_float_block *s,
                                          size_t i, __mmask32 mask)
{
#pragma GCC unroll 2
    for (size_t tile = 0; tile < 2; tile++) {
        const size_t column = tile * DP_AMX_ROWS;
        const struct dp_amx_parts p = dp_amx_split(
            dp_amx_half_row(s, i, column, mask), dp_amx_half_row(s, i + DP_AMX_ROWS, column, mask));
        dp_amx_store_parts(to + tile * DP_AMX_TILE + i * DP_AMX_DEPTH, DP_AMX_BLOCK, &p);
    }
}

/* Rows are rows of A. */
DP_AMX_INLINE void dp_amx_split_a(uint16_t *to, const struct dp_amx_float_block *s)
{
    const __mmask32 mask = dp_amx_mask(s->columns);

    for (size_t i = 0; i < DP_AMX_SIDE; i++) {
        dp_amx_split_row_of_a(to, s, i, mask);
    }
}

/* Columns are columns of B. */
DP_AMX_INLINE void dp_amx_split_b(uint16_t *to, const struct dp_amx_float_block *s)
{
    const __mmask32 mask = dp_amx_mask(s->columns);

    for (size_t i = 0; i < DP_AMX_ROWS; i++) {
        dp_amx_split_rows_of_b(to, s, i, mask);
    }
}

/* Tiles of A become those of B whose columns were its rows, and the other way round. */
DP_AMX_INLINE void dp_amx_transpose_parts(uint16_t *to, const uint16_t *from)
{
    for (size_t tile = 0; tile < (size_t)2 * DP_AMX_PARTS; tile++) {
        __m512i v[DP_AMX_ROWS];
#pragma GCC unroll 16
        for (size_t i = 0; i < DP_AMX_ROWS; i++) {
            v[i] = _mm512_load_si512((const void *)(from + i * DP_AMX_DEPTH));
        }
        dp_amx_store_columns(to, v);
        from += DP_AMX_TILE;
        to += DP_AMX_TILE;
    }
}

/* Columns are rows of A. `room`: for a split block. */
DP_AMX_INLINE void dp_amx_split_a_transposed(uint16_t *to, uint16_t *room,
                                             const struct dp_amx_float_block *s)
{
    dp_amx_split_b(room, s);
    dp_amx_transpose_parts(to, room);
}

/* Rows are columns of B. */
DP_AMX_INLINE void dp_amx_split_b_transposed(uint16_t *to, uint16_t *room,
                                             const struct dp_amx_float_block *s)
{
    dp_amx_split_a(room, s);
    dp_amx_transpose_parts(to, room);
}

#endif
#endif
