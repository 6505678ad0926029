/*
 * softmax_ref.c - softmax cross-entropy: the formula of kernels/ops.h, one row after the other.
 */
#include <assert.h>
#include <math.h>

#include "kernels/ref/element.h"
#include "kernels/ref/ops_ref.h"

/* One row: returns its loss; writes the gradient unless dx is NULL (dx may be x); adds to
 * *correct. */
static double row_loss(const struct dp_stream *s, void *dx, const void *x, size_t label,
                       size_t classes, double scale, double *correct)
{
    size_t best = 0;
    double sum = 1, loss, log_sum, largest; /* 1 is the term of the largest logit */
    float most = dp_ref_get(s, x, 0);

    assert(label < classes);
    for (size_t c = 1; c < classes; c++) {
        const float v = dp_ref_get(s, x, c);
        best = v > most ? c : best;
        most = v > most ? v : most;
    }
    largest = (double)dp_ref_get(s, x, best);
    *correct += best == label ? 1 : 0;
    for (size_t c = 0; c < classes; c++) {
        sum += c != best ? exp((double)dp_ref_get(s, x, c) - largest) : 0;
    }
    log_sum = largest + log(sum);
    loss = log_sum - (double)dp_ref_get(s, x, label);
    for (size_t c = 0; dx != NULL && c < classes; c++) {
        const double p = exp((double)dp_ref_get(s, x, c) - log_sum);
        dp_ref_put(s, dx, c, (float)((p - (c == label ? 1 : 0)) * scale));
    }
    return loss;
}

dp_status dp_ref_softmax_loss(struct dp_stream *s, void *dx, float *loss, float *correct,
                              const void *x, const int32_t *labels, size_t rows, size_t classes,
                              const float *scale, float keep)
{
    double sum = 0, right = 0;

    for (size_t r = 0; r < rows; r++) {
        sum += row_loss(s, dx != NULL ? dp_ref_to(s, dx, r * classes) : NULL,
                        dp_ref_at(s, x, r * classes), (size_t)labels[r], classes, (double)*scale,
                        &right);
    }
    *loss = (float)(sum * (double)*scale + (keep != 0 ? (double)*loss : 0));
    *correct = (float)(right + (keep != 0 ? (double)*correct : 0));
    return DP_OK;
}
