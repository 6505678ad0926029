/*
 * products_amx.h - sums of products of split blocks (split_amx.h): of the nine products of parts
 * those six that a float32 sum can see. Tiles multiply beside vectors, which split other blocks
 * meanwhile.
 */
#ifndef DP_KERNELS_CPU_AMX_PRODUCTS_AMX_H
#define DP_KERNELS_CPU_AMX_PRODUCTS_AMX_H

#include "kernels/cpu/amx/split_amx.h"
#include "kernels/cpu/amx/sums_amx.h"

#if DP_AMX_CODE

enum {
    DP_AMX_SECOND = DP_AMX_BLOCK, /* where the parts of a split block begin */
    DP_AMX_THIRD = 2 * DP_AMX_BLOCK,
    DP_AMX_PRODUCTS = 6
};

/* Blocks beside each other, which are split one after the other. */
struct dp_amx_splitting {
    uint16_t *to;                    /* the next split block */
    struct dp_amx_float_block block; /* the next one */
    size_t row;                      /* of the block, even */
    size_t blocks;                   /* that are left, with this one */
    size_t pairs;                    /* of rows, after each product */
};

/* `along`: the blocks are in the same rows, which are rows of A; else they are one below the
 * other, and their columns those of B. */
DP_AMX_INLINE void dp_amx_split_some(struct dp_amx_splitting *s, size_t pairs, bool along)
{
    for (size_t k = 0; k < pairs && s->blocks > 0; k++) {
        struct dp_amx_float_block *block = &s->block;
        const __mmask32 mask = dp_amx_mask(block->columns);
        if (along) {
            dp_amx_split_row_of_a(s->to, block, s->row, mask);
            dp_amx_split_row_of_a(s->to, block, s->row + 1, mask);
        } else {
            dp_amx_split_rows_of_b(s->to, block, s->row, mask, false);
        }
        s->row += 2;
        if (s->row == DP_AMX_SIDE && --s->blocks > 0) {
            s->row = 0;
            s->to += DP_AMX_SPLIT_BLOCK;
            block->from += along ? DP_AMX_SIDE : DP_AMX_SIDE * block->ld;
            block->columns -= along ? DP_AMX_SIDE : 0;
            block->rows -= along ? 0 : DP_AMX_SIDE;
        }
    }
}

/* Tiles 0 to 3 += a tile 4 or 5 of A by a tile 6 or 7 of B. Each tile that is done with is loaded
 * at once: while the others are multiplied. */
DP_AMX_INLINE void dp_amx_multiply_load_a(const uint16_t *next)
{
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(4, next, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    _tile_loadd(5, next + DP_AMX_TILE, 64);
}

DP_AMX_INLINE void dp_amx_multiply_load_b(const uint16_t *next)
{
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(2, 5, 6);
    _tile_loadd(6, next, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
    _tile_loadd(7, next + DP_AMX_TILE, 64);
}

/* Fetches a tile of the next step into the first cache. */
DP_AMX_INLINE void dp_amx_prefetch(const uint16_t *next, size_t tile)
{
#pragma GCC unroll 16
    for (size_t i = 0; i < DP_AMX_ROWS; i++) {
        _mm_prefetch((const char *)(next + tile * DP_AMX_TILE + i * DP_AMX_DEPTH), _MM_HINT_T0);
    }
}

DP_AMX_INLINE void dp_amx_multiply(void)
{
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
}

/* What vectors do while tiles multiply. */
DP_AMX_INLINE void dp_amx_beside(struct dp_amx_splitting *next, const uint16_t *far, size_t tile,
                                 bool along)
{
    dp_amx_prefetch(far, tile);
    dp_amx_split_some(next, next->pairs, along);
}

/* Of each step six products of parts, in an order in which each needs one other operand. `far` is
 * the operand that lies in the second cache alone; each product fetches a tile of it. */
DP_AMX_INLINE void dp_amx_add_products(const uint16_t *a, const uint16_t *b, const uint16_t *far,
                                       size_t steps, const struct dp_amx_ahead *ahead,
                                       struct dp_amx_splitting *next, bool along)
{
    const char *step = ahead->at;

    for (size_t i = 0; i < steps;
         i++, a += DP_AMX_SPLIT_BLOCK, b += DP_AMX_SPLIT_BLOCK, step += ahead->step) {
        const char *at = step;
        far += DP_AMX_SPLIT_BLOCK;
        _tile_loadd(4, a + DP_AMX_THIRD, 64);
        _tile_loadd(6, b, 64);
        _tile_loadd(7, b + DP_AMX_TILE, 64);
        _tile_loadd(5, a + DP_AMX_THIRD + DP_AMX_TILE, 64);
        for (size_t k = 0; k < ahead->rows; k++, at += ahead->row) {
            _mm_prefetch(at, _MM_HINT_T1);
            _mm_prefetch(at + 64, _MM_HINT_T1);
        }
        dp_amx_multiply_load_a(a + DP_AMX_SECOND);
        dp_amx_beside(next, far, 0, along);
        dp_amx_multiply_load_a(a);
        dp_amx_beside(next, far, 1, along);
        dp_amx_multiply_load_b(b + DP_AMX_THIRD);
        dp_amx_beside(next, far, 2, along);
        dp_amx_multiply_load_b(b + DP_AMX_SECOND);
        dp_amx_beside(next, far, 3, along);
        dp_amx_multiply_load_a(a + DP_AMX_SECOND);
        dp_amx_beside(next, far, 4, along);
        dp_amx_multiply();
        dp_amx_beside(next, far, 5, along);
    }
}

#endif
#endif
