/*
 * softmax_ref.c - softmax cross-entropy: the formula of kernels/ops.h, one row after the other.
 */
#include <assert.h>
#include <math.h>

#include "kernels/ref/ops_ref.h"

/* One row: its loss; writes the gradient where dx is wanted (dx may be x); adds to *correct. */
static double row_loss(float *dx, const float *x, size_t label, size_t classes, double scale,
                       double *correct)
{
    size_t best = 0;
    double sum = 1, loss, log_sum, largest; /* 1 is the term of the largest logit */

    assert(label < classes);
    for (size_t c = 1; c < classes; c++) {
        best = x[c] > x[best] ? c : best;
    }
    largest = (double)x[best];
    *correct += best == label ? 1 : 0;
    for (size_t c = 0; c < classes; c++) {
        sum += c != best ? exp((double)x[c] - largest) : 0;
    }
    log_sum = largest + log(sum);
    loss = log_sum - (double)x[label];
    for (size_t c = 0; dx != NULL && c < classes; c++) {
        const double p = exp((double)x[c] - log_sum);
        dx[c] = (float)((p - (c == label ? 1 : 0)) * scale);
    }
    return loss;
}

dp_status dp_ref_softmax_loss(struct dp_stream *s, void *dx, float *loss, float *correct,
                              const void *x, const int32_t *labels, size_t rows, size_t classes,
                              const float *scale, float keep)
{
    const float *xs = x;
    float *dxs = dx;
    double sum = 0, right = 0;
    (void)s;

    for (size_t r = 0; r < rows; r++) {
        sum += row_loss(dxs != NULL ? dxs + r * classes : NULL, xs + r * classes, (size_t)labels[r],
                        classes, (double)*scale, &right);
    }
    *loss = (float)(sum * (double)*scale + (keep != 0 ? (double)*loss : 0));
    *correct = (float)(right + (keep != 0 ? (double)*correct : 0));
    return DP_OK;
}
