/*
 * products.h - the products of matrices at the points of interpolation; for loops.h, whose ROWS and
 * SUMS say how many sums stay in registers. Points lie as tiles.h says.
 */
#ifndef DP_KERNELS_CPU_WINOGRAD_PRODUCTS_H
#define DP_KERNELS_CPU_WINOGRAD_PRODUCTS_H

#include <stddef.h>

#include "kernels/cpu/winograd/code.h"
#include "kernels/cpu/winograd/points.h"

enum { WIDE = 2 * LANES, TALL = 2 * ROWS };

/* `to` [tiles, out_c] = v [tiles, in_c] * u [in_c, out_c], at one point. */
struct product {
    const float *v, *u;
    float *to;
    size_t in_c, out_c;
    size_t gap; /* floats from one vector of channels to the next in v and in `to` */
};

/* For so many tiles, and vectors of out_c. */
INLINE void multiply(const struct product *p, const size_t tiles, const size_t width)
{
    const float *v = p->v, *u = p->u;
    lanes sum[2 * ROWS][2];

    UNROLL
    for (size_t i = 0; i < tiles * width; i++) {
        sum[i / width][i % width] = (lanes){0.0f};
    }
    for (size_t c = 0; c < p->in_c; c += LANES, v += p->gap) {
        for (size_t k = 0; k < LANES; k++, u += p->out_c) {
            lanes row[2];
            UNROLL
            for (size_t j = 0; j < width; j++) {
                row[j] = load(u + j * LANES);
            }
            UNROLL
            for (size_t t = 0; t < tiles; t++) {
                const float factor = v[t * LANES + k];
                UNROLL
                for (size_t j = 0; j < width; j++) {
                    sum[t][j] += factor * row[j];
                }
            }
        }
    }
    UNROLL
    for (size_t i = 0; i < tiles * width; i++) {
        store(p->to + i / width * LANES + i % width * p->gap, &sum[i / width][i % width]);
    }
}

/* For all tiles, so many at a time: channels in twos and, where one vector is left, twice the
 * tiles: as many sums either way. */
INLINE void multiply_tiles(const struct product *all, size_t tiles, const size_t together)
{
    struct product p = *all;

    for (size_t t = 0; t < tiles; t += together) {
        if (together == TALL) {
            multiply(&p, TALL, 1);
        } else {
            multiply(&p, ROWS, 2);
        }
        p.v += together * LANES;
        p.to += together * LANES;
    }
}

/* Tiles by in_c with in_c by out_c, at each point. Tiles up to a multiple of what is computed
 * together are computed; those beyond are not used. */
TARGET static void products(const struct dp_winograd_plan *p, const float *v, float *m,
                            size_t tiles)
{
    const size_t pairs = p->out_c / WIDE * WIDE, gap = p->block * LANES;

    for (size_t i = 0; i < POINTS; i++) {
        struct product one = {.v = v + i * p->v_gap,
                              .u = p->u + i * p->u_gap,
                              .to = m + i * p->m_gap,
                              .in_c = p->in_c,
                              .out_c = p->out_c,
                              .gap = gap};
        for (size_t c = 0; c < pairs; c += WIDE, one.u += WIDE, one.to += 2 * gap) {
            multiply_tiles(&one, tiles, ROWS);
        }
        for (size_t c = pairs; c < p->out_c; c += LANES, one.u += LANES, one.to += gap) {
            multiply_tiles(&one, tiles, TALL);
        }
    }
}

/* `to` [out_c, in_c] += m' [out_c, tiles] * v [tiles, in_c], at one point. */
struct summing {
    const float *m, *v;
    float *to;
    size_t tiles, in_c;
    size_t gap; /* floats from one vector of channels to the next in v */
};

/* For so many of out_c, and vectors of in_c. */
INLINE void add_products(const struct summing *p, const size_t rows, const size_t width)
{
    lanes sum[2 * SUMS][2];

    UNROLL
    for (size_t i = 0; i < rows * width; i++) {
        sum[i / width][i % width] = load(p->to + i / width * p->in_c + i % width * LANES);
    }
    for (size_t t = 0; t < p->tiles; t++) {
        lanes row[2];
        UNROLL
        for (size_t j = 0; j < width; j++) {
            row[j] = load(p->v + t * LANES + j * p->gap);
        }
        UNROLL
        for (size_t r = 0; r < rows; r++) {
            const float factor = p->m[t * LANES + r];
            UNROLL
            for (size_t j = 0; j < width; j++) {
                sum[r][j] += factor * row[j];
            }
        }
    }
    UNROLL
    for (size_t i = 0; i < rows * width; i++) {
        store(p->to + i / width * p->in_c + i % width * LANES, &sum[i / width][i % width]);
    }
}

/* For twice SUMS of out_c: one half after the other by two vectors, or both by one. */
INLINE void add_rows(const struct summing *all, const size_t width)
{
    struct summing p = *all;

    if (width == 1) {
        add_products(&p, (size_t)2 * SUMS, 1);
        return;
    }
    add_products(&p, SUMS, 2);
    p.m += SUMS;
    p.to += SUMS * p.in_c;
    add_products(&p, SUMS, 2);
}

/* Adds out_c by tiles with tiles by in_c, at each point. */
TARGET static void add_sums(const struct dp_winograd_plan *p, const float *v, const float *m,
                            float *sums, size_t tiles)
{
    const size_t pairs = p->in_c / WIDE * WIDE, gap = p->block * LANES;

    for (size_t i = 0; i < POINTS * p->out_c; i += (size_t)2 * SUMS) {
        const size_t point = i / p->out_c, o = i % p->out_c;
        struct summing one = {.m = m + point * p->m_gap + o / LANES * gap + o % LANES,
                              .v = v + point * p->v_gap,
                              .to = sums + point * p->u_gap + o * p->in_c,
                              .tiles = tiles,
                              .in_c = p->in_c,
                              .gap = gap};
        for (size_t c = 0; c < pairs; c += WIDE, one.v += 2 * gap, one.to += WIDE) {
            add_rows(&one, 2);
        }
        for (size_t c = pairs; c < p->in_c; c += LANES, one.v += gap, one.to += LANES) {
            add_rows(&one, 1);
        }
    }
}

#endif
