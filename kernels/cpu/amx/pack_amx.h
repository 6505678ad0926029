/*
 * pack_amx.h - copies of 32 x 32 bfloats of a matrix into two tiles, one after the other, for
 * the products of dense layers. Rows are `ld` apart; what a matrix lacks of 32 rows or columns
 * is 0.
 */
#ifndef DP_KERNELS_CPU_AMX_PACK_AMX_H
#define DP_KERNELS_CPU_AMX_PACK_AMX_H

#include <stddef.h>

#include "kernels/cpu/amx/amx.h"

#if DP_AMX_CODE

#define DP_AMX_INLINE DP_AMX static inline __attribute__((always_inline))

enum { DP_AMX_SIDE = 2 * DP_AMX_ROWS, DP_AMX_BLOCK = 2 * DP_AMX_TILE /* bfloats */ };

struct dp_amx_block {
    const uint16_t *from;
    size_t ld, rows, columns; /* those that are left; more than 32 count as 32 */
};

DP_AMX_INLINE __mmask32 dp_amx_mask(size_t count)
{
    return count < DP_AMX_SIDE ? ((__mmask32)1 << count) - 1 : ~(__mmask32)0;
}

DP_AMX_INLINE __m512i dp_amx_row(const struct dp_amx_block *s, size_t i, __mmask32 mask)
{
    return i < s->rows ? _mm512_maskz_loadu_epi16(mask, s->from + i * s->ld)
                       : _mm512_setzero_si512();
}

/* A tile whose rows are the columns of these. */
DP_AMX_INLINE void dp_amx_store_columns(uint16_t *to, __m512i v[DP_AMX_ROWS])
{
    dp_amx_transpose(v);
#pragma GCC unroll 16
    for (size_t i = 0; i < DP_AMX_ROWS; i++) {
        _mm512_store_si512((void *)(to + i * DP_AMX_DEPTH), v[i]);
    }
}

/* Rows are rows of A. */
DP_AMX_INLINE void dp_amx_pack_a(uint16_t *to, const struct dp_amx_block *s)
{
    const __mmask32 mask = dp_amx_mask(s->columns);

#pragma GCC unroll 32
    for (size_t i = 0; i < DP_AMX_SIDE; i++) {
        _mm512_store_si512((void *)(to + i * DP_AMX_DEPTH), dp_amx_row(s, i, mask));
    }
}

/* Rows are columns of B. */
DP_AMX_INLINE void dp_amx_pack_b_transposed(uint16_t *to, const struct dp_amx_block *s)
{
    const __mmask32 mask = dp_amx_mask(s->columns);
    __m512i v[DP_AMX_ROWS];

    for (size_t tile = 0; tile < 2; tile++, to += DP_AMX_TILE) {
#pragma GCC unroll 16
        for (size_t i = 0; i < DP_AMX_ROWS; i++) {
            v[i] = dp_amx_row(s, tile * DP_AMX_ROWS + i, mask);
        }
        dp_amx_store_columns(to, v);
    }
}

/* Columns, four at a time, in the order in which pairing rows puts columns 0 to 15 into the first
 * vector. Also its inverse. */
DP_AMX_INLINE __m512i dp_amx_fours(void)
{
    return _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0);
}

/* Columns are columns of B: tile 0 has columns 0 to 15 if `ordered`, else 0 to 3, 8 to 11, 16 to 19
 * and 24 to 27, which costs half as much. */
DP_AMX_INLINE void dp_amx_pack_b(uint16_t *to, const struct dp_amx_block *s, bool ordered)
{
    const __mmask32 mask = dp_amx_mask(s->columns);

#pragma GCC unroll 16
    for (size_t i = 0; i < DP_AMX_ROWS; i++) {
        __m512i a = dp_amx_row(s, 2 * i, mask), b = dp_amx_row(s, 2 * i + 1, mask);
        if (ordered) {
            a = _mm512_permutexvar_epi64(dp_amx_fours(), a);
            b = _mm512_permutexvar_epi64(dp_amx_fours(), b);
        }
        _mm512_store_si512((void *)(to + i * DP_AMX_DEPTH), _mm512_unpacklo_epi16(a, b));
        _mm512_store_si512((void *)(to + DP_AMX_TILE + i * DP_AMX_DEPTH),
                           _mm512_unpackhi_epi16(a, b));
    }
}

/* Columns are rows of A. */
DP_AMX_INLINE void dp_amx_pack_a_transposed(uint16_t *to, const struct dp_amx_block *s)
{
    const __mmask32 mask = dp_amx_mask(s->columns);
    __m512i low[DP_AMX_ROWS], high[DP_AMX_ROWS];

#pragma GCC unroll 16
    for (size_t i = 0; i < DP_AMX_ROWS; i++) {
        const __m512i a = _mm512_permutexvar_epi64(dp_amx_fours(), dp_amx_row(s, 2 * i, mask));
        const __m512i b = _mm512_permutexvar_epi64(dp_amx_fours(), dp_amx_row(s, 2 * i + 1, mask));
        low[i] = _mm512_unpacklo_epi16(a, b);
        high[i] = _mm512_unpackhi_epi16(a, b);
    }
    dp_amx_store_columns(to, low);
    dp_amx_store_columns(to + DP_AMX_TILE, high);
}

#endif
#endif
