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

/* The same of a pair of classes. */
static double pair_target(const int32_t *pair, size_t c)
{
    float share;

    memcpy(&share, &pair[2], sizeof(share));
    return ((size_t)pair[0] == c ? (double)share : 0) +
           ((size_t)pair[1] == c ? 1 - (double)share : 0);
}

/* The target of output `c` of a row. */
static double target_of(const struct dp_output_loss *how, const void *targets, size_t row, size_t c)
{
    if (how->targets == DP_TARGET_PAIRS) {
        return pair_target((const int32_t *)targets + row * DP_PAIR_WORDS, c);
    }
    return how->targets == DP_TARGET_CLASSES
               ? (size_t)((const int32_t *)targets)[row] == c ? 1 : 0
               : (double)((const float *)targets)[row * how->outputs + c];
}

/* What an output adds to the score of its row; with classes and DP_LOSS_SIGMOID nothing. */
static double score_of(const struct dp_output_loss *how, double x, double t)
{
    if (how->kind == DP_LOSS_SQUARE) {
        return fabs(x - t) / (double)how->outputs;
    }
    return how->targets == DP_TARGET_NUMBERS && (x > 0) == (t > 0.5) ? 1 / (double)how->outputs : 0;
}

/* One row of softmax cross-entropy, likewise. */
static double softmax_row(const struct dp_stream *s, const struct dp_output_loss *how, void *dx,
                          const void *x, const void *targets, size_t row, double scale,
                          double *score)
{
    double most = 0, sum = 0, loss = 0;
    size_t best = 0;

    for (size_t c = 0; c < how->outputs; c++) {
        const double v = (double)dp_ref_get(s, x, c);
        best = c > 0 && v > most ? c : best;
        most = c == 0 || v > most ? v : most;
    }
    for (size_t c = 0; c < how->outputs; c++) {
        sum += exp((double)dp_ref_get(s, x, c) - most);
    }
    for (size_t c = 0; c < how->outputs; c++) {
        const double v = (double)dp_ref_get(s, x, c) - most - log(sum);
        const double t = target_of(how, targets, row, c) * (1 - (double)how->smoothing) +
                         (double)how->smoothing / (double)how->outputs;
        loss -= t > 0 ? t * v : 0;
        if (dx != NULL) {
            dp_ref_put(s, dx, c, (float)((exp(v) - t) * scale));
        }
    }
    *score += target_of(how, targets, row, best);
    return loss;
}

/* One row: returns its loss; writes the gradient unless dx is NULL (dx may be x); adds to
 * *score. */
static double row_loss(const struct dp_stream *s, const struct dp_output_loss *how, void *dx,
                       const void *x, const void *targets, size_t row, double scale, double *score)
{
    const size_t outputs = how->outputs;
    double sum = 0, most = 0, slope;
    size_t best = 0;

    for (size_t c = 0; c < outputs; c++) {
        const double v = (double)dp_ref_get(s, x, c), t = target_of(how, targets, row, c);
        best = c > 0 && v > most ? c : best;
        most = c == 0 || v > most ? v : most;
        sum += loss_of(how->kind, v, t, &slope);
        *score += score_of(how, v, t);
        if (dx != NULL) {
            dp_ref_put(s, dx, c, (float)(slope * scale / (double)outputs));
        }
    }
    if (how->targets != DP_TARGET_NUMBERS && how->kind == DP_LOSS_SIGMOID) {
        *score += target_of(how, targets, row, best);
    }
    return sum / (double)outputs;
}

dp_status dp_ref_output_loss(struct dp_stream *s, const struct dp_output_loss *how, void *dx,
                             float *loss, float *score, const void *x, const void *targets,
                             const float *scale, float keep)
{
    double sum = 0, scores = 0;

    assert(how->kind != DP_LOSS_SOFTMAX || how->targets != DP_TARGET_NUMBERS);
    for (size_t r = 0; r < how->rows; r++) {
        void *to = dx != NULL ? dp_ref_to(s, dx, r * how->outputs) : NULL;
        const void *from = dp_ref_at(s, x, r * how->outputs);
        sum += how->kind == DP_LOSS_SOFTMAX
                   ? softmax_row(s, how, to, from, targets, r, (double)*scale, &scores)
                   : row_loss(s, how, to, from, targets, r, (double)*scale, &scores);
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
