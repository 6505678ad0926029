/*
 * random_blocks.h - many numbers of base/random.h at a time, in vectors.
 */
#ifndef DP_KERNELS_CPU_RANDOM_BLOCKS_H
#define DP_KERNELS_CPU_RANDOM_BLOCKS_H

#include "base/random.h"
#include "kernels/cpu/parallel.h"

enum { DP_RANDOM_BLOCKS = 32, DP_RANDOM_NUMBERS = 4 * DP_RANDOM_BLOCKS };

/* out[4 i ... 4 i + 3] = block first + i of the sequence: dp_random_block(). */
static inline void dp_random_blocks(uint64_t seed, uint32_t what, uint32_t step, uint64_t first,
                                    uint32_t out[DP_RANDOM_NUMBERS])
{
    DP_INDEPENDENT
    for (size_t i = 0; i < DP_RANDOM_BLOCKS; i++) {
        uint32_t four[4];
        dp_random_block(seed, what, step, first + i, four);
        out[4 * i] = four[0];
        out[4 * i + 1] = four[1];
        out[4 * i + 2] = four[2];
        out[4 * i + 3] = four[3];
    }
}

#endif
