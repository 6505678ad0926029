/*
 * conv_step.h - what convolutions by tiles do for bfloat16 and for float32 in three bfloats alike:
 * steps of 32 products for 32 x 32 sums. `parts` is 1 or 3, and known when the code is compiled.
 */
#ifndef DP_KERNELS_CPU_AMX_CONV_STEP_H
#define DP_KERNELS_CPU_AMX_CONV_STEP_H

#include "kernels/cpu/amx/products_amx.h"

#if DP_AMX_CODE

/* Bytes of an image's numbers. */
static inline size_t dp_conv_number(size_t parts)
{
    return parts == 1 ? sizeof(uint16_t) : sizeof(float);
}

/* The operand's part `far` is fetched into the first cache. */
DP_AMX_INLINE void dp_conv_add_step(const struct dp_amx_operand *a, const struct dp_amx_operand *b,
                                    const uint16_t *far, size_t parts)
{
    struct dp_amx_splitting nothing = {0};
    struct dp_amx_beside beside = {&nothing, far, false};

    if (parts > 1) {
        dp_amx_add_step(a, b, &beside);
        return;
    }
    _tile_loadd(4, a->at, a->row);
    _tile_loadd(6, b->at, b->row);
    DP_AMX_MULTIPLY(0, 4, 6);
    _tile_loadd(7, b->at + b->half, b->row);
    DP_AMX_MULTIPLY(1, 4, 7);
    _tile_loadd(5, a->at + a->half, a->row);
    DP_AMX_MULTIPLY(2, 5, 6);
    DP_AMX_MULTIPLY(3, 5, 7);
}

#endif
#endif
