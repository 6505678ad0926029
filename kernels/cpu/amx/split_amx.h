/*
 * split_amx.h - copies of 32 x 32 floats of a matrix into tiles of bfloats, three blocks after one
 * another: the nearest bfloats, the nearest to what is left, and the same again. The orders are
 * those of pack_amx.h.
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

/* 32 neighbours. */
struct dp_amx_parts {
    __m512i part[DP_AMX_PARTS];
};

/* Floats of the lower, or of the upper 16 bfloats. */
DP_AMX_INLINE __m512 dp_amx_half(__m512i bfloats, int upper)
{
    const __m256i half =
        upper != 0 ? _mm512_extracti64x4_epi64(bfloats, 1) : _mm512_castsi512_si256(bfloats);

    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

DP_AMX_INLINE struct dp_amx_parts dp_amx_split(__m512 lower, __m512 upper)
{
    struct dp_amx_parts p = {{_mm512_setzero_si512()}};

#pragma GCC unroll 3
    for (int i = 0; i < DP_AMX_PARTS; i++) {
        p.part[i] = (__m512i)_mm512_cvtne2ps_pbh(upper, lower);
        lower = _mm512_sub_ps(lower, dp_amx_half(p.part[i], 0));
        upper = _mm512_sub_ps(upper, dp_amx_half(p.part[i], 1));
    }
    return p;
}

DP_AMX_INLINE struct dp_amx_parts dp_amx_split_row(const struct dp_amx_float_block *s, size_t i,
                                                   __mmask32 mask)
{
    const __mmask32 some = i < s->rows ? mask : 0;
    const float *from = s->from + (i < s->rows ? i * s->ld : 0);

    return dp_amx_split(
        _mm512_maskz_loadu_ps((__mmask16)some, from),
        _mm512_maskz_loadu_ps((__mmask16)(some >> DP_AMX_ROWS), from + DP_AMX_ROWS));
}

/* Row i of a block whose rows are rows of A. */
DP_AMX_INLINE void dp_amx_split_row_of_a(uint16_t *to, const struct dp_amx_float_block *s, size_t i,
                                         __mmask32 mask)
{
    const struct dp_amx_parts p = dp_amx_split_row(s, i, mask);

    to += i * DP_AMX_DEPTH;
#pragma GCC unroll 3
    for (size_t k = 0; k < DP_AMX_PARTS; k++) {
        _mm512_store_si512((void *)(to + k * DP_AMX_BLOCK), p.part[k]);
    }
}

/* Rows i and i + 1 of a block whose columns are columns of B; i is even. */
DP_AMX_INLINE void dp_amx_split_rows_of_b(uint16_t *to, const struct dp_amx_float_block *s,
                                          size_t i, __mmask32 mask, bool ordered)
{
    const struct dp_amx_parts p = dp_amx_split_row(s, i, mask);
    const struct dp_amx_parts q = dp_amx_split_row(s, i + 1, mask);

    to += i / 2 * DP_AMX_DEPTH;
#pragma GCC unroll 3
    for (size_t k = 0; k < DP_AMX_PARTS; k++) {
        __m512i a = p.part[k], b = q.part[k];
        if (ordered) {
            a = _mm512_permutexvar_epi64(dp_amx_fours(), a);
            b = _mm512_permutexvar_epi64(dp_amx_fours(), b);
        }
        _mm512_store_si512((void *)(to + k * DP_AMX_BLOCK), _mm512_unpacklo_epi16(a, b));
        _mm512_store_si512((void *)(to + k * DP_AMX_BLOCK + DP_AMX_TILE),
                           _mm512_unpackhi_epi16(a, b));
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

/* Columns are columns of B, in the order of dp_amx_pack_b() if `ordered`, or in that of its
 * pairs. */
DP_AMX_INLINE void dp_amx_split_b(uint16_t *to, const struct dp_amx_float_block *s, bool ordered)
{
    const __mmask32 mask = dp_amx_mask(s->columns);

    for (size_t i = 0; i < DP_AMX_SIDE; i += 2) {
        dp_amx_split_rows_of_b(to, s, i, mask, ordered);
    }
}

#endif
#endif
