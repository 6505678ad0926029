/*
 * signs.c - float32 to one bit a number and a scale a block, and back.
 *
 * Taking signs reads an element twice (the second time from the first-level cache) and writes it
 * once; the way back writes 4 bytes. Bits are packed in 32 lanes side by side: lane j takes numbers
 * j, 32 + j, 64 + j ... into its word.
 */
#include "kernels/cpu/float_bits.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/device.h"

enum { LANES = 32, SIGN = 31 };

/* The sum of magnitudes of n numbers, in the order of the lanes. */
static inline double take_words(uint32_t *restrict words, const float *restrict x, size_t n)
{
    double sums[LANES] = {0}, sum = 0;
    size_t i = 0;

    for (uint32_t k = 0; i + LANES <= n; k++, i += LANES) {
        for (size_t j = 0; j < LANES; j++) {
            const uint32_t bits = dp_bits_of(x[i + j]);
            words[j] |= bits >> SIGN << k;
            sums[j] += (double)dp_float_of(bits & DP_F32_MAGNITUDE);
        }
    }
    for (size_t j = 0; i + j < n; j++) {
        const uint32_t bits = dp_bits_of(x[i + j]);
        words[j] |= bits >> SIGN << (i / LANES);
        sums[j] += (double)dp_float_of(bits & DP_F32_MAGNITUDE);
    }
    for (size_t j = 0; j < LANES; j++) {
        sum += sums[j];
    }
    return sum;
}

static inline float signed_scale(const struct dp_signs *signs, size_t j, size_t k)
{
    return dp_float_of(dp_bits_of(signs->scale) ^ (signs->words[j] >> k & 1) << SIGN);
}

struct signs {
    const struct dp_signs *signs;
    struct dp_signs *out;
    float *x;
    size_t count;
};

DP_HOT static void take_part(void *arg, size_t begin, size_t end)
{
    const struct signs *t = arg;

    for (size_t at = begin; at < end; at += DP_SIGNS) {
        const size_t n = end - at < DP_SIGNS ? end - at : DP_SIGNS;
        struct dp_signs signs = {0};
        float *x = t->x + at;
        size_t i = 0;
        signs.scale = (float)(take_words(signs.words, x, n) / (double)n);
        for (; i + LANES <= n; i += LANES) {
            for (size_t j = 0; j < LANES; j++) {
                x[i + j] -= signed_scale(&signs, j, i / LANES);
            }
        }
        for (size_t j = 0; i + j < n; j++) {
            x[i + j] -= signed_scale(&signs, j, i / LANES);
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

    for (size_t at = begin; at < end; at += DP_SIGNS) {
        const struct dp_signs *signs = &t->signs[at / DP_SIGNS];
        const size_t n = end - at < DP_SIGNS ? end - at : DP_SIGNS;
        float *restrict y = t->x + at;
        size_t i = 0;
        for (; i + LANES <= n; i += LANES) {
            for (size_t j = 0; j < LANES; j++) {
                y[i + j] = signed_scale(signs, j, i / LANES);
            }
        }
        for (size_t j = 0; i + j < n; j++) {
            y[i + j] = signed_scale(signs, j, i / LANES);
        }
    }
}

dp_status dp_cpu_put_signs(struct dp_stream *s, float *y, const struct dp_signs *x, size_t count)
{
    struct signs t = {.signs = x, .x = y};

    dp_parallel(s->threads, count, DP_SIGNS, put_part, &t);
    return DP_OK;
}
