/*
 * tiles.h - from pixels to the points of interpolation of tiles, and back; for loops.h.
 *
 * The points of a block of tiles lie as [point, channels / LANES, tile, LANES], so that products
 * find the tiles' numbers at distances that the compiler knows.
 */
#ifndef DP_KERNELS_CPU_WINOGRAD_TILES_H
#define DP_KERNELS_CPU_WINOGRAD_TILES_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/cpu/winograd/code.h"
#include "kernels/cpu/winograd/points.h"

/* Where a tile is: pixels of the result, of which `height` x `width` lie inside. */
struct tile {
    size_t image, y, x, height, width;
};

static inline void cut_at_edges(const struct dp_winograd_plan *p, struct tile *t)
{
    t->height = p->out_h - t->y < p->step ? p->out_h - t->y : p->step;
    t->width = p->out_w - t->x < p->step ? p->out_w - t->x : p->step;
}

static inline struct tile tile_at(const struct dp_winograd_plan *p, size_t i)
{
    struct tile t = {.image = i / p->across / p->down,
                     .y = i / p->across % p->down * p->step,
                     .x = i % p->across * p->step};

    cut_at_edges(p, &t);
    return t;
}

/* Divisions are slow: from a tile to the one after it. */
static inline void next_tile(const struct dp_winograd_plan *p, struct tile *t)
{
    t->x += p->step;
    if (t->x >= p->out_w) {
        t->x = 0;
        t->y += p->step;
    }
    if (t->y >= p->out_h) {
        t->y = 0;
        t->image++;
    }
    cut_at_edges(p, t);
}

/* The pixels of a tile: those of its columns [begin, end) lie inside of the image, the others are
 * zeros; rows outside are rows of zeros. */
struct pixels {
    const float *row[SIDE]; /* of the image, from its left edge */
    ptrdiff_t first;        /* floats from there to the tile's first column */
    size_t begin, end;
};

static inline struct pixels pixels_of(const struct dp_winograd_plan *p, const float *image,
                                      const struct tile *t)
{
    const size_t right = p->in_w + p->padding - t->x; /* columns up to the image's right edge */
    struct pixels d = {.first = ((ptrdiff_t)t->x - (ptrdiff_t)p->padding) * (ptrdiff_t)p->in_c,
                       .begin = t->x < p->padding ? p->padding - t->x : 0,
                       .end = right < SIDE ? right : SIDE};

    for (size_t k = 0; k < SIDE; k++) { /* below 0 is far above */
        const size_t y = t->y + k - p->padding;
        d.row[k] = y < p->in_h ? image + (t->image * p->in_h + y) * p->in_w * p->in_c : p->zero;
    }
    return d;
}

/* Column x of a tile to its points, for channels from c. */
INLINE void column_at(const struct dp_winograd_plan *p, const struct pixels *pixels, size_t x,
                      size_t c, lanes column[SIDE])
{
    const ptrdiff_t at = pixels->first + (ptrdiff_t)(x * p->in_c + c);
    lanes d[SIDE];

    if (x < pixels->begin || x >= pixels->end) {
        UNROLL
        for (size_t y = 0; y < SIDE; y++) {
            column[y] = (lanes){0.0f};
        }
        return;
    }
    UNROLL
    for (size_t y = 0; y < SIDE; y++) {
        d[y] = load(pixels->row[y] + at);
    }
    to_points(d, column);
}

/* V of one tile, for channels from c. */
INLINE void points_at(const struct dp_winograd_plan *p, const struct pixels *pixels, size_t c,
                      float *v)
{
    lanes columns[SIDE][SIDE];

    UNROLL
    for (size_t x = 0; x < SIDE; x++) {
        column_at(p, pixels, x, c, columns[x]);
    }
    UNROLL
    for (size_t y = 0; y < SIDE; y++) {
        lanes d[SIDE], row[SIDE];
        UNROLL
        for (size_t x = 0; x < SIDE; x++) {
            d[x] = columns[x][y];
        }
        to_points(d, row);
        UNROLL
        for (size_t x = 0; x < SIDE; x++) {
            store(v + (y * SIDE + x) * p->v_gap, &row[x]);
        }
    }
}

/* V of tiles [begin, end). */
TARGET static void transform_input(const struct dp_winograd_plan *p, const float *image, float *v,
                                   size_t begin, size_t end)
{
    struct tile t = tile_at(p, begin);

    for (size_t i = begin; i < end; i++, v += LANES, next_tile(p, &t)) {
        const struct pixels pixels = pixels_of(p, image, &t);
        for (size_t c = 0; c < p->in_c; c += LANES) {
            points_at(p, &pixels, c, v + c * p->block);
        }
    }
}

/* One tile's result from its sums, for channels from c. */
INLINE void result_at(const struct dp_winograd_plan *p, const float *m, const struct tile *t,
                      float *to, const float *bias, const size_t step)
{
    lanes columns[SIDE][4], first = {0.0f};

    if (bias != NULL) {
        first = load(bias);
    }
    UNROLL
    for (size_t x = 0; x < SIDE; x++) {
        lanes d[SIDE];
        UNROLL
        for (size_t y = 0; y < SIDE; y++) {
            d[y] = load(m + (y * SIDE + x) * p->m_gap);
        }
        from_points(d, columns[x], step);
    }
    UNROLL
    for (size_t y = 0; y < step; y++) {
        lanes d[SIDE], row[4];
        UNROLL
        for (size_t x = 0; x < SIDE; x++) {
            d[x] = columns[x][y];
        }
        from_points(d, row, step);
        UNROLL
        for (size_t x = 0; x < step; x++) {
            row[x] += first;
            if (y < t->height && x < t->width) {
                store(to + (y * p->out_w + x) * p->out_c, &row[x]);
            }
        }
    }
}

INLINE void results(const struct dp_winograd_plan *p, const float *m, float *result,
                    const float *bias, size_t begin, size_t end, const size_t step)
{
    struct tile t = tile_at(p, begin);

    for (size_t i = begin; i < end; i++, m += LANES, next_tile(p, &t)) {
        float *to = result + ((t.image * p->out_h + t.y) * p->out_w + t.x) * p->out_c;
        for (size_t c = 0; c < p->out_c; c += LANES) {
            result_at(p, m + c * p->block, &t, to + c, bias != NULL ? bias + c : NULL, step);
        }
    }
}

/* One tile of dy to its points, for channels from c. */
INLINE void spread_at(const struct dp_winograd_plan *p, const float *dy, const struct tile *t,
                      float *m, float *bias, const size_t step)
{
    lanes rows[4][SIDE], sum = load(bias);

    UNROLL
    for (size_t y = 0; y < step; y++) {
        lanes d[4] = {{0.0f}};
        UNROLL
        for (size_t x = 0; x < step; x++) {
            if (y < t->height && x < t->width) {
                d[x] = load(dy + (y * p->out_w + x) * p->out_c);
            }
            sum += d[x];
        }
        spread(d, rows[y], step);
    }
    store(bias, &sum);
    UNROLL
    for (size_t x = 0; x < SIDE; x++) {
        lanes d[4] = {{0.0f}}, column[SIDE];
        UNROLL
        for (size_t y = 0; y < step; y++) {
            d[y] = rows[y][x];
        }
        spread(d, column, step);
        UNROLL
        for (size_t y = 0; y < SIDE; y++) {
            store(m + (y * SIDE + x) * p->m_gap, &column[y]);
        }
    }
}

INLINE void spread_all(const struct dp_winograd_plan *p, const float *dy, float *m, float *bias,
                       size_t begin, size_t end, const size_t step)
{
    struct tile t = tile_at(p, begin);

    for (size_t i = begin; i < end; i++, m += LANES, next_tile(p, &t)) {
        const float *from = dy + ((t.image * p->out_h + t.y) * p->out_w + t.x) * p->out_c;
        for (size_t c = 0; c < p->out_c; c += LANES) {
            spread_at(p, from + c, &t, m + c * p->block, bias + c, step);
        }
    }
}

#endif
