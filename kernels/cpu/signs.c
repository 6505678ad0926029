/*
 * signs.c - float32 to one bit a number and a scale a block, and back.
 *
 * Taking signs reads an element twice (the second time from the first-level cache) and writes it
 * once; put_signs writes 4 bytes. Bits are packed in 32 parallel lanes: lane j packs numbers j, 32
 * + j, 64 + j ... into its word, so a block of 64 is two rows of lanes.
 */
#include "kernels/cpu/float_bits.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/device.h"

enum { LANES = 32, SIGN = 31 };

/* Packs the bits of the first n lanes of row k; their magnitudes are added to sums. */
static inline void take_row(uint32_t *restrict words, double *restrict sums,
                            const float *restrict x, size_t n, size_t k)
{
    for (size_t j = 0; j < n; j++) {
        const uint32_t bits = dp_bits_of(x[j]);
        words[j] |= bits >> SIGN << k;
        sums[j] += (double)dp_float_of(bits & DP_F32_MAGNITUDE);
    }
}

static inline float take_block(struct dp_signs *signs, const float *x, size_t n, size_t block)
{
    double sums[LANES] = {0};
    const size_t row = 2 * block;

    if (n == DP_BLOCK) { /* a case of its own, so that the compiler knows the length of rows */
        take_row(signs->words, sums, x, LANES, row);
        take_row(signs->words, sums, x + LANES, LANES, row + 1);
    } else {
        take_row(signs->words, sums, x, n < LANES ? n : LANES, row);
        take_row(signs->words, sums, x + LANES, n < LANES ? 0 : n - LANES, row + 1);
    }
    for (size_t half = LANES / 2; half > 0; half /= 2) {
        for (size_t j = 0; j < half; j++) {
            sums[j] += sums[j + half];
        }
    }
    return (float)(sums[0] / (double)n);
}

/* y = the first n lanes of row k. */
static inline void signed_row(float *restrict y, const uint32_t *restrict words, float scale,
                              size_t n, size_t k)
{
    const uint32_t bits = dp_bits_of(scale);

    for (size_t j = 0; j < n; j++) {
        y[j] = dp_float_of(bits ^ (words[j] >> k & 1) << SIGN);
    }
}

/* Writes the n numbers of block `block`. */
static inline void signed_block(float *y, const struct dp_signs *signs, size_t n, size_t block)
{
    const float scale = signs->scale[block];
    const size_t row = 2 * block;

    if (n == DP_BLOCK) {
        signed_row(y, signs->words, scale, LANES, row);
        signed_row(y + LANES, signs->words, scale, LANES, row + 1);
    } else {
        signed_row(y, signs->words, scale, n < LANES ? n : LANES, row);
        signed_row(y + LANES, signs->words, scale, n < LANES ? 0 : n - LANES, row + 1);
    }
}

struct signs {
    const struct dp_signs *signs;
    struct dp_signs *out;
    float *x;
};

DP_HOT static void take_part(void *arg, size_t begin, size_t end)
{
    const struct signs *t = arg;

    for (size_t at = begin; at < end; at += DP_SIGNS) {
        struct dp_signs signs = {{0}, {0}};
        for (size_t i = at, block = 0; i < end && block < DP_SIGN_SCALES; block++) {
            const size_t n = end - i < DP_BLOCK ? end - i : DP_BLOCK;
            float sent[DP_BLOCK], *x = t->x + i;
            signs.scale[block] = take_block(&signs, x, n, block);
            signed_block(sent, &signs, n, block);
            for (size_t j = 0; j < n; j++) {
                x[j] -= sent[j];
            }
            i += n;
        }
        t->out[at / DP_SIGNS] = signs;
    }
}

dp_status dp_cpu_take_signs(struct dp_stream *s, struct dp_signs *y, float *x, size_t count)
{
    struct signs t = {.out = y, .x = x};

    dp_parallel(s->threads, count, DP_SIGNS, take_part, &t);
    return DP_OK;
}

DP_HOT static void put_part(void *arg, size_t begin, size_t end)
{
    const struct signs *t = arg;

    for (size_t i = begin; i < end; i += DP_BLOCK) {
        signed_block(t->x + i, &t->signs[i / DP_SIGNS], end - i < DP_BLOCK ? end - i : DP_BLOCK,
                     i % DP_SIGNS / DP_BLOCK);
    }
}

dp_status dp_cpu_put_signs(struct dp_stream *s, float *y, const struct dp_signs *x, size_t count)
{
    struct signs t = {.signs = x, .x = y};

    dp_parallel(s->threads, count, DP_SIGNS, put_part, &t);
    return DP_OK;
}
