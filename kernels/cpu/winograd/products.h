/*
 * products.h - the products of matrices at the points of interpolation; for loops.h, whose ROWS
 * and SUMS say how many sums stay in registers. Points lie as tiles.h says.
 */
#ifndef DP_KERNELS_CPU_WINOGRAD_PRODUCTS_H
#define DP_KERNELS_CPU_WINOGRAD_PRODUCTS_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/cpu/winograd/code.h"
#include "kernels/cpu/winograd/points.h"
#include "kernels/cpu/winograd/tiles.h"

enum { WIDE = 2 * LANES, TALL = 2 * ROWS };

/* The pixels of tiles that are needed after the products. They come from far away, so some of them
 * are fetched with each point. */
struct fetch {
    const float *array; /* [images, height, width, channels] */
    size_t height, width, channels;
    bool writes;
    struct tile next;
    size_t tiles, done;
};

INLINE void fetch_row(const float *row, size_t floats, bool writes)
{
    enum { LINE = 64 / sizeof(float) };

    for (size_t i = 0; i < floats; i += LINE) {
        if (writes) {
            __builtin_prefetch(row + i, 1);
        } else {
            __builtin_prefetch(row + i, 0);
        }
    }
}

INLINE void fetch_tile(const struct fetch *f)
{
    const struct tile *t = &f->next;
    const size_t end = t->y + t->height < f->height ? t->y + t->height : f->height;
    const size_t right = t->x + t->width < f->width ? t->x + t->width : f->width;

    for (size_t y = t->y; y < end && t->x < right; y++) {
        fetch_row(f->array + ((t->image * f->height + y) * f->width + t->x) * f->channels,
                  (right - t->x) * f->channels, f->writes);
    }
}

/* Those of so many parts of POINTS. */
INLINE void fetch_part(const struct dp_winograd_plan *p, struct fetch *f, size_t parts)
{
    for (; f->done < f->tiles * parts / POINTS; f->done++, next_tile(p, &f->next)) {
        fetch_tile(f);
    }
}

/* `to` [tiles, out_c] = v [tiles, in_c] * u [in_c, out_c], at one point. */
struct product {
    const float *v, *u;
    float *to;
    size_t in_c, out_c;
    size_t gap; /* floats from one vector of channels to the next in v and in `to` */
};

/* sum [tiles, width vectors] += v [tiles] * u [width vectors], of one of in_c. */
INLINE void add_channel(lanes sum[2 * ROWS][2], const float *v, const float *u, const size_t tiles,
                        const size_t width)
{
    lanes row[2];

    UNROLL
    for (size_t j = 0; j < width; j++) {
        row[j] = load(u + j * LANES);
    }
    UNROLL
    for (size_t t = 0; t < tiles; t++) {
        const float factor = v[t * LANES];
        UNROLL
        for (size_t j = 0; j < width; j++) {
            sum[t][j] += factor * row[j];
        }
    }
}

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
            add_channel(sum, v + k, u, tiles, width);
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
                            size_t tiles, struct fetch *result)
{
    const size_t pairs = p->out_c / WIDE * WIDE, gap = p->block * LANES;

    for (size_t i = 0; i < POINTS; i++) {
        fetch_part(p, result, i + 1);
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
                            float *sums, size_t tiles, struct fetch *input)
{
    const size_t pairs = p->in_c / WIDE * WIDE, gap = p->block * LANES;

    for (size_t i = 0; i < POINTS * p->out_c; i += (size_t)2 * SUMS) {
        const size_t point = i / p->out_c, o = i % p->out_c;
        fetch_part(p, input, point + 1);
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
