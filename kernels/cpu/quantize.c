/*
 * quantize.c - float32 to 8 bits a number and a scale a block, and back.
 *
 * Quantizing reads 4 and writes 1 byte per element and costs about 30 integer operations for its
 * random number; dequantizing is limited by memory.
 */
#include <float.h>
#include <math.h>

#include "kernels/cpu/float_bits.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/random_blocks.h"
#include "kernels/device.h"

struct quantize {
    int8_t *y;
    float *scales;
    const float *x;
    size_t block;
    const struct dp_key *key;
};

static inline uint32_t largest_magnitude(const float *x, size_t count)
{
    uint32_t most = 0;

    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = dp_bits_of(x[i]) & DP_F32_MAGNITUDE;
        most = bits > most ? bits : most;
    }
    return most;
}

static inline int8_t quantize_one(float x, float inverse, uint32_t bits)
{
    const float q = floorf(x * inverse + dp_random_unit(bits));
    const float low = q < -127.0f ? -127.0f : q;

    return (int8_t)(int)(low > 127.0f ? 127.0f : low);
}

/* y [count] from element `at` on. */
DP_HOT static void quantize_block(const struct quantize *t, size_t at, size_t count, float inverse)
{
    _Alignas(DP_MEM_ALIGN) uint32_t bits[DP_RANDOM_NUMBERS];
    int8_t *restrict y = t->y;
    const float *restrict x = t->x;
    const size_t end = at + count;

    while (at < end) {
        const uint64_t index = t->key->first + at;
        const size_t skip = (size_t)(index & 3); /* numbers of the first block that belong to
                                                  * earlier elements */
        const size_t left = DP_RANDOM_NUMBERS - skip, some = end - at < left ? end - at : left;
        dp_random_blocks(t->key->seed, t->key->what, t->key->step, index >> 2, bits);
        DP_INDEPENDENT
        for (size_t j = 0; j < some; j++) {
            y[at + j] = quantize_one(x[at + j], inverse, bits[skip + j]);
        }
        at += some;
    }
}

DP_HOT static void quantize_part(void *arg, size_t begin, size_t end)
{
    const struct quantize *t = arg;

    for (size_t at = begin; at < end; at += t->block) {
        const size_t count = end - at < t->block ? end - at : t->block;
        const uint32_t most = largest_magnitude(t->x + at, count);
        float scale = dp_float_of(most) / 127.0f;
        if (most >= DP_F32_INFINITY || scale < FLT_MIN) {
            scale = most >= DP_F32_INFINITY ? NAN : 0.0f;
            memset(t->y + at, 0, count);
        } else {
            quantize_block(t, at, count, 1.0f / scale);
        }
        t->scales[at / t->block] = scale;
    }
}

dp_status dp_cpu_quantize(struct dp_stream *s, int8_t *y, float *scales, const float *x,
                          size_t block, size_t count, const struct dp_key *key)
{
    struct quantize t = {y, scales, x, block, key};

    dp_parallel(s->threads, count, block, quantize_part, &t);
    return DP_OK;
}

struct dequantize {
    float *y;
    const int8_t *x;
    const float *scales;
    size_t block;
};

DP_HOT static void dequantize_part(void *arg, size_t begin, size_t end)
{
    const struct dequantize *t = arg;

    for (size_t at = begin; at < end; at += t->block) {
        const size_t count = end - at < t->block ? end - at : t->block;
        const float scale = t->scales[at / t->block];
        float *restrict y = t->y + at;
        const int8_t *restrict x = t->x + at;
        for (size_t i = 0; i < count; i++) {
            y[i] = (float)x[i] * scale;
        }
    }
}

dp_status dp_cpu_dequantize(struct dp_stream *s, float *y, const int8_t *x, const float *scales,
                            size_t block, size_t count)
{
    struct dequantize t = {y, x, scales, block};

    dp_parallel(s->threads, count, block, dequantize_part, &t);
    return DP_OK;
}
