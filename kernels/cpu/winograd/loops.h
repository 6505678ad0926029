/*
 * loops.h - the loops of a convolution by tiles, for vectors of LANES floats. Included once for
 * each instruction set by a file that defines
 *
 *   TARGET      the attribute of functions for it
 *   CODE        the name of its struct dp_winograd_code
 *   LANES       floats of a vector
 *   ROWS, SUMS  tiles, and output channels, whose sums stay in registers, in vectors of two
 *
 * Loops over a constant number are unrolled, so that arrays of vectors are registers.
 */
#ifndef DP_KERNELS_CPU_WINOGRAD_LOOPS_H
#define DP_KERNELS_CPU_WINOGRAD_LOOPS_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/cpu/winograd/code.h"
#include "kernels/cpu/winograd/products.h"
#include "kernels/cpu/winograd/tiles.h"
#include "kernels/cpu/winograd/weights.h"

TARGET static void weights(const struct dp_winograd_plan *p, size_t begin, size_t end)
{
    if (p->kernel == 3) {
        transform_weights(p, begin, end, 3);
    } else {
        transform_weights(p, begin, end, 5);
    }
}

TARGET static void convolve(const struct dp_winograd_plan *p, const struct dp_winograd_part *part,
                            size_t begin, size_t end)
{
    const struct dp_winograd *call = p->call;
    const bool back = (call->use & DP_CONV_BACKWARD_DATA) != 0;
    const float *bias = (call->use & DP_CONV_FORWARD) != 0 ? call->bias : NULL;
    float *result = back ? call->x : call->y;

    struct fetch fetch = {.array = result,
                          .height = p->out_h,
                          .width = p->out_w,
                          .channels = p->out_c,
                          .writes = true,
                          .next = tile_at(p, begin),
                          .tiles = end - begin};

    transform_input(p, back ? call->y : call->x, part->v, begin, end);
    products(p, part->v, part->m, end - begin, &fetch);
    if (p->step == 2) {
        results(p, part->m, result, bias, begin, end, 2);
    } else {
        results(p, part->m, result, bias, begin, end, 4);
    }
}

TARGET static void sum(const struct dp_winograd_plan *p, const struct dp_winograd_part *part,
                       size_t begin, size_t end)
{
    const size_t after = p->tiles - end; /* the next block's pixels are fetched */
    struct fetch fetch = {.array = p->call->x,
                          .height = p->in_h,
                          .width = p->in_w,
                          .channels = p->in_c,
                          .next = tile_at(p, end),
                          .tiles = after < p->block ? after : p->block};

    transform_input(p, p->call->x, part->v, begin, end);
    if (p->step == 2) {
        spread_all(p, p->call->y, part->m, part->bias, begin, end, 2);
    } else {
        spread_all(p, p->call->y, part->m, part->bias, begin, end, 4);
    }
    add_sums(p, part->v, part->m, part->sums, end - begin, &fetch);
}

TARGET static void gradients(const struct dp_winograd_plan *p, const float *sums, size_t begin,
                             size_t end)
{
    for (size_t o = begin; o < end; o++) {
        for (size_t c = 0; c < p->in_c; c += LANES) {
            transform_sums(p, sums, o, c);
        }
    }
}

const struct dp_winograd_code CODE = {weights, convolve, sum, gradients};

#endif
