/*
 * narrow.c - float32 to 16 bits and back, in integer arithmetic that is the same with every
 * instruction set. Halves use the processor's own instructions where it has them (F16C, about 3
 * times as fast), which differ only in the bits of NaN.
 *
 * 6 bytes are moved per element. A half has 10 fraction bits; it is rounded as bfloat.h says.
 */
#include <assert.h>
#include <stdbool.h>
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HALVES_BY_PROCESSOR
#include <immintrin.h>
#endif

#include "kernels/cpu/bfloat.h"
#include "kernels/cpu/float_bits.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/device.h"

enum {
    F16_NORMAL = 113 << 23,    /* bits of 2^-14, the smallest normal half */
    F16_BEYOND = 143 << 23,    /* bits of 2^16, above all halves */
    F16_REBASE = 112 << 23,    /* difference of the exponents' offsets */
    F16_SMALL_STEP = 126 << 23 /* bits of 0.5: its last fraction bit is 2^-24, as that of small
                                * halves */
};

static inline uint16_t half_of(float x)
{
    const uint32_t all = dp_bits_of(x), sign = all >> 16 & 0x8000, a = all & DP_F32_MAGNITUDE;
    const uint32_t normal = (a - F16_REBASE + 0xfff + (a >> 13 & 1)) >> 13;
    const uint32_t small = dp_bits_of(dp_float_of(a) + 0.5f) - F16_SMALL_STEP;
    const uint32_t special = a > DP_F32_INFINITY ? 0x7e00 : 0x7c00;
    const uint32_t finite = a < F16_NORMAL ? small : normal;

    return (uint16_t)(sign | (a >= F16_BEYOND ? special : finite));
}

/* Small halves, whose exponent is 0, are multiples of 2^-24. */
static inline float of_half(uint16_t h)
{
    const uint32_t a = (uint32_t)(h & 0x7fff) << 13;
    const uint32_t small = dp_bits_of((float)(int32_t)(a >> 13) * (1.0f / 16777216.0f));
    const uint32_t special = a == 0x0f800000 ? DP_F32_INFINITY : 0x7fc00000;
    const uint32_t finite = a < 0x00800000 ? small : a + F16_REBASE;

    return dp_float_of((uint32_t)(h & 0x8000) << 16 | (a >= 0x0f800000 ? special : finite));
}

/* With one bit pattern for NaN. */
static inline float of_bfloat(uint16_t b)
{
    const uint32_t a = (uint32_t)b << 16;

    return dp_float_of((a & DP_F32_MAGNITUDE) > DP_F32_INFINITY ? (a & 0x80000000) | 0x7fc00000
                                                                : a);
}

struct casts {
    float *wide;
    const float *x;
    uint16_t *narrow;
    const uint16_t *y;
};

DP_HOT static void to_half_plain(void *arg, size_t begin, size_t end)
{
    const struct casts *c = arg;
    uint16_t *restrict y = c->narrow;
    const float *restrict x = c->x;

    for (size_t i = begin; i < end; i++) {
        y[i] = half_of(x[i]);
    }
}

DP_HOT static void from_half_plain(void *arg, size_t begin, size_t end)
{
    const struct casts *c = arg;
    float *restrict y = c->wide;
    const uint16_t *restrict x = c->y;

    for (size_t i = begin; i < end; i++) {
        y[i] = of_half(x[i]);
    }
}

#ifdef HALVES_BY_PROCESSOR
#define WITH_HALVES __attribute__((target("avx2,f16c")))
enum { LANES = 8 };

static bool has_halves(void)
{
    return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("f16c") != 0;
}

WITH_HALVES static inline bool has_nan(__m256 x)
{
    return _mm256_movemask_ps(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)) != 0;
}

WITH_HALVES static void to_half_fast(void *arg, size_t begin, size_t end)
{
    const struct casts *c = arg;
    size_t i = begin;

    for (; i + LANES <= end; i += LANES) {
        const __m256 x = _mm256_loadu_ps(c->x + i);
        if (has_nan(x)) {
            to_half_plain(arg, i, i + LANES);
        } else {
            _mm_storeu_si128((__m128i *)(c->narrow + i),
                             _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
        }
    }
    to_half_plain(arg, i, end);
}

WITH_HALVES static void from_half_fast(void *arg, size_t begin, size_t end)
{
    const struct casts *c = arg;
    size_t i = begin;

    for (; i + LANES <= end; i += LANES) {
        const __m256 x = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(c->y + i)));
        if (has_nan(x)) {
            from_half_plain(arg, i, i + LANES);
        } else {
            _mm256_storeu_ps(c->wide + i, x);
        }
    }
    from_half_plain(arg, i, end);
}
#endif

static void to_half(void *arg, size_t begin, size_t end)
{
#ifdef HALVES_BY_PROCESSOR
    if (has_halves()) {
        to_half_fast(arg, begin, end);
        return;
    }
#endif
    to_half_plain(arg, begin, end);
}

static void from_half(void *arg, size_t begin, size_t end)
{
#ifdef HALVES_BY_PROCESSOR
    if (has_halves()) {
        from_half_fast(arg, begin, end);
        return;
    }
#endif
    from_half_plain(arg, begin, end);
}

DP_HOT static void to_bfloat(void *arg, size_t begin, size_t end)
{
    const struct casts *c = arg;
    uint16_t *restrict y = c->narrow;
    const float *restrict x = c->x;

    for (size_t i = begin; i < end; i++) {
        y[i] = dp_bfloat_of(x[i]);
    }
}

DP_HOT static void from_bfloat(void *arg, size_t begin, size_t end)
{
    const struct casts *c = arg;
    float *restrict y = c->wide;
    const uint16_t *restrict x = c->y;

    for (size_t i = begin; i < end; i++) {
        y[i] = of_bfloat(x[i]);
    }
}

dp_status dp_cpu_narrow(struct dp_stream *s, uint16_t *y, const float *x, size_t count,
                        enum dp_type type)
{
    struct casts c = {.narrow = y, .x = x};

    assert(type != DP_TYPE_F32);
    dp_parallel(s->threads, count, DP_BLOCK, type == DP_TYPE_F16 ? to_half : to_bfloat, &c);
    return DP_OK;
}

dp_status dp_cpu_widen(struct dp_stream *s, float *y, const uint16_t *x, size_t count,
                       enum dp_type type)
{
    struct casts c = {.wide = y, .y = x};

    assert(type != DP_TYPE_F32);
    dp_parallel(s->threads, count, DP_BLOCK, type == DP_TYPE_F16 ? from_half : from_bfloat, &c);
    return DP_OK;
}
