/*
 * weights.h - from weights to the points of interpolation, and their gradients back; for loops.h.
 */
#ifndef DP_KERNELS_CPU_WINOGRAD_WEIGHTS_H
#define DP_KERNELS_CPU_WINOGRAD_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/cpu/winograd/code.h"
#include "kernels/cpu/winograd/points.h"

enum { KERNEL_MOST = DP_WINOGRAD_KERNEL * DP_WINOGRAD_KERNEL };

/* U of one input channel, for LANES output channels, to u. Kernels are g: [r * r]. */
INLINE void weights_at(const struct dp_winograd_plan *p, const lanes *g, float *u, const size_t r)
{
    lanes left[SIDE][DP_WINOGRAD_KERNEL];

    UNROLL
    for (size_t y = 0; y < SIDE; y++) {
        UNROLL
        for (size_t x = 0; x < r; x++) {
            left[y][x] = p->matrix[y][0] * g[x];
            UNROLL
            for (size_t k = 1; k < r; k++) {
                left[y][x] += p->matrix[y][k] * g[k * r + x];
            }
        }
    }
    UNROLL
    for (size_t i = 0; i < POINTS; i++) {
        lanes one = p->matrix[i % SIDE][0] * left[i / SIDE][0];
        UNROLL
        for (size_t k = 1; k < r; k++) {
            one += p->matrix[i % SIDE][k] * left[i / SIDE][k];
        }
        store(u + i * p->u_gap, &one);
    }
}

/* Weights of LANES input channels from c and LANES output channels from o, as vectors of outputs.
 * g: [LANES of in_c, r * r]. */
INLINE void take_weights(const struct dp_winograd_plan *p, size_t c, size_t o,
                         lanes g[LANES][KERNEL_MOST], const size_t r)
{
    const float *from = p->call->weights + o * r * r * p->in_c + c;

    for (size_t l = 0; l < LANES; l++) {
        for (size_t k = 0; k < r * r; k++, from += p->in_c) {
            for (size_t i = 0; i < LANES; i++) {
                g[i][k][l] = from[i];
            }
        }
    }
}

/* The same for the gradient of the image, whose inputs are our outputs: upside down. */
INLINE void turn_weights(const struct dp_winograd_plan *p, size_t c, size_t o,
                         lanes g[LANES][KERNEL_MOST], const size_t r)
{
    const float *from = p->call->weights + c * r * r * p->out_c + o;

    for (size_t l = 0; l < LANES; l++) {
        for (size_t k = r * r; k-- > 0; from += p->out_c) {
            g[l][k] = load(from);
        }
    }
}

/* U = G g G' of input channels [begin, end). */
INLINE void transform_weights(const struct dp_winograd_plan *p, size_t begin, size_t end,
                              const size_t r)
{
    const bool back = (p->call->use & DP_CONV_BACKWARD_DATA) != 0;
    lanes g[LANES][KERNEL_MOST];

    for (size_t c = begin; c < end; c += LANES) {
        for (size_t o = 0; o < p->out_c; o += LANES) {
            if (back) {
                turn_weights(p, c, o, g, r);
            } else {
                take_weights(p, c, o, g, r);
            }
            for (size_t l = 0; l < LANES; l++) {
                weights_at(p, g[l], p->u + (c + l) * p->out_c + o, r);
            }
        }
    }
}

/* G' s G of one output channel, for input channels from c. */
TARGET static void transform_sums(const struct dp_winograd_plan *p, const float *sums, size_t o,
                                  size_t c)
{
    const size_t r = p->kernel, gap = p->u_gap;
    float *to = p->call->weights + o * r * r * p->in_c + c;
    lanes left[DP_WINOGRAD_KERNEL][SIDE];

    sums += o * p->in_c + c;
    for (size_t x = 0; x < SIDE; x++) {
        for (size_t y = 0; y < r; y++) {
            left[y][x] = p->matrix[0][y] * load(sums + x * gap);
            for (size_t k = 1; k < SIDE; k++) {
                left[y][x] += p->matrix[k][y] * load(sums + (k * SIDE + x) * gap);
            }
        }
    }
    for (size_t k = 0; k < r * r; k++) {
        lanes sum = {0.0f};
        if (p->call->adds) {
            sum = load(to + k * p->in_c);
        }
        for (size_t x = 0; x < SIDE; x++) {
            sum += p->matrix[x][k % r] * left[k / r][x];
        }
        store(to + k * p->in_c, &sum);
    }
}

#endif
