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

#include <stddef.h>

#include "kernels/cpu/winograd/code.h"
#include "kernels/cpu/winograd/points.h"

enum { WIDE = 2 * LANES, TALL = 2 * ROWS };

/* ---- tiles ---- */

/* Where a tile is: pixels of the result, of which `height` x `width` lie inside. */
struct tile {
    size_t image, y, x, height, width;
};

static inline struct tile tile_at(const struct dp_winograd_plan *p, size_t i)
{
    struct tile t = {i / p->across / p->down, i / p->across % p->down * p->step,
                     i % p->across * p->step, p->step, p->step};

    t.height = p->out_h - t.y < t.height ? p->out_h - t.y : t.height;
    t.width = p->out_w - t.x < t.width ? p->out_w - t.x : t.width;
    return t;
}

/* The pixels of a tile. */
static inline void find_pixels(const struct dp_winograd_plan *p, const float *image, size_t i,
                               const float *pixel[POINTS])
{
    const struct tile t = tile_at(p, i);

    for (size_t k = 0; k < POINTS; k++) { /* below 0 is far above */
        const size_t y = t.y + k / SIDE - p->padding, x = t.x + k % SIDE - p->padding;
        const bool inside = y < p->in_h && x < p->in_w;

        pixel[k] = inside ? image + ((t.image * p->in_h + y) * p->in_w + x) * p->in_c : p->zero;
    }
}

/* V of one tile, for channels from c. */
INLINE void points_at(const struct dp_winograd_plan *p, const float *const pixel[POINTS], size_t c,
                      float *v)
{
    lanes columns[SIDE][SIDE];

    UNROLL
    for (size_t x = 0; x < SIDE; x++) {
        lanes d[SIDE];
        UNROLL
        for (size_t y = 0; y < SIDE; y++) {
            d[y] = load(pixel[y * SIDE + x] + c);
        }
        to_points(d, columns[x]);
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
            store(v + (y * SIDE + x) * p->v_gap + c, &row[x]);
        }
    }
}

/* V of tiles [begin, end). */
TARGET static void transform_input(const struct dp_winograd_plan *p, const float *image, float *v,
                                   size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++, v += p->in_c) {
        const float *pixel[POINTS];
        find_pixels(p, image, i, pixel);
        for (size_t c = 0; c < p->in_c; c += LANES) {
            points_at(p, pixel, c, v);
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
    for (size_t i = begin; i < end; i++, m += p->out_c) {
        const struct tile t = tile_at(p, i);
        float *to = result + ((t.image * p->out_h + t.y) * p->out_w + t.x) * p->out_c;
        for (size_t c = 0; c < p->out_c; c += LANES) {
            result_at(p, m + c, &t, to + c, bias != NULL ? bias + c : NULL, step);
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
    for (size_t i = begin; i < end; i++, m += p->out_c) {
        const struct tile t = tile_at(p, i);
        const float *from = dy + ((t.image * p->out_h + t.y) * p->out_w + t.x) * p->out_c;
        for (size_t c = 0; c < p->out_c; c += LANES) {
            spread_at(p, from + c, &t, m + c, bias + c, step);
        }
    }
}

/* ---- products ---- */

/* to [rows, columns] (+)= sum over k below count of left[row * left_row + k * left_k] *
 * right[k * right_gap + column]. */
struct product {
    const float *left, *right;
    size_t left_row, left_k, right_gap, count;
    float *to;
    size_t to_gap;
    bool adds;
};

/* Of so many rows, and columns in vectors. */
INLINE void multiply(const struct product *p, const size_t rows, const size_t width)
{
    lanes sum[2 * ROWS][2];

    UNROLL
    for (size_t i = 0; i < rows * width; i++) {
        sum[i / width][i % width] = (lanes){0.0f};
        if (p->adds) {
            sum[i / width][i % width] = load(p->to + i / width * p->to_gap + i % width * LANES);
        }
    }
    for (size_t k = 0; k < p->count; k++) {
        lanes row[2];
        UNROLL
        for (size_t j = 0; j < width; j++) {
            row[j] = load(p->right + k * p->right_gap + j * LANES);
        }
        UNROLL
        for (size_t r = 0; r < rows; r++) {
            const float factor = p->left[r * p->left_row + k * p->left_k];
            UNROLL
            for (size_t j = 0; j < width; j++) {
                sum[r][j] += factor * row[j];
            }
        }
    }
    UNROLL
    for (size_t i = 0; i < rows * width; i++) {
        store(p->to + i / width * p->to_gap + i % width * LANES, &sum[i / width][i % width]);
    }
}

/* Columns in twos and, where one vector is left, twice the rows: as many sums either way. */
INLINE void multiply_rows(const struct product *first, size_t rows, const size_t together)
{
    struct product p = *first;

    for (size_t r = 0; r < rows; r += together) {
        if (together == TALL) {
            multiply(&p, TALL, 1);
        } else {
            multiply(&p, ROWS, 2);
        }
        p.left += together * p.left_row;
        p.to += together * p.to_gap;
    }
}

/* Tiles by in_c with in_c by out_c, at each point. Tiles up to a multiple of what is computed
 * together are computed; those beyond are not used. */
TARGET static void products(const struct dp_winograd_plan *p, const float *v, float *m,
                            size_t tiles)
{
    const size_t pairs = p->out_c / WIDE * WIDE;

    for (size_t i = 0; i < POINTS; i++) {
        struct product one = {.left = v + i * p->v_gap,
                              .right = p->u + i * p->in_c * p->out_c,
                              .left_row = p->in_c,
                              .left_k = 1,
                              .right_gap = p->out_c,
                              .count = p->in_c,
                              .to = m + i * p->m_gap,
                              .to_gap = p->out_c};
        for (size_t c = 0; c < pairs; c += WIDE, one.right += WIDE, one.to += WIDE) {
            multiply_rows(&one, tiles, ROWS);
        }
        for (size_t c = pairs; c < p->out_c; c += LANES, one.right += LANES, one.to += LANES) {
            multiply_rows(&one, tiles, TALL);
        }
    }
}

/* The same of SUMS rows and two columns, or twice the rows. */
INLINE void multiply_sums(const struct product *first, const size_t width)
{
    struct product p = *first;

    if (width == 1) {
        multiply(&p, (size_t)2 * SUMS, 1);
        return;
    }
    multiply(&p, SUMS, 2);
    p.left += SUMS * p.left_row;
    p.to += SUMS * p.to_gap;
    multiply(&p, SUMS, 2);
}

/* Adds out_c by tiles with tiles by in_c, at each point. */
TARGET static void add_sums(const struct dp_winograd_plan *p, const float *v, const float *m,
                            float *sums, size_t tiles)
{
    const size_t pairs = p->in_c / WIDE * WIDE;

    for (size_t i = 0; i < POINTS * p->out_c; i += (size_t)2 * SUMS) {
        const size_t point = i / p->out_c, o = i % p->out_c;
        struct product one = {.left = m + point * p->m_gap + o,
                              .right = v + point * p->v_gap,
                              .left_row = 1,
                              .left_k = p->out_c,
                              .right_gap = p->in_c,
                              .count = tiles,
                              .to = sums + i * p->in_c,
                              .to_gap = p->in_c,
                              .adds = true};
        for (size_t c = 0; c < pairs; c += WIDE, one.right += WIDE, one.to += WIDE) {
            multiply_sums(&one, 2);
        }
        for (size_t c = pairs; c < p->in_c; c += LANES, one.right += LANES, one.to += LANES) {
            multiply_sums(&one, 1);
        }
    }
}

/* ---- weights ---- */

/* G g G' of one input channel, for output channels from o. */
TARGET static void transform_weights(const struct dp_winograd_plan *p, size_t c, size_t o)
{
    const bool back = (p->call->use & DP_CONV_BACKWARD_DATA) != 0;
    const size_t r = p->kernel, inner = back ? p->out_c : p->in_c; /* of our layout of weights */
    const size_t gap = back ? 1 : r * r * inner;
    const float *from = p->call->weights + (back ? c * r * r * inner + o : o * gap + c);
    lanes g[DP_WINOGRAD_KERNEL * DP_WINOGRAD_KERNEL] = {{0.0f}}, left[SIDE][DP_WINOGRAD_KERNEL];

    for (size_t k = 0; k < r * r; k++) { /* of the gradient of the image, upside down */
        const float *weight = from + (back ? r * r - 1 - k : k) * inner;
        UNROLL
        for (size_t l = 0; l < LANES; l++) {
            g[k][l] = weight[l * gap];
        }
    }
    for (size_t y = 0; y < SIDE; y++) {
        for (size_t x = 0; x < r; x++) {
            left[y][x] = p->matrix[y][0] * g[x];
            for (size_t k = 1; k < r; k++) {
                left[y][x] += p->matrix[y][k] * g[k * r + x];
            }
        }
    }
    for (size_t i = 0; i < POINTS; i++) {
        lanes u = p->matrix[i % SIDE][0] * left[i / SIDE][0];
        for (size_t k = 1; k < r; k++) {
            u += p->matrix[i % SIDE][k] * left[i / SIDE][k];
        }
        store(p->u + (i * p->in_c + c) * p->out_c + o, &u);
    }
}

/* G' s G of one output channel, for input channels from c. */
TARGET static void transform_sums(const struct dp_winograd_plan *p, const float *sums, size_t o,
                                  size_t c)
{
    const size_t r = p->kernel, gap = p->out_c * p->in_c;
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

/* ---- struct dp_winograd_code ---- */

TARGET static void weights(const struct dp_winograd_plan *p, size_t begin, size_t end)
{
    for (size_t c = begin; c < end; c++) {
        for (size_t o = 0; o < p->out_c; o += LANES) {
            transform_weights(p, c, o);
        }
    }
}

TARGET static void convolve(const struct dp_winograd_plan *p, const struct dp_winograd_part *part,
                            size_t begin, size_t end)
{
    const struct dp_winograd *call = p->call;
    const bool back = (call->use & DP_CONV_BACKWARD_DATA) != 0;
    const float *bias = (call->use & DP_CONV_FORWARD) != 0 ? call->bias : NULL;
    float *result = back ? call->x : call->y;

    transform_input(p, back ? call->y : call->x, part->v, begin, end);
    products(p, part->v, part->m, end - begin);
    if (p->step == 2) {
        results(p, part->m, result, bias, begin, end, 2);
    } else {
        results(p, part->m, result, bias, begin, end, 4);
    }
}

TARGET static void sum(const struct dp_winograd_plan *p, const struct dp_winograd_part *part,
                       size_t begin, size_t end)
{
    transform_input(p, p->call->x, part->v, begin, end);
    if (p->step == 2) {
        spread_all(p, p->call->y, part->m, part->bias, begin, end, 2);
    } else {
        spread_all(p, p->call->y, part->m, part->bias, begin, end, 4);
    }
    add_sums(p, part->v, part->m, part->sums, end - begin);
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
