/*
 * points.h - one side of a tile in vectors of LANES floats, from its pixels to the points of
 * interpolation and back; for loops.h.
 */
#ifndef DP_KERNELS_CPU_WINOGRAD_POINTS_H
#define DP_KERNELS_CPU_WINOGRAD_POINTS_H

#include <stddef.h>

#include "kernels/cpu/winograd/code.h"

#define INLINE TARGET static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 36")
#endif

enum { SIDE = DP_WINOGRAD_SIDE, POINTS = DP_WINOGRAD_POINTS };

typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

/* The points of interpolation: 0, +-P, +-Q, infinity. */
#define P 0.75f
#define Q 1.5f
#define PP (P * P)
#define QQ (Q * Q)

INLINE lanes load(const float *from)
{
    return *(const lanes *)from;
}

INLINE void store(float *to, const lanes *value)
{
    *(lanes *)to = *value;
}

/* B' d */
INLINE void to_points(const lanes d[SIDE], lanes t[SIDE])
{
    const lanes p_even = d[4] - QQ * d[2], p_odd = P * (d[3] - QQ * d[1]);
    const lanes q_even = d[4] - PP * d[2], q_odd = Q * (d[3] - PP * d[1]);

    t[0] = PP * QQ * d[0] - (PP + QQ) * d[2] + d[4];
    t[1] = p_even + p_odd;
    t[2] = p_even - p_odd;
    t[3] = q_even + q_odd;
    t[4] = q_even - q_odd;
    t[5] = PP * QQ * d[1] - (PP + QQ) * d[3] + d[5];
}

/* A' t */
INLINE void from_points(const lanes t[SIDE], lanes *y, const size_t step)
{
    const lanes p_even = t[1] + t[2], p_odd = t[1] - t[2];
    const lanes q_even = t[3] + t[4], q_odd = t[3] - t[4];

    y[0] = t[0] + p_even + q_even;
    y[1] = P * p_odd + Q * q_odd;
    if (step > 2) {
        y[2] = PP * p_even + QQ * q_even;
        y[3] = P * PP * p_odd + Q * QQ * q_odd;
    }
    y[step - 1] += t[5];
}

/* A y */
INLINE void spread(const lanes *y, lanes t[SIDE], const size_t step)
{
    lanes p_even = y[0], q_even = y[0], p_odd = P * y[1], q_odd = Q * y[1];

    if (step > 2) {
        p_even += PP * y[2];
        q_even += QQ * y[2];
        p_odd += P * PP * y[3];
        q_odd += Q * QQ * y[3];
    }
    t[0] = y[0];
    t[1] = p_even + p_odd;
    t[2] = p_even - p_odd;
    t[3] = q_even + q_odd;
    t[4] = q_even - q_odd;
    t[5] = y[step - 1];
}

#endif
