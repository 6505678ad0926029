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

enum { DP_AMX_PRODUCTS = 6 };

/* Blocks beside each other, which are split one after the other. */
struct dp_amx_splitting {
    uint16_t *to;                    /* the next split block */
    struct dp_amx_float_block block; /* the next one */
    size_t pair;                     /* of its rows */
    size_t blocks;                   /* that are left, with this one */
    size_t pairs;                    /* of rows, with each product of parts */
    size_t ahead; /* floats from a row to what is fetched with it into the second cache. Beyond the
                   * last block that is other memory, or none, which does no harm */
};

DP_AMX_INLINE void dp_amx_fetch_rows(const float *from, size_t distance)
{
    const char *first = (const char *)from, *second = (const char *)(from + distance);

    _mm_prefetch(first, _MM_HINT_T1);
    _mm_prefetch(first + 64, _MM_HINT_T1);
    _mm_prefetch(second, _MM_HINT_T1);
    _mm_prefetch(second + 64, _MM_HINT_T1);
}

/* `along`: the blocks are in the same rows, which are rows of A; else they are one below the
 * other, and their columns those of B. */
DP_AMX_INLINE void dp_amx_split_some(struct dp_amx_splitting *s, size_t pairs, bool along)
{
    for (size_t k = 0; k < pairs && s->blocks > 0; k++) {
        struct dp_amx_float_block *block = &s->block;
        const __mmask32 mask = dp_amx_mask(block->columns);
        const size_t row = along ? 2 * s->pair : s->pair,
                     next = along ? row + 1 : row + DP_AMX_ROWS;
        const size_t step = along ? DP_AMX_SIDE : DP_AMX_SIDE * block->ld;
        dp_amx_fetch_rows(block->from + row * block->ld + s->ahead, (next - row) * block->ld);
        if (along) {
            dp_amx_split_row_of_a(s->to, block, row, mask);
            dp_amx_split_row_of_a(s->to, block, next, mask);
        } else {
            dp_amx_split_rows_of_b(s->to, block, row, mask);
        }
        if (++s->pair == DP_AMX_ROWS && --s->blocks > 0) {
            s->pair = 0;
            s->to += DP_AMX_SPLIT_BLOCK;
            block->from += step;
            block->columns -= along ? DP_AMX_SIDE : 0;
            block->rows -= along ? 0 : DP_AMX_SIDE;
        }
    }
}

/* What vectors do while tiles multiply. */
struct dp_amx_beside {
    struct dp_amx_splitting *next;
    const uint16_t *far; /* a tile to be fetched into the first cache */
    bool along;
};

/* A quarter of it, so that instructions of tiles are apart from each other. */
DP_AMX_INLINE void dp_amx_beside(const struct dp_amx_beside *b, size_t quarter)
{
    const uint16_t *far = b->far + quarter * DP_AMX_TILE / 4;

#pragma GCC unroll 4
    for (size_t i = 0; i < DP_AMX_ROWS / 4; i++) {
        _mm_prefetch((const char *)(far + i * DP_AMX_DEPTH), _MM_HINT_T0);
    }
    dp_amx_split_some(b->next, (b->next->pairs + 3 - quarter) / 4, b->along);
}

/* Where the tiles of 32 x 32 numbers of A or B lie: two halves, each in parts. */
struct dp_amx_operand {
    const uint16_t *at;
    size_t half, part; /* distances in bfloats */
    long row;          /* bytes from a row of a tile to the next */
};

/* Those of a block, packed or split. */
DP_AMX_INLINE struct dp_amx_operand dp_amx_operand_at(const uint16_t *at)
{
    return (struct dp_amx_operand){at, DP_AMX_TILE, DP_AMX_BLOCK, DP_AMX_DEPTH * sizeof(*at)};
}

/* Tiles 0 to 3 += a tile 4 or 5 of A by a tile 6 or 7 of B. Each tile that is done with is loaded
 * at once: while the others are multiplied. */
DP_AMX_INLINE void dp_amx_multiply_load_a(const struct dp_amx_operand *a, size_t part,
                                          struct dp_amx_beside *beside)
{
    const uint16_t *next = a->at + part * a->part;

    DP_AMX_MULTIPLY(0, 4, 6);
    dp_amx_beside(beside, 0);
    DP_AMX_MULTIPLY(1, 4, 7);
    dp_amx_beside(beside, 1);
    _tile_loadd(4, next, a->row);
    DP_AMX_MULTIPLY(2, 5, 6);
    dp_amx_beside(beside, 2);
    DP_AMX_MULTIPLY(3, 5, 7);
    dp_amx_beside(beside, 3);
    _tile_loadd(5, next + a->half, a->row);
    beside->far += DP_AMX_TILE;
}

DP_AMX_INLINE void dp_amx_multiply_load_b(const struct dp_amx_operand *b, size_t part,
                                          struct dp_amx_beside *beside)
{
    const uint16_t *next = b->at + part * b->part;

    DP_AMX_MULTIPLY(0, 4, 6);
    dp_amx_beside(beside, 0);
    DP_AMX_MULTIPLY(2, 5, 6);
    dp_amx_beside(beside, 1);
    _tile_loadd(6, next, b->row);
    DP_AMX_MULTIPLY(1, 4, 7);
    dp_amx_beside(beside, 2);
    DP_AMX_MULTIPLY(3, 5, 7);
    dp_amx_beside(beside, 3);
    _tile_loadd(7, next + b->half, b->row);
    beside->far += DP_AMX_TILE;
}

DP_AMX_INLINE void dp_amx_multiply(struct dp_amx_beside *beside)
{
    DP_AMX_MULTIPLY(0, 4, 6);
    dp_amx_beside(beside, 0);
    DP_AMX_MULTIPLY(1, 4, 7);
    dp_amx_beside(beside, 1);
    DP_AMX_MULTIPLY(2, 5, 6);
    dp_amx_beside(beside, 2);
    DP_AMX_MULTIPLY(3, 5, 7);
    dp_amx_beside(beside, 3);
    beside->far += DP_AMX_TILE;
}

/* 32 products of each sum: six products of parts, in an order in which each needs one other
 * operand. Each fetches a tile of `far`. */
DP_AMX_INLINE void dp_amx_add_step(const struct dp_amx_operand *a, const struct dp_amx_operand *b,
                                   struct dp_amx_beside *beside)
{
    _tile_loadd(4, a->at + 2 * a->part, a->row);
    _tile_loadd(6, b->at, b->row);
    _tile_loadd(7, b->at + b->half, b->row);
    _tile_loadd(5, a->at + 2 * a->part + a->half, a->row);
    dp_amx_multiply_load_a(a, 1, beside);
    dp_amx_multiply_load_a(a, 0, beside);
    dp_amx_multiply_load_b(b, 2, beside);
    dp_amx_multiply_load_b(b, 1, beside);
    dp_amx_multiply_load_a(a, 1, beside);
    dp_amx_multiply(beside);
}

/* Of split blocks one after the other. `far` is the operand that lies in the second cache alone:
 * its next block is fetched. */
DP_AMX_INLINE void dp_amx_add_products(const uint16_t *a, const uint16_t *b, const uint16_t *far,
                                       size_t steps, struct dp_amx_splitting *next, bool along)
{
    struct dp_amx_beside beside = {next, far + DP_AMX_SPLIT_BLOCK, along};

    dp_amx_stored();
    for (size_t i = 0; i < steps; i++, a += DP_AMX_SPLIT_BLOCK, b += DP_AMX_SPLIT_BLOCK) {
        const struct dp_amx_operand left = dp_amx_operand_at(a), right = dp_amx_operand_at(b);
        dp_amx_add_step(&left, &right, &beside);
    }
}

#endif
#endif
