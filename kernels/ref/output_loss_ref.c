/*
 * output_loss_ref.c - losses of each output by itself, and answers among the best: the formulas of
 * kernels/ops.h, one row after the other.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/ref/element.h"
#include "kernels/ref/ops_ref.h"

/* The loss of an output x with target t, and its slope. */
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

static double number_of(int32_t bits)
{
    float number;

    memcpy(&number, &bits, sizeof(number));
    return (double)number;
}

/* What the only output of a row adds to the score. */
static double score_one(enum dp_loss_kind kind, double x, double t)
{
    return kind == DP_LOSS_SQUARE ? fabs(x - t) : (x > 0) == (t > 0.5) ? 1 : 0;
}

/* One row: returns its loss; writes the gradient unless dx is NULL (dx may be x); adds to
 * *score. */
static double row_loss(const struct dp_stream *s, enum dp_loss_kind kind, void *dx, const void *x,
                       int32_t target, size_t outputs, double scale, double *score)
{
    double sum = 0, most = 0, slope;
    size_t best = 0;

    for (size_t c = 0; c < outputs; c++) {
        const double v = (double)dp_ref_get(s, x, c);
        const double t = outputs == 1 ? number_of(target) : (size_t)target == c ? 1 : 0;
        best = c > 0 && v > most ? c : best;
        most = c == 0 || v > most ? v : most;
        sum += loss_of(kind, v, t, &slope);
        *score += outputs == 1 ? score_one(kind, v, t) : 0;
        if (dx != NULL) {
            dp_ref_put(s, dx, c, (float)(slope * scale / (double)outputs));
        }
    }
    *score += outputs > 1 && best == (size_t)target ? 1 : 0;
    return sum / (double)outputs;
}

dp_status dp_ref_output_loss(struct dp_stream *s, const struct dp_output_loss *how, void *dx,
                             float *loss, float *score, const void *x, const int32_t *targets,
                             const float *scale, float keep)
{
    const enum dp_loss_kind kind = how->kind;
    const size_t outputs = how->outputs;
    double sum = 0, scores = 0;

    assert(kind == DP_LOSS_SIGMOID || kind == DP_LOSS_SQUARE);
    for (size_t r = 0; r < how->rows; r++) {
        sum += row_loss(s, kind, dx != NULL ? dp_ref_to(s, dx, r * outputs) : NULL,
                        dp_ref_at(s, x, r * outputs), targets[r], outputs, (double)*scale, &scores);
    }
    *loss = (float)(sum * (double)*scale + (keep != 0 ? (double)*loss : 0));
    *score = (float)(scores + (keep != 0 ? (double)*score : 0));
    return DP_OK;
}

dp_status dp_ref_count_top(struct dp_stream *s, float *count, const void *x, const int32_t *labels,
                           size_t rows, size_t classes, size_t k, float keep)
{
    double sum = 0;

    for (size_t r = 0; r < rows; r++) {
        const void *row = dp_ref_at(s, x, r * classes);
        const size_t label = (size_t)labels[r];
        const float own = dp_ref_get(s, row, label);
        size_t before = 0;
        for (size_t c = 0; c < classes; c++) {
            const float v = dp_ref_get(s, row, c);
            before += v > own || (v == own && c < label) ? 1 : 0;
        }
        sum += own == own && before < k ? 1 : 0;
    }
    *count = (float)(sum + (keep != 0 ? (double)*count : 0));
    return DP_OK;
}
