/*
 * softmax.c - softmax cross-entropy and its gradient: see kernels/ops.h for the contract.
 *
 * A row is processed while it is in the first-level cache: largest logit, exponentials and their
 * sum, gradient. Rows are added in double and in order, by one thread: the loss depends only on its
 * inputs, and a batch of logits is small.
 */
#include <assert.h>
#include <math.h>

#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/pairs.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/device.h"

enum { LANES = 16 };

/* The largest of x; a NaN is skipped. */
static inline float largest(const float *x, size_t count)
{
    float lanes[LANES], most;
    size_t i = 0;

    for (size_t j = 0; j < LANES; j++) {
        lanes[j] = x[0];
    }
    for (; i + LANES <= count; i += LANES) {
        for (size_t j = 0; j < LANES; j++) {
            lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
        }
    }
    most = lanes[0];
    for (size_t j = 1; j < LANES; j++) {
        most = lanes[j] > most ? lanes[j] : most;
    }
    for (; i < count; i++) {
        most = x[i] > most ? x[i] : most;
    }
    return most;
}

/* The sum of e^(x - most); the exponentials are written to y unless it is NULL. y may be x. */
static inline float exponentials(float *y, const float *x, float most, size_t count)
{
    float lanes[LANES] = {0}, scratch[LANES], sum = 0;
    size_t i = 0;

    for (; i + LANES <= count; i += LANES) {
        for (size_t j = 0; j < LANES; j++) {
            scratch[j] = dp_exp_nonpositive(x[i + j] - most);
        }
        for (size_t j = 0; j < LANES; j++) {
            lanes[j] += scratch[j];
        }
        for (size_t j = 0; y != NULL && j < LANES; j++) {
            y[i + j] = scratch[j];
        }
    }
    for (size_t j = 0; i + j < count; j++) {
        const float e = dp_exp_nonpositive(x[i + j] - most);
        lanes[j] += e;
        if (y != NULL) {
            y[i + j] = e;
        }
    }
    for (size_t j = 0; j < LANES; j++) {
        sum += lanes[j];
    }
    return sum;
}

/* y *= factor. */
static inline void scale_row(float *y, float factor, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        y[i] *= factor;
    }
}

/* The sum of t (x - most), before dx, which may be x, is written; a share of 0 takes no part. */
static double margin_of(const struct dp_output_loss *how, const float *x, const struct dp_pair *p,
                        float most)
{
    double margin = (p->share > 0 ? (double)p->share * ((double)x[p->first] - (double)most) : 0) +
                    (p->rest > 0 ? (double)p->rest * ((double)x[p->other] - (double)most) : 0);
    double all = 0;

    if (how->smoothing > 0) {
        for (size_t c = 0; c < how->outputs; c++) {
            all += (double)x[c] - (double)most;
        }
        margin = (1 - (double)how->smoothing) * margin +
                 (double)how->smoothing / (double)how->outputs * all;
    }
    return margin;
}

/* y = the gradient, of exponentials y whose sum is `all`. */
static void slope_row(const struct dp_output_loss *how, float *y, const struct dp_pair *p,
                      float all, float scale)
{
    const float spread = scale * how->smoothing / (float)how->outputs;
    const float left = scale * (1 - how->smoothing);

    scale_row(y, scale / all, how->outputs);
    for (size_t c = 0; spread > 0 && c < how->outputs; c++) {
        y[c] -= spread;
    }
    y[p->first] -= left * p->share;
    y[p->other] -= left * p->rest;
}

dp_status dp_cpu_softmax_pairs(const struct dp_output_loss *how, float *dx, float *loss,
                               float *score, const float *x, const int32_t *labels, float scale,
                               float keep)
{
    const bool pairs = how->targets == DP_TARGET_PAIRS;
    double sum = 0, right = 0;

    for (size_t r = 0; r < how->rows; r++, labels += pairs ? DP_PAIR_WORDS : 1) {
        const float *row = x + r * how->outputs;
        float *to = dx != NULL ? dx + r * how->outputs : NULL;
        const struct dp_pair p =
            pairs ? dp_pair_of(labels) : (struct dp_pair){(size_t)*labels, (size_t)*labels, 1, 0};
        const float most = largest(row, how->outputs);
        const double margin = margin_of(how, row, &p, most);
        size_t best = 0;
        float all;
        while (best + 1 < how->outputs && row[best] < most) {
            best++;
        }
        right += dp_pair_target(&p, best);
        all = exponentials(to, row, most, how->outputs);
        sum += log((double)all) - margin;
        if (to != NULL) {
            slope_row(how, to, &p, all, scale);
        }
    }
    *loss = (float)(sum * (double)scale + (keep != 0 ? (double)*loss : 0));
    *score = (float)(right + (keep != 0 ? (double)*score : 0));
    return DP_OK;
}

/* One row: returns its loss and writes its gradient unless dx is NULL (dx may be x). *right:
 * whether the first of the largest logits is the label. */
DP_HOT static double row_loss(float *dx, const float *x, size_t label, size_t classes, float scale,
                              bool *right)
{
    const float most = largest(x, classes);
    const double margin = (double)x[label] - (double)most; /* 0 or less */
    size_t first = 0;
    float sum;

    while (first < label && x[first] < most) {
        first++;
    }
    *right = first == label && x[label] >= most;
    sum = exponentials(dx, x, most, classes);
    if (dx != NULL) {
        scale_row(dx, scale / sum, classes);
        dx[label] -= scale;
    }
    return log((double)sum) - margin;
}

dp_status dp_cpu_softmax_loss(struct dp_stream *s, void *dx, float *loss, float *correct,
                              const void *x, const int32_t *labels, size_t rows, size_t classes,
                              const float *scale, float keep)
{
    const float *logits = x;
    float *gradient = dx;
    double sum = 0, right = 0;
    (void)s;

    for (size_t r = 0; r < rows; r++) {
        float *to = gradient != NULL ? gradient + r * classes : NULL;
        bool hit;
        assert(labels[r] >= 0 && (size_t)labels[r] < classes);
        sum += row_loss(to, logits + r * classes, (size_t)labels[r], classes, *scale, &hit);
        right += hit ? 1 : 0;
    }
    *loss = (float)(sum * (double)*scale + (keep != 0 ? (double)*loss : 0));
    *correct = (float)(right + (keep != 0 ? (double)*correct : 0));
    return DP_OK;
}
