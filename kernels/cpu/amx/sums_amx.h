/*
 * sums_amx.h - a block of 32 x 32 sums in tiles 0 to 3, for the products of dense layers.
 */
#ifndef DP_KERNELS_CPU_AMX_SUMS_AMX_H
#define DP_KERNELS_CPU_AMX_SUMS_AMX_H

#include <stddef.h>

#include "kernels/cpu/amx/pack_amx.h"

#if DP_AMX_CODE

/* Rows of sums are `row` floats apart. */
DP_AMX_INLINE void dp_amx_load_sums(const float *sums, size_t row)
{
    const long bytes = (long)(row * sizeof(float));

    dp_amx_stored();
    _tile_loadd(0, sums, bytes);
    _tile_loadd(1, sums + DP_AMX_ROWS, bytes);
    _tile_loadd(2, sums + DP_AMX_ROWS * row, bytes);
    _tile_loadd(3, sums + DP_AMX_ROWS * row + DP_AMX_ROWS, bytes);
}

DP_AMX_INLINE void dp_amx_store_sums(float *sums, size_t row)
{
    const long bytes = (long)(row * sizeof(float));

    _tile_stored(0, sums, bytes);
    _tile_stored(1, sums + DP_AMX_ROWS, bytes);
    _tile_stored(2, sums + DP_AMX_ROWS * row, bytes);
    _tile_stored(3, sums + DP_AMX_ROWS * row + DP_AMX_ROWS, bytes);
}

DP_AMX_INLINE void dp_amx_zero_sums(void)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

#endif
#endif
