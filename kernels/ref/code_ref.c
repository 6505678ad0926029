/*
 * code_ref.c - smaller forms of a gradient: the formulas of kernels/ops.h, one loop each.
 */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/random.h"
#include "kernels/ref/element.h"
#include "kernels/ref/ops_ref.h"

/* A 16-bit format: numbers are q 2^e with |q| < 2^digits and e >= lowest; `infinity` is its
 * bits. */
struct format {
    int digits, lowest;
    uint16_t infinity;
};

static const struct format half = {11, -24, 0x7c00}, bfloat = {8, -133, 0x7f80};

static const struct format *format_of(enum dp_type type)
{
    assert(type == DP_TYPE_F16 || type == DP_TYPE_BF16);
    return type == DP_TYPE_F16 ? &half : &bfloat;
}

/* Bits grow with the number, and by one from each number to the next: so they count steps of
 * 2^e. */
static uint16_t round_to(const struct format *f, float x)
{
    const unsigned sign = signbit(x) ? 0x8000 : 0;
    double q;
    long bits;
    int e;

    if (isnan(x)) {
        return (uint16_t)(sign | f->infinity | 1u << (f->digits - 2));
    }
    if (isinf(x) || x == 0) {
        return (uint16_t)(sign | (x == 0 ? 0u : f->infinity));
    }
    (void)frexp(fabs((double)x), &e);
    e = e - f->digits > f->lowest ? e - f->digits : f->lowest;
    q = nearbyint(ldexp(fabs((double)x), -e));
    bits = ((long)(e - f->lowest) << (f->digits - 1)) + (long)q;
    return (uint16_t)(sign | (unsigned)(bits > f->infinity ? f->infinity : bits));
}

static float value_of(const struct format *f, uint16_t bits)
{
    const int magnitude = bits & 0x7fff, step = 1 << (f->digits - 1);
    const int exponent = magnitude / step;
    double q = magnitude % step;

    if (magnitude > f->infinity) {
        return copysignf(NAN, bits & 0x8000 ? -1.0f : 1.0f);
    }
    if (magnitude == f->infinity) {
        return bits & 0x8000 ? -INFINITY : INFINITY;
    }
    q = exponent == 0 ? q : q + step;
    q = ldexp(q, f->lowest + (exponent == 0 ? 0 : exponent - 1));
    return (float)(bits & 0x8000 ? -q : q);
}

float dp_ref_value(enum dp_type type, uint16_t bits)
{
    return value_of(format_of(type), bits);
}

uint16_t dp_ref_round(enum dp_type type, float x)
{
    return round_to(format_of(type), x);
}

dp_status dp_ref_narrow(struct dp_stream *s, uint16_t *y, const float *x, size_t count,
                        enum dp_type type)
{
    (void)s;
    for (size_t i = 0; i < count; i++) {
        y[i] = round_to(format_of(type), x[i]);
    }
    return DP_OK;
}

dp_status dp_ref_widen(struct dp_stream *s, float *y, const uint16_t *x, size_t count,
                       enum dp_type type)
{
    (void)s;
    for (size_t i = 0; i < count; i++) {
        y[i] = value_of(format_of(type), x[i]);
    }
    return DP_OK;
}

static float scale_of(const float *x, size_t count)
{
    float most = 0;

    for (size_t i = 0; i < count; i++) {
        if (!isfinite(x[i])) {
            return NAN;
        }
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    }
    return most / 127.0f < FLT_MIN ? 0 : most / 127.0f;
}

dp_status dp_ref_quantize(struct dp_stream *s, int8_t *y, float *scales, const float *x,
                          size_t block, size_t count, const struct dp_key *key)
{
    (void)s;
    for (size_t i = 0; i < count; i++) {
        const size_t left = count - i;
        float *scale = &scales[i / block];
        if (i % block == 0) {
            *scale = scale_of(x + i, left < block ? left : block);
        }
        y[i] = 0;
        if (*scale > 0) {
            const uint32_t bits = dp_random_u32(key->seed, key->what, key->step, key->first + i);
            const float q = floorf(x[i] * (1.0f / *scale) + dp_random_unit(bits));
            y[i] = (int8_t)(q < -127.0f ? -127.0f : q > 127.0f ? 127.0f : q);
        }
    }
    return DP_OK;
}

dp_status dp_ref_dequantize(struct dp_stream *s, float *y, const int8_t *x, const float *scales,
                            size_t block, size_t count)
{
    (void)s;
    for (size_t i = 0; i < count; i++) {
        y[i] = (float)x[i] * scales[i / block];
    }
    return DP_OK;
}

static float signed_scale(const struct dp_signs *signs, size_t i)
{
    const float scale = signs->scale[i / DP_BLOCK];

    return signs->words[i % 32] >> (i / 32) & 1 ? -scale : scale;
}

static float mean_magnitude(const float *x, size_t count)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++) {
        sum += fabs((double)x[i]);
    }
    return (float)(sum / (double)count);
}

dp_status dp_ref_take_signs(struct dp_stream *s, struct dp_signs *y, float *x, size_t count)
{
    (void)s;
    for (size_t at = 0; at < count; at++) {
        struct dp_signs *signs = &y[at / DP_SIGNS];
        const size_t i = at % DP_SIGNS, left = count - at;
        if (i == 0) {
            memset(signs, 0, sizeof(*signs));
        }
        if (i % DP_BLOCK == 0) {
            signs->scale[i / DP_BLOCK] = mean_magnitude(x + at, left < DP_BLOCK ? left : DP_BLOCK);
        }
        signs->words[i % 32] |= (signbit(x[at]) ? 1u : 0u) << (i / 32);
        x[at] -= signed_scale(signs, i);
    }
    return DP_OK;
}

dp_status dp_ref_put_signs(struct dp_stream *s, float *y, const struct dp_signs *x, size_t count)
{
    (void)s;
    for (size_t i = 0; i < count; i++) {
        y[i] = signed_scale(&x[i / DP_SIGNS], i % DP_SIGNS);
    }
    return DP_OK;
}
