/*
 * random.h - random numbers as a function: value = f(seed, what, step, index).
 *
 * There is no state, so any rank or thread can compute any number in any order, and a result never
 * depends on the number of ranks. The generator is Philox4x32-10, which passes BigCrush.
 *
 * Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011,
 * section 4 (Philox).
 */
#ifndef DP_BASE_RANDOM_H
#define DP_BASE_RANDOM_H

#include <stdint.h>

/* For functions that kernels call, too. */
#ifdef __CUDACC__
#define DP_ANYWHERE __host__ __device__
#else
#define DP_ANYWHERE
#endif

/* What a number is for: numbers of different purposes are independent. */
enum dp_random_what {
    DP_RANDOM_WEIGHTS = 1 << 24, /* + number of the tensor */
    DP_RANDOM_DROPOUT = 2 << 24, /* + number of the layer */
    DP_RANDOM_SHUFFLE = 3 << 24, /* + round of the permutation */
    DP_RANDOM_SYNTHETIC = 4 << 24,
    DP_RANDOM_AUGMENT = 5 << 24,
    DP_RANDOM_TEST = 6 << 24,
    DP_RANDOM_CODE = 7 << 24, /* + rank that encodes; + 0xfffff0 ... ffffff: equal on all ranks */
    DP_RANDOM_SPLIT = 8 << 24,
    DP_RANDOM_WINDOW = 9 << 24
};

/* Four independent 32-bit numbers: block `block` of the sequence (seed, what, step). Element i of
 * a sequence is word i % 4 of block i / 4. */
DP_ANYWHERE static inline void dp_random_block(uint64_t seed, uint32_t what, uint32_t step,
                                               uint64_t block, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = step, c3 = what;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        const uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Element `index` of the sequence (seed, what, step). */
DP_ANYWHERE static inline uint32_t dp_random_u32(uint64_t seed, uint32_t what, uint32_t step,
                                                 uint64_t index)
{
    uint32_t out[4];

    dp_random_block(seed, what, step, index >> 2, out);
    return out[index & 3];
}

/* The upper 24 bits as a float in [0, 1): exact, so equal on every device. */
DP_ANYWHERE static inline float dp_random_unit(uint32_t bits)
{
    return (float)(bits >> 8) * (1.0f / 16777216.0f);
}

#endif
