/*
 * vector_math.h - exp and the normal distribution, written so that loops over them vectorise.
 *
 * Only additions, multiplications, one division, selections and shifts: the compiler vectorises
 * them for every instruction set, with the same bits. The coefficients are our own minimax fits to
 * the functions in 40 digits.
 */
#ifndef DP_KERNELS_CPU_VECTOR_MATH_H
#define DP_KERNELS_CPU_VECTOR_MATH_H

#include <stdint.h>
#include <string.h>

/* e^z for z <= 0, within one unit in the last place down to z = -87; 0 below. NaN stays NaN. z = n
 * ln 2 + r: adding 1.5 * 2^23 rounds z / ln 2 to the integer n, which is then in the low bits of
 * the sum; shifting them into the exponent gives 2^n. */
static inline float dp_exp_nonpositive(float z)
{
    const float shifter = 12582912.0f;
    const float clamped = z < -87.0f ? -87.0f : z;
    const float sum = clamped * 1.44269504f + shifter;
    const float n = sum - shifter;
    const float r = (clamped - n * 0.693145752f) - n * 1.42860677e-6f;
    float p = 0.00138144673f, power;
    uint32_t bits;

    p = p * r + 0.00836878040f;
    p = p * r + 0.0416683942f;
    p = p * r + 0.166665201f;
    p = p * r + 0.499999934f;
    p = p * (r * r) + r;
    memcpy(&bits, &sum, sizeof(bits));
    bits = (bits + 127u) << 23;
    memcpy(&power, &bits, sizeof(power));
    return z < -87.0f ? 0.0f : p * power + power;
}

/* P(X < x) of the standard normal distribution within 1.2e-7, and e^(-x^2/2), from which its
 * density follows. For |x| < 1: 1/2 + x p(x^2). The tail beyond |x| is e^(-x^2/2) t q(t) with t = 1
 * / (1 + 0.4 |x|), where q is so smooth that degree 6 is exact to 8e-8 of its value. Both are
 * computed and one is selected: a branch would prevent vectorisation. */
static inline float dp_normal_below(float x, float *bell)
{
    const float size = x < 0 ? -x : x, square = x * x;
    const float t = 1.0f / (1.0f + 0.4f * size);
    float p = -7.664679569e-6f, q = 0.06812138971f, tail;

    p = p * square + 0.0001135126561f;
    p = p * square - 0.001186353061f;
    p = p * square + 0.009973331725f;
    p = p * square - 0.06649036097f;
    p = p * square + 0.3989422801f;
    q = q * t - 0.1864280526f;
    q = q * t + 0.1053632211f;
    q = q * t + 0.05554052883f;
    q = q * t + 0.1390023156f;
    q = q * t + 0.1590999893f;
    q = q * t + 0.1595957831f;
    *bell = dp_exp_nonpositive(-0.5f * square);
    tail = *bell * (q * t);
    tail = x < 0 ? tail : 1.0f - tail;
    return square < 1.0f ? 0.5f + x * p : tail;
}

/* 1 / (1 + e^-x), and in *rest 1 minus that, without cancellation. */
static inline float dp_logistic(float x, float *rest)
{
    const float tail = dp_exp_nonpositive(x < 0 ? x : -x), one = 1.0f / (1.0f + tail);

    *rest = x < 0 ? one : tail * one;
    return x < 0 ? tail * one : one;
}

#endif
