/*
 * norm.c - batch normalisation in loops of our own: see kernels/ops.h for the contract.
 *
 * Forward reads x for the statistics, then reads x and writes y: 12 bytes per element, and 4 more
 * where it adds a residual's other branch. Backward reads dy and x twice and writes dx: 20 bytes
 * per element. oneDNN moves the same bytes. These loops can be called for a few rows at a time,
 * while those are in the cache; they give the sums that synchronised norm needs; and they recompute
 * the relu's mask, which needs no workspace. Arrays of bfloat16 are converted in registers, so that
 * half of the bytes are moved and no pass only converts.
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/bfloat.h"
#include "kernels/cpu/columns.h"
#include "kernels/cpu/mixed.h"
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
    const void *x, *dy, *add; /* add: forward only; NULL: nothing */
    void *y;                  /* dx in backward, which may be dy */
    bool relu;
    bool narrow; /* these arrays are of bfloat16, else of float32 */
};

/* Forward and backward use this one function, so that the mask is equal to the bit. */
DP_INLINE float normalised(float x, float mean, float scale, float beta)
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

/* A loop over rows: one function for each kind, so that nothing is decided inside. */
typedef void row_fn(const struct job *job, size_t first, size_t rows, size_t width);

/* Runs `row` over the folded rows of a tile, from the last block of them to the first, since the
 * previous pass has left the last rows in the cache. The last row may be narrower. */
static void for_rows(const struct job *job, size_t begin, size_t end, row_fn *row)
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

/* Fetches the row that comes 2 KB after this one: what the hardware fetches by itself ends with
 * each page of memory, and most of these arrays are beyond the second cache. */
DP_INLINE void prefetch_row(const void *from, size_t at, size_t stride, size_t width, bool narrow)
{
    enum { AHEAD = 2048, LINE = 64 };
    const size_t bytes = width * (narrow ? sizeof(uint16_t) : sizeof(float));
    const char *row = dp_element(from, at + (AHEAD + bytes - 1) / bytes * stride, narrow);

    for (size_t i = 0; i < bytes; i += LINE) {
        __builtin_prefetch(row + i);
    }
}

/* ---- forward ---- */

/* y may be x or add. */
DP_INLINE void forward_rows(const struct job *job, size_t first, size_t rows, size_t width,
                            bool adds, bool relu, bool narrow)
{
    const struct factors *f = job->factors;

    for (size_t r = 0; r < rows; r++) {
        const size_t at = first + r * job->tile->stride;
        const void *x = dp_element(job->x, at, narrow);
        const void *add = adds ? dp_element(job->add, at, narrow) : NULL;
        void *y = dp_element_to(job->y, at, narrow);
        prefetch_row(job->x, at, job->tile->stride, width, narrow);
        if (adds) {
            prefetch_row(job->add, at, job->tile->stride, width, narrow);
        }
        DP_INDEPENDENT
        for (size_t j = 0; j < width; j++) {
            const float own =
                normalised(dp_number(x, j, narrow), f->mean[j], f->scale[j], f->beta[j]);
            const float v = adds ? own + dp_number(add, j, narrow) : own;
            dp_number_to(y, j, relu && v < 0 ? 0 : v, narrow); /* a NaN stays a NaN */
        }
    }
}

#define FORWARD(name, adds, relu, narrow)                                                   \
    DP_HOT static void name(const struct job *job, size_t first, size_t rows, size_t width) \
    {                                                                                       \
        forward_rows(job, first, rows, width, adds, relu, narrow);                          \
    }

FORWARD(forward_plain, false, false, false)
FORWARD(forward_relu, false, true, false)
FORWARD(forward_add, true, false, false)
FORWARD(forward_add_relu, true, true, false)
FORWARD(forward_plain_bfloat, false, false, true)
FORWARD(forward_relu_bfloat, false, true, true)
FORWARD(forward_add_bfloat, true, false, true)
FORWARD(forward_add_relu_bfloat, true, true, true)

static void forward_part(void *arg, size_t begin, size_t end)
{
    static row_fn *const rows[2][2][2] = {
        {{forward_plain, forward_relu}, {forward_add, forward_add_relu}},
        {{forward_plain_bfloat, forward_relu_bfloat},
         {forward_add_bfloat, forward_add_relu_bfloat}},
    };
    const struct job *job = arg;

    for_rows(job, begin, end, rows[job->narrow][job->add != NULL][job->relu]);
}

/* What does not depend on the type of x and y, which `arrays` has. */
static void apply(struct dp_stream *s, const struct job *arrays, const float *mean,
                  const float *var, const float *gamma, const float *beta,
                  const struct dp_norm *norm)
{
    struct factors f;
    struct job job = *arrays;

    job.factors = &f;
    job.relu = norm->act == DP_ACT_RELU;
    for (size_t begin = 0; begin < norm->channels;) {
        const struct dp_tile tile = dp_tile_at(begin, norm->channels);
        job.tile = &tile;
        factors_fill(&f, &tile, mean, var, gamma, beta, norm);
        dp_parallel_rows(s->threads, norm->count, tile.columns, tile.fold, forward_part, &job);
        begin += tile.columns;
    }
}

dp_status dp_cpu_norm_apply(struct dp_stream *s, void *y, const void *x, const void *add,
                            const float *mean, const float *var, const float *gamma,
                            const float *beta, const struct dp_norm *norm)
{
    const struct job job = {.x = x, .add = add, .y = y};

    apply(s, &job, mean, var, gamma, beta, norm);
    return DP_OK;
}

dp_status dp_cpu_bfloat_norm_apply(struct dp_stream *s, void *y, const void *x, const void *add,
                                   const float *mean, const float *var, const float *gamma,
                                   const float *beta, const struct dp_norm *norm)
{
    const struct job job = {.x = x, .add = add, .y = y, .narrow = true};

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

/* The gradient after the activation, with or without a relu. */
DP_INLINE float masked(float dy, float x, float mean, float scale, float beta, bool relu)
{
    return !relu || normalised(x, mean, scale, beta) > 0 ? dy : 0.0f;
}

/* sum0 += g, sum1 += g (x - mean); four rows at a time. */
DP_INLINE void add_gradients(const struct job *job, float *restrict sum0, float *restrict sum1,
                             size_t first, size_t rows, size_t stride, size_t width, bool relu,
                             bool narrow)
{
    const float *restrict m = job->factors->mean, *restrict s = job->factors->scale;
    const float *restrict t = job->factors->beta;
    size_t r = 0;

    for (; r + 4 <= rows; r += 4) {
        const void *xs = dp_element(job->x, first + r * stride, narrow);
        const void *dys = dp_element(job->dy, first + r * stride, narrow);
        for (size_t i = 0; i < 4; i++) { /* dy was just written */
            prefetch_row(job->x, first + (r + i) * stride, stride, width, narrow);
        }
        for (size_t j = 0; j < width; j++) {
            const size_t k = j + stride, l = k + stride, n = l + stride;
            const float x = dp_number(xs, j, narrow), y = dp_number(xs, k, narrow);
            const float z = dp_number(xs, l, narrow), w = dp_number(xs, n, narrow);
            const float g = masked(dp_number(dys, j, narrow), x, m[j], s[j], t[j], relu);
            const float h = masked(dp_number(dys, k, narrow), y, m[j], s[j], t[j], relu);
            const float p = masked(dp_number(dys, l, narrow), z, m[j], s[j], t[j], relu);
            const float q = masked(dp_number(dys, n, narrow), w, m[j], s[j], t[j], relu);
            sum0[j] += (g + h) + (p + q);
            sum1[j] += (g * (x - m[j]) + h * (y - m[j])) + (p * (z - m[j]) + q * (w - m[j]));
        }
    }
    for (; r < rows; r++) {
        const void *xs = dp_element(job->x, first + r * stride, narrow);
        const void *dys = dp_element(job->dy, first + r * stride, narrow);
        for (size_t j = 0; j < width; j++) {
            const float x = dp_number(xs, j, narrow);
            const float g = masked(dp_number(dys, j, narrow), x, m[j], s[j], t[j], relu);
            sum0[j] += g;
            sum1[j] += g * (x - m[j]);
        }
    }
}

typedef void sum_fn(const void *arg, float *const sums[2], size_t first, size_t rows, size_t stride,
                    size_t width);

#define ADD_GRADIENTS(name, relu, narrow)                                                     \
    DP_HOT static void name(const void *arg, float *const sums[2], size_t first, size_t rows, \
                            size_t stride, size_t width)                                      \
    {                                                                                         \
        add_gradients(arg, sums[0], sums[1], first, rows, stride, width, relu, narrow);       \
    }

ADD_GRADIENTS(add_gradients_plain, false, false)
ADD_GRADIENTS(add_gradients_relu, true, false)
ADD_GRADIENTS(add_gradients_plain_bfloat, false, true)
ADD_GRADIENTS(add_gradients_relu_bfloat, true, true)

/* Both sums over a tile of columns; the second one is divided by the deviation here, once. */
static void gradient_sums(struct dp_stream *s, const struct job *job, const float *var,
                          const struct dp_norm *norm, double totals[2][DP_TILE])
{
    static sum_fn *const adds[2][2] = {{add_gradients_plain, add_gradients_relu},
                                       {add_gradients_plain_bfloat, add_gradients_relu_bfloat}};
    const struct dp_column_job sums = {.add = adds[job->narrow][job->relu], .arg = job, .sums = 2};

    dp_columns_sum(s->threads, job->tile, norm->count, &sums, totals);
    for (size_t c = 0; c < job->tile->columns; c++) {
        totals[1][c] *= inverse_deviation(var[job->tile->begin + c], norm->eps);
    }
}

/* dx may be dy. */
DP_INLINE void backward_rows(const struct job *job, size_t first, size_t rows, size_t width,
                             bool relu, bool narrow)
{
    const struct factors *f = job->factors;

    for (size_t r = 0; r < rows; r++) {
        const size_t at = first + r * job->tile->stride;
        const void *xs = dp_element(job->x, at, narrow), *dys = dp_element(job->dy, at, narrow);
        void *dx = dp_element_to(job->y, at, narrow);
        prefetch_row(job->x, at, job->tile->stride, width, narrow);
        prefetch_row(job->dy, at, job->tile->stride, width, narrow);
        DP_INDEPENDENT
        for (size_t j = 0; j < width; j++) {
            const float x = dp_number(xs, j, narrow);
            const float g =
                masked(dp_number(dys, j, narrow), x, f->mean[j], f->scale[j], f->beta[j], relu);
            const float hat = (x - f->mean[j]) * f->slope[j];
            dp_number_to(dx, j, f->scale[j] * ((g - f->center[j]) - hat), narrow);
        }
    }
}

#define BACKWARD(name, relu, narrow)                                                        \
    DP_HOT static void name(const struct job *job, size_t first, size_t rows, size_t width) \
    {                                                                                       \
        backward_rows(job, first, rows, width, relu, narrow);                               \
    }

BACKWARD(backward_plain, false, false)
BACKWARD(backward_relu, true, false)
BACKWARD(backward_plain_bfloat, false, true)
BACKWARD(backward_relu_bfloat, true, true)

static void backward_part(void *arg, size_t begin, size_t end)
{
    static row_fn *const rows[2][2] = {{backward_plain, backward_relu},
                                       {backward_plain_bfloat, backward_relu_bfloat}};
    const struct job *job = arg;

    for_rows(job, begin, end, rows[job->narrow][job->relu]);
}

static void backward_sums(struct dp_stream *s, const struct job *arrays, double *sums,
                          const float *mean, const float *var, const float *gamma,
                          const float *beta, const struct dp_norm *norm, bool keep)
{
    struct factors f;
    struct job job = *arrays;
    double totals[2][DP_TILE];

    job.factors = &f;
    job.relu = norm->act == DP_ACT_RELU;
    for (size_t begin = 0; begin < norm->channels;) {
        const struct dp_tile tile = dp_tile_at(begin, norm->channels);
        job.tile = &tile;
        factors_fill(&f, &tile, mean, var, gamma, beta, norm);
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
    const struct job job = {.x = x, .dy = dy};

    backward_sums(s, &job, sums, mean, var, gamma, beta, norm, keep != 0);
    return DP_OK;
}

dp_status dp_cpu_bfloat_norm_backward_sums(struct dp_stream *s, double *sums, const void *dy,
                                           const void *x, const float *mean, const float *var,
                                           const float *gamma, const float *beta,
                                           const struct dp_norm *norm, float keep)
{
    const struct job job = {.x = x, .dy = dy, .narrow = true};

    backward_sums(s, &job, sums, mean, var, gamma, beta, norm, keep != 0);
    return DP_OK;
}

/* NOLINTNEXTLINE(readability-function-size): the parameters are the contract's. */
static void backward_apply(struct dp_stream *s, const struct job *arrays, const float *mean,
                           const float *var, const float *gamma, const float *beta,
                           const double *sums, double total, const struct dp_norm *norm)
{
    struct factors f;
    struct job job = *arrays;

    job.factors = &f;
    job.relu = norm->act == DP_ACT_RELU;
    for (size_t begin = 0; begin < norm->channels;) {
        const struct dp_tile tile = dp_tile_at(begin, norm->channels);
        job.tile = &tile;
        factors_fill(&f, &tile, mean, var, gamma, beta, norm);
        factors_add_sums(&f, &tile, var, sums + begin, sums + norm->channels + begin, total, norm);
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
    const struct job job = {.x = x, .dy = dy, .y = dx};

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
    const struct job job = {.x = x, .dy = dy, .y = dx, .narrow = true};

    backward_apply(s, &job, mean, var, gamma, beta, sums, total, norm);
    return DP_OK;
}
