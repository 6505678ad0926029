/*
 * norm.c - batch normalisation: see kernels/ops.h for the contract; its loops are those of
 * norm_rows.h.
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
#include "kernels/cpu/mixed.h"
#include "kernels/cpu/norm/norm_rows.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/device.h"

static inline double inverse_deviation(float var, float eps)
{
    return 1.0 / sqrt((double)var + (double)eps);
}

/* values [tile->columns] */
static void repeat(float *wide, const struct dp_tile *tile, const float *values, bool narrow)
{
    float joined[DP_TILE];

    dp_tile_repeat(tile, narrow ? joined : wide, values);
    if (narrow) {
        for (size_t j = 0; j < tile->width; j++) {
            joined[j] = dp_plain_nan(joined[j]);
        }
        dp_columns_split(wide, joined, tile->width);
    }
}

static void factors_fill(struct dp_norm_factors *f, const struct dp_tile *tile, bool narrow,
                         const float *mean, const float *var, const float *gamma, const float *beta,
                         const struct dp_norm *norm)
{
    float scale[DP_TILE];

    for (size_t c = 0; c < tile->columns; c++) {
        const size_t channel = tile->begin + c;
        scale[c] = (float)((double)gamma[channel] * inverse_deviation(var[channel], norm->eps));
    }
    repeat(f->mean, tile, mean + tile->begin, narrow);
    repeat(f->scale, tile, scale, narrow);
    repeat(f->beta, tile, beta + tile->begin, narrow);
}

/* Converts sums of the gradient over `total` elements to the factors of the last pass: dx = scale
 * (g - center - (x - mean) slope). */
static void factors_add_sums(struct dp_norm_factors *f, const struct dp_tile *tile, bool narrow,
                             const float *var, const double *sum_dy, const double *sum_dy_hat,
                             double total, const struct dp_norm *norm)
{
    float center[DP_TILE], slope[DP_TILE];

    for (size_t c = 0; c < tile->columns; c++) {
        const double inverse = inverse_deviation(var[tile->begin + c], norm->eps);
        center[c] = (float)(sum_dy[c] / total);
        slope[c] = (float)(sum_dy_hat[c] * inverse / total);
    }
    repeat(f->center, tile, center, narrow);
    repeat(f->slope, tile, slope, narrow);
}

/* Runs `row` over the folded rows of a tile, from the last block of them to the first, since the
 * previous pass has left the last rows in the cache. The last row may be narrower. */
static void for_rows(const struct dp_norm_job *job, size_t begin, size_t end, dp_norm_row_fn *row)
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

static void forward_part(void *arg, size_t begin, size_t end)
{
    for_rows(arg, begin, end, dp_norm_forward_row(arg));
}

/* What does not depend on the type of x and y, which `arrays` has. */
static void apply(struct dp_stream *s, const struct dp_norm_job *arrays, const float *mean,
                  const float *var, const float *gamma, const float *beta,
                  const struct dp_norm *norm)
{
    struct dp_norm_factors f;
    struct dp_norm_job job = *arrays;

    job.factors = &f;
    job.relu = norm->act == DP_ACT_RELU;
    for (size_t begin = 0; begin < norm->channels;) {
        const struct dp_tile tile = dp_tile_at(begin, norm->channels);
        job.tile = &tile;
        factors_fill(&f, &tile, job.narrow, mean, var, gamma, beta, norm);
        dp_parallel_rows(s->threads, norm->count, tile.columns, tile.fold, forward_part, &job);
        begin += tile.columns;
    }
}

dp_status dp_cpu_norm_apply(struct dp_stream *s, void *y, const void *x, const void *add,
                            const float *mean, const float *var, const float *gamma,
                            const float *beta, const struct dp_norm *norm)
{
    const struct dp_norm_job job = {.x = x, .add = add, .y = y};

    apply(s, &job, mean, var, gamma, beta, norm);
    return DP_OK;
}

dp_status dp_cpu_bfloat_norm_apply(struct dp_stream *s, void *y, const void *x, const void *add,
                                   const float *mean, const float *var, const float *gamma,
                                   const float *beta, const struct dp_norm *norm)
{
    const struct dp_norm_job job = {.x = x, .add = add, .y = y, .narrow = true};

    apply(s, &job, mean, var, gamma, beta, norm);
    return DP_OK;
}

static void moments_of(struct dp_stream *s, double *moments, size_t before, const void *x,
                       bool narrow, const struct dp_norm *norm)
{
    for (size_t begin = 0; begin < norm->channels;) {
        const struct dp_tile tile = dp_tile_at(begin, norm->channels);
        dp_columns_moments(s->threads, &tile, before, norm->count, x, narrow, moments + begin,
                           moments + norm->channels + begin);
        begin += tile.columns;
    }
}

dp_status dp_cpu_norm_moments(struct dp_stream *s, double *moments, size_t before, const void *x,
                              const struct dp_norm *norm)
{
    moments_of(s, moments, before, x, false, norm);
    return DP_OK;
}

dp_status dp_cpu_bfloat_norm_moments(struct dp_stream *s, double *moments, size_t before,
                                     const void *x, const struct dp_norm *norm)
{
    moments_of(s, moments, before, x, true, norm);
    return DP_OK;
}

/* ---- backward ---- */

/* Both sums over a tile of columns; the second one is divided by the deviation here, once. */
static void gradient_sums(struct dp_stream *s, const struct dp_norm_job *job, const float *var,
                          const struct dp_norm *norm, double totals[2][DP_TILE])
{
    const struct dp_column_job sums = {.add = dp_norm_add_gradients(job), .arg = job, .sums = 2};

    dp_columns_sum(s->threads, job->tile, norm->count, &sums, totals);
    for (size_t c = 0; c < job->tile->columns; c++) {
        totals[1][c] *= inverse_deviation(var[job->tile->begin + c], norm->eps);
    }
}

static void backward_part(void *arg, size_t begin, size_t end)
{
    for_rows(arg, begin, end, dp_norm_backward_row(arg));
}

static void backward_sums(struct dp_stream *s, const struct dp_norm_job *arrays, double *sums,
                          const float *mean, const float *var, const float *gamma,
                          const float *beta, const struct dp_norm *norm, bool keep)
{
    struct dp_norm_factors f;
    struct dp_norm_job job = *arrays;
    double totals[2][DP_TILE];

    job.factors = &f;
    job.relu = norm->act == DP_ACT_RELU;
    for (size_t begin = 0; begin < norm->channels;) {
        const struct dp_tile tile = dp_tile_at(begin, norm->channels);
        job.tile = &tile;
        factors_fill(&f, &tile, job.narrow, mean, var, gamma, beta, norm);
        gradient_sums(s, &job, var, norm, totals);
        for (size_t c = 0; c < tile.columns; c++) {
            const size_t i = begin + c, k = norm->channels + i;
            sums[i] = totals[0][c] + (keep ? sums[i] : 0);
            sums[k] = totals[1][c] + (keep ? sums[k] : 0);
        }
        begin += tile.columns;
    }
}

dp_status dp_cpu_norm_backward_sums(struct dp_stream *s, double *sums, const void *dy,
                                    const void *x, const float *mean, const float *var,
                                    const float *gamma, const float *beta,
                                    const struct dp_norm *norm, float keep)
{
    const struct dp_norm_job job = {.x = x, .dy = dy};

    backward_sums(s, &job, sums, mean, var, gamma, beta, norm, keep != 0);
    return DP_OK;
}

dp_status dp_cpu_bfloat_norm_backward_sums(struct dp_stream *s, double *sums, const void *dy,
                                           const void *x, const float *mean, const float *var,
                                           const float *gamma, const float *beta,
                                           const struct dp_norm *norm, float keep)
{
    const struct dp_norm_job job = {.x = x, .dy = dy, .narrow = true};

    backward_sums(s, &job, sums, mean, var, gamma, beta, norm, keep != 0);
    return DP_OK;
}

/* NOLINTNEXTLINE(readability-function-size): the parameters are the contract's. */
static void backward_apply(struct dp_stream *s, const struct dp_norm_job *arrays, const float *mean,
                           const float *var, const float *gamma, const float *beta,
                           const double *sums, double total, const struct dp_norm *norm)
{
    struct dp_norm_factors f;
    struct dp_norm_job job = *arrays;

    job.factors = &f;
    job.relu = norm->act == DP_ACT_RELU;
    for (size_t begin = 0; begin < norm->channels;) {
        const struct dp_tile tile = dp_tile_at(begin, norm->channels);
        job.tile = &tile;
        factors_fill(&f, &tile, job.narrow, mean, var, gamma, beta, norm);
        factors_add_sums(&f, &tile, job.narrow, var, sums + begin, sums + norm->channels + begin,
                         total, norm);
        dp_parallel_rows(s->threads, norm->count, tile.columns, tile.fold, backward_part, &job);
        begin += tile.columns;
    }
}

/* NOLINTNEXTLINE(readability-function-size): the parameters are the contract's. */
dp_status dp_cpu_norm_backward_apply(struct dp_stream *s, void *dx, const void *dy, const void *x,
                                     const float *mean, const float *var, const float *gamma,
                                     const float *beta, const double *sums, double total,
                                     const struct dp_norm *norm)
{
    const struct dp_norm_job job = {.x = x, .dy = dy, .y = dx};

    backward_apply(s, &job, mean, var, gamma, beta, sums, total, norm);
    return DP_OK;
}

/* NOLINTNEXTLINE(readability-function-size): the parameters are the contract's. */
dp_status dp_cpu_bfloat_norm_backward_apply(struct dp_stream *s, void *dx, const void *dy,
                                            const void *x, const float *mean, const float *var,
                                            const float *gamma, const float *beta,
                                            const double *sums, double total,
                                            const struct dp_norm *norm)
{
    const struct dp_norm_job job = {.x = x, .dy = dy, .y = dx, .narrow = true};

    backward_apply(s, &job, mean, var, gamma, beta, sums, total, norm);
    return DP_OK;
}
