/*
 * vector_math.h - exp and the normal distribution, written so that loops over them vectorise.
 *
 * Only additions, multiplications, one division and integer shifts: the compiler makes vector code
 * of them for every instruction set, and every instruction set gives the same bits. Coefficients
 * are least-maximum fits of our own to the functions in 40 digits.
 */
#ifndef DP_KERNELS_CPU_VECTOR_MATH_H
#define DP_KERNELS_CPU_VECTOR_MATH_H

#include <stdint.h>
#include <string.h>

/* e^z for z <= 0, within 1.5 units in the last place down to z = -87; below that e^-87. NaN stays
 * NaN. z = n ln 2 + r: adding 1.5 * 2^23 rounds z / ln 2 to the integer n, which then lies in the
 * low bits of the sum, and shifting them into the exponent makes 2^n. */
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
    return p * power + power;
}

/* P(X < x) of the standard normal distribution within 1.2e-7, and e^(-x^2/2), from which its
 * density follows. The tail beyond |x| is e^(-x^2/2) t q(t) with t = 1 / (1 + 0.27 |x|): q is so
 * smooth that a polynomial of degree 8 is exact to 2.3e-8 of its value. */
static inline float dp_normal_below(float x, float *bell)
{
    const float size = x < 0 ? -x : x;
    const float t = 1.0f / (1.0f + 0.27f * size);
    float q = 0.0288268749f, tail;

    q = q * t - 0.125809182f;
    q = q * t + 0.168331164f;
    q = q * t - 0.0674718695f;
    q = q * t + 0.106565277f;
    q = q * t + 0.0726154957f;
    q = q * t + 0.101657292f;
    q = q * t + 0.107565736f;
    q = q * t + 0.107719223f;
    *bell = dp_exp_nonpositive(-0.5f * (x * x));
    tail = *bell * (q * t);
    return x < 0 ? tail : 1.0f - tail;
}

#endif
