/*
 * output_loss.c - losses of each output by itself, and answers among the best: see kernels/ops.h
 * for the contract.
 *
 * All outputs but the target's have t = 0, which leaves loops that vectorise. Of log(1 + e) factors
 * are multiplied and one logarithm is taken: each is at most 2, so a double holds a thousand of
 * them, to the last place. Rows are added in double and in order, by one thread.
 */
#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/device.h"

enum { LANES = 8, FACTORS = 1000 /* of a lane, until their logarithm is taken */ };

/* Sums over outputs with t = 0; the gradient goes to dx unless that is NULL (dx may be x). */
DP_HOT static double sigmoid_zeros(float *dx, const float *x, size_t count, float scale)
{
    double sum = 0;

    for (size_t begin = 0; begin < count; begin += (size_t)LANES * FACTORS) {
        const size_t end =
            count - begin < (size_t)LANES * FACTORS ? count : begin + (size_t)LANES * FACTORS;
        double factors[LANES] = {1, 1, 1, 1, 1, 1, 1, 1}, lanes[LANES] = {0};
        for (size_t i = begin; i < end; i++) {
            const float v = x[i], e = dp_exp_nonpositive(v < 0 ? v : -v);
            lanes[i % LANES] += (double)(v > 0 ? v : 0);
            factors[i % LANES] *= 1 + (double)e;
            if (dx != NULL) {
                dx[i] = (v >= 0 ? 1 : e) / (1 + e) * scale;
            }
        }
        for (size_t j = 0; j < LANES; j++) {
            sum += lanes[j] + log(factors[j]);
        }
    }
    return sum;
}

DP_HOT static double square_zeros(float *dx, const float *x, size_t count, float scale)
{
    double lanes[LANES] = {0}, sum = 0;

    for (size_t i = 0; i < count; i++) {
        lanes[i % LANES] += (double)x[i] * (double)x[i];
        if (dx != NULL) {
            dx[i] = 2 * x[i] * scale;
        }
    }
    for (size_t j = 0; j < LANES; j++) {
        sum += lanes[j];
    }
    return sum;
}

/* The one output with another target. */
static double loss_of(enum dp_loss_kind kind, double x, double t, double *slope)
{
    const double e = exp(-fabs(x));

    if (kind == DP_LOSS_SQUARE) {
        *slope = 2 * (x - t);
        return (x - t) * (x - t);
    }
    *slope = (x >= 0 ? 1 : e) / (1 + e) - t;
    return (x > 0 ? x : 0) - x * t + log1p(e);
}

static float number_of(int32_t bits)
{
    float number;

    memcpy(&number, &bits, sizeof(number));
    return number;
}

static double zeros(enum dp_loss_kind kind, float *dx, const float *x, size_t count, float scale)
{
    return kind == DP_LOSS_SIGMOID ? sigmoid_zeros(dx, x, count, scale)
                                   : square_zeros(dx, x, count, scale);
}

/* The first of the largest; the first element if that is a NaN. */
static size_t largest(const float *x, size_t count)
{
    size_t best = 0;

    for (size_t c = 1; c < count; c++) {
        best = x[c] > x[best] ? c : best;
    }
    return best;
}

/* One row: returns its loss; adds to *score. */
static double row_loss(enum dp_loss_kind kind, float *dx, const float *x, int32_t target,
                       size_t outputs, float scale, double *score)
{
    const bool one = outputs == 1;
    const size_t at = one ? 0 : (size_t)target;
    const double v = (double)x[at], t = one ? (double)number_of(target) : 1;
    const float each = scale / (float)outputs;
    double sum, slope;

    assert(at < outputs);
    *score += !one                     ? (largest(x, outputs) == at ? 1 : 0)
              : kind == DP_LOSS_SQUARE ? fabs(v - t)
              : (v > 0) == (t > 0.5)   ? 1
                                       : 0;
    sum = zeros(kind, dx, x, at, each);
    sum += zeros(kind, dx != NULL ? dx + at + 1 : NULL, x + at + 1, outputs - at - 1, each);
    sum += loss_of(kind, v, t, &slope);
    if (dx != NULL) {
        dx[at] = (float)(slope * (double)each);
    }
    return sum / (double)outputs;
}

dp_status dp_cpu_output_loss(struct dp_stream *s, const struct dp_output_loss *how, void *dx,
                             float *loss, float *score, const void *x, const int32_t *targets,
                             const float *scale, float keep)
{
    const size_t outputs = how->outputs;
    const float *values = x;
    float *gradient = dx;
    double sum = 0, scores = 0;
    (void)s;

    for (size_t r = 0; r < how->rows; r++) {
        sum += row_loss(how->kind, gradient != NULL ? gradient + r * outputs : NULL,
                        values + r * outputs, targets[r], outputs, *scale, &scores);
    }
    *loss = (float)(sum * (double)*scale + (keep != 0 ? (double)*loss : 0));
    *score = (float)(scores + (keep != 0 ? (double)*score : 0));
    return DP_OK;
}

dp_status dp_cpu_count_top(struct dp_stream *s, float *count, const void *x, const int32_t *labels,
                           size_t rows, size_t classes, size_t k, float keep)
{
    const float *row = x;
    double sum = 0;
    (void)s;

    for (size_t r = 0; r < rows; r++, row += classes) {
        const size_t label = (size_t)labels[r];
        const float own = row[label];
        size_t before = 0;
        for (size_t c = 0; c < label; c++) {
            before += row[c] >= own ? 1 : 0;
        }
        for (size_t c = label + 1; c < classes; c++) {
            before += row[c] > own ? 1 : 0;
        }
        sum += !isnan(own) && before < k ? 1 : 0;
    }
    *count = (float)(sum + (keep != 0 ? (double)*count : 0));
    return DP_OK;
}
