/*
 * norm.c - batch normalisation in loops of our own: see kernels/ops.h for the contract.
 *
 * Forward reads x for the statistics, then reads x and writes y: 12 bytes per element, and 4 more
 * where it adds a residual's other branch. Backward reads dy and x twice and writes dx: 20 bytes
 * per element. oneDNN moves the same bytes. These loops can be called for a few rows at a time,
 * while those are in the cache; they give the sums that synchronised norm needs; and they recompute
 * the relu's mask, which needs no workspace.
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/columns.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/device.h"

/* Values for each column of a tile, repeated to its width. */
struct factors {
    _Alignas(DP_MEM_ALIGN) float mean[DP_TILE]; /* aligned: whole vectors never cross a cache
                                                 * line */
    float scale[DP_TILE], beta[DP_TILE];        /* scale = gamma / sqrt(var + eps) */
    float center[DP_TILE], slope[DP_TILE];      /* of the gradient: see factors_add_sums() */
};

/* One tile of one operation. */
struct job {
    const struct dp_tile *tile;
    struct factors *factors;
    const float *x, *dy, *add; /* add: forward only; NULL: nothing */
    float *y;                  /* dx in backward, which may be dy */
    bool relu;
};

/* Forward and backward use this one function, so that the mask is equal to the bit. */
static inline float normalised(float x, float mean, float scale, float beta)
{
    return (x - mean) * scale + beta;
}

static inline double inverse_deviation(float var, float eps)
{
    return 1.0 / sqrt((double)var + (double)eps);
}

static void factors_fill(struct factors *f, const struct dp_tile *tile, const float *mean,
                         const float *var, const float *gamma, const float *beta,
                         const struct dp_norm *norm)
{
    float scale[DP_TILE];

    for (size_t c = 0; c < tile->columns; c++) {
        const size_t channel = tile->begin + c;
        scale[c] = (float)((double)gamma[channel] * inverse_deviation(var[channel], norm->eps));
    }
    dp_tile_repeat(tile, f->mean, mean + tile->begin);
    dp_tile_repeat(tile, f->scale, scale);
    dp_tile_repeat(tile, f->beta, beta + tile->begin);
}

/* Converts sums of the gradient over `total` elements to the factors of the last pass: dx = scale
 * (g - center - (x - mean) slope). */
static void factors_add_sums(struct factors *f, const struct dp_tile *tile, const float *var,
                             const double *sum_dy, const double *sum_dy_hat, double total,
                             const struct dp_norm *norm)
{
    float center[DP_TILE], slope[DP_TILE];

    for (size_t c = 0; c < tile->columns; c++) {
        const double inverse = inverse_deviation(var[tile->begin + c], norm->eps);
        center[c] = (float)(sum_dy[c] / total);
        slope[c] = (float)(sum_dy_hat[c] * inverse / total);
    }
    dp_tile_repeat(tile, f->center, center);
    dp_tile_repeat(tile, f->slope, slope);
}

/* Runs `row` over the folded rows of a tile, from the last block of them to the first, since the
 * previous pass has left the last rows in the cache. The last row may be narrower. */
static void for_rows(const struct job *job, size_t begin, size_t end,
                     void (*row)(const struct job *job, size_t first, size_t rows, size_t width))
{
    const struct dp_tile *tile = job->tile;
    const size_t first = begin / tile->fold * tile->stride + tile->begin;
    const size_t step = DP_TILE_BLOCK / tile->width;
    size_t rest;
    size_t left = dp_tile_folded(tile, end - begin, &rest);

    if (rest > 0) {
        row(job, first + left * tile->stride, 1, rest);
    }
    while (left > 0) {
        const size_t rows = left < step ? left : step;
        left -= rows;
        row(job, first + left * tile->stride, rows, tile->width);
    }
}

/* ---- forward ---- */

/* y may be x or add. */
static inline void forward_rows(const struct job *job, size_t first, size_t rows, size_t width,
                                bool adds, bool relu)
{
    const struct factors *f = job->factors;

    for (size_t r = 0; r < rows; r++) {
        const size_t at = first + r * job->tile->stride;
        const float *x = job->x + at, *add = adds ? job->add + at : NULL;
        float *y = job->y + at;
        DP_INDEPENDENT
        for (size_t j = 0; j < width; j++) {
            const float own = normalised(x[j], f->mean[j], f->scale[j], f->beta[j]);
            const float v = adds ? own + add[j] : own;
            y[j] = relu && v < 0 ? 0 : v; /* a NaN stays a NaN */
        }
    }
}

DP_HOT static void forward_plain(const struct job *job, size_t first, size_t rows, size_t width)
{
    forward_rows(job, first, rows, width, false, false);
}

DP_HOT static void forward_relu(const struct job *job, size_t first, size_t rows, size_t width)
{
    forward_rows(job, first, rows, width, false, true);
}

DP_HOT static void forward_add(const struct job *job, size_t first, size_t rows, size_t width)
{
    forward_rows(job, first, rows, width, true, false);
}

DP_HOT static void forward_add_relu(const struct job *job, size_t first, size_t rows, size_t width)
{
    forward_rows(job, first, rows, width, true, true);
}

static void forward_part(void *arg, size_t begin, size_t end)
{
    const struct job *job = arg;

    if (job->add != NULL) {
        for_rows(job, begin, end, job->relu ? forward_add_relu : forward_add);
    } else {
        for_rows(job, begin, end, job->relu ? forward_relu : forward_plain);
    }
}

dp_status dp_cpu_norm_apply(struct dp_stream *s, void *y, const void *x, const void *add,
                            const float *mean, const float *var, const float *gamma,
                            const float *beta, const struct dp_norm *norm)
{
    struct factors f;

    for (size_t begin = 0; begin < norm->channels;) {
        const struct dp_tile tile = dp_tile_at(begin, norm->channels);
        struct job job = {.tile = &tile,
                          .factors = &f,
                          .x = x,
                          .add = add,
                          .y = y,
                          .relu = norm->act == DP_ACT_RELU};
        factors_fill(&f, &tile, mean, var, gamma, beta, norm);
        dp_parallel_rows(s->threads, norm->count, tile.columns, tile.fold, forward_part, &job);
        begin += tile.columns;
    }
    return DP_OK;
}

dp_status dp_cpu_norm_moments(struct dp_stream *s, double *moments, size_t before, const void *x,
                              const struct dp_norm *norm)
{
    for (size_t begin = 0; begin < norm->channels;) {
        const struct dp_tile tile = dp_tile_at(begin, norm->channels);
        dp_columns_moments(s->threads, &tile, before, norm->count, x, moments + begin,
                           moments + norm->channels + begin);
        begin += tile.columns;
    }
    return DP_OK;
}

/* ---- backward ---- */

/* The gradient after the activation, with or without a relu. */
static inline float masked(float dy, float x, float mean, float scale, float beta, bool relu)
{
    return !relu || normalised(x, mean, scale, beta) > 0 ? dy : 0.0f;
}

/* sum0 += g, sum1 += g (x - mean); four rows at a time. */
static inline void add_gradients(const struct job *job, float *restrict sum0, float *restrict sum1,
                                 size_t first, size_t rows, size_t stride, size_t width, bool relu)
{
    const float *restrict m = job->factors->mean, *restrict s = job->factors->scale;
    const float *restrict t = job->factors->beta;
    size_t r = 0;

    for (; r + 4 <= rows; r += 4) {
        const float *restrict x = job->x + first + r * stride;
        const float *restrict dy = job->dy + first + r * stride;
        for (size_t j = 0; j < width; j++) {
            const size_t k = j + stride, l = k + stride, n = l + stride;
            const float g = masked(dy[j], x[j], m[j], s[j], t[j], relu);
            const float h = masked(dy[k], x[k], m[j], s[j], t[j], relu);
            const float p = masked(dy[l], x[l], m[j], s[j], t[j], relu);
            const float q = masked(dy[n], x[n], m[j], s[j], t[j], relu);
            sum0[j] += (g + h) + (p + q);
            sum1[j] +=
                (g * (x[j] - m[j]) + h * (x[k] - m[j])) + (p * (x[l] - m[j]) + q * (x[n] - m[j]));
        }
    }
    for (; r < rows; r++) {
        const float *restrict x = job->x + first + r * stride;
        const float *restrict dy = job->dy + first + r * stride;
        for (size_t j = 0; j < width; j++) {
            const float g = masked(dy[j], x[j], m[j], s[j], t[j], relu);
            sum0[j] += g;
            sum1[j] += g * (x[j] - m[j]);
        }
    }
}

DP_HOT static void add_gradients_plain(const void *arg, float *const sums[2], size_t first,
                                       size_t rows, size_t stride, size_t width)
{
    add_gradients(arg, sums[0], sums[1], first, rows, stride, width, false);
}

DP_HOT static void add_gradients_relu(const void *arg, float *const sums[2], size_t first,
                                      size_t rows, size_t stride, size_t width)
{
    add_gradients(arg, sums[0], sums[1], first, rows, stride, width, true);
}

/* Both sums over a tile of columns; the second one is divided by the deviation here, once. */
static void gradient_sums(struct dp_stream *s, const struct job *job, const float *var,
                          const struct dp_norm *norm, double totals[2][DP_TILE])
{
    const struct dp_column_job sums = {
        .add = job->relu ? add_gradients_relu : add_gradients_plain, .arg = job, .sums = 2};

    dp_columns_sum(s->threads, job->tile, norm->count, &sums, totals);
    for (size_t c = 0; c < job->tile->columns; c++) {
        totals[1][c] *= inverse_deviation(var[job->tile->begin + c], norm->eps);
    }
}

/* dx may be dy. */
static inline void backward_rows(const struct job *job, size_t first, size_t rows, size_t width,
                                 bool relu)
{
    const struct factors *f = job->factors;

    for (size_t r = 0; r < rows; r++) {
        const float *x = job->x + first + r * job->tile->stride;
        const float *dy = job->dy + first + r * job->tile->stride;
        float *dx = job->y + first + r * job->tile->stride;
        DP_INDEPENDENT
        for (size_t j = 0; j < width; j++) {
            const float g = masked(dy[j], x[j], f->mean[j], f->scale[j], f->beta[j], relu);
            const float hat = (x[j] - f->mean[j]) * f->slope[j];
            dx[j] = f->scale[j] * ((g - f->center[j]) - hat);
        }
    }
}

DP_HOT static void backward_plain(const struct job *job, size_t first, size_t rows, size_t width)
{
    backward_rows(job, first, rows, width, false);
}

DP_HOT static void backward_relu(const struct job *job, size_t first, size_t rows, size_t width)
{
    backward_rows(job, first, rows, width, true);
}

static void backward_part(void *arg, size_t begin, size_t end)
{
    const struct job *job = arg;

    for_rows(job, begin, end, job->relu ? backward_relu : backward_plain);
}

dp_status dp_cpu_norm_backward_sums(struct dp_stream *s, double *sums, const void *dy,
                                    const void *x, const float *mean, const float *var,
                                    const float *gamma, const float *beta,
                                    const struct dp_norm *norm, float keep)
{
    struct factors f;
    double totals[2][DP_TILE];

    for (size_t begin = 0; begin < norm->channels;) {
        const struct dp_tile tile = dp_tile_at(begin, norm->channels);
        const struct job job = {&tile, &f, x, dy, NULL, NULL, norm->act == DP_ACT_RELU};
        factors_fill(&f, &tile, mean, var, gamma, beta, norm);
        gradient_sums(s, &job, var, norm, totals);
        for (size_t c = 0; c < tile.columns; c++) {
            const size_t i = begin + c, k = norm->channels + i;
            sums[i] = totals[0][c] + (keep != 0 ? sums[i] : 0);
            sums[k] = totals[1][c] + (keep != 0 ? sums[k] : 0);
        }
        begin += tile.columns;
    }
    return DP_OK;
}

/* NOLINTNEXTLINE(readability-function-size): the parameters are the contract's. */
dp_status dp_cpu_norm_backward_apply(struct dp_stream *s, void *dx, const void *dy, const void *x,
                                     const float *mean, const float *var, const float *gamma,
                                     const float *beta, const double *sums, double total,
                                     const struct dp_norm *norm)
{
    struct factors f;

    for (size_t begin = 0; begin < norm->channels;) {
        const struct dp_tile tile = dp_tile_at(begin, norm->channels);
        struct job job = {&tile, &f, x, dy, NULL, dx, norm->act == DP_ACT_RELU};
        factors_fill(&f, &tile, mean, var, gamma, beta, norm);
        factors_add_sums(&f, &tile, var, sums + begin, sums + norm->channels + begin, total, norm);
        dp_parallel_rows(s->threads, norm->count, tile.columns, tile.fold, backward_part, &job);
        begin += tile.columns;
    }
    return DP_OK;
}
