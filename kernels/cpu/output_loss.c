/*
 * output_loss.c - losses of each output by itself, and answers among the best: see kernels/ops.h
 * for the contract.
 *
 * Loops over outputs vectorise: of a class all outputs but one have t = 0. Of log(1 + e) factors
 * are multiplied and one logarithm is taken: each is at most 2, so a double holds a thousand of
 * them, to the last place. Sums are in double and in order, by one thread.
 */
#include <assert.h>
#include <math.h>

#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/pairs.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/device.h"

enum { LANES = 8, FACTORS = 1000 /* of a lane, until their logarithm is taken */ };

/* Sums over outputs. */
struct sums {
    double loss, score;
};

/* Outputs, LANES * FACTORS at most, with targets t, or 0 where t is NULL; the gradient goes to dx
 * unless that is NULL (dx may be x). The score is the number of right ones. */
DP_HOT static struct sums sigmoid_piece(float *dx, const float *x, const float *t, size_t count,
                                        float scale)
{
    double factors[LANES] = {1, 1, 1, 1, 1, 1, 1, 1}, lanes[LANES] = {0};
    struct sums sums = {0, 0};
    int right = 0;

    for (size_t i = 0; i < count; i++) {
        const float v = x[i], e = dp_exp_nonpositive(v < 0 ? v : -v);
        const float target = t != NULL ? t[i] : 0;
        lanes[i % LANES] += (double)(v > 0 ? v : 0) - (double)v * (double)target;
        factors[i % LANES] *= 1 + (double)e;
        right += (v > 0) == (target > 0.5f) ? 1 : 0;
        if (dx != NULL) {
            dx[i] = ((v >= 0 ? 1 : e) / (1 + e) - target) * scale;
        }
    }
    for (size_t j = 0; j < LANES; j++) {
        sums.loss += lanes[j] + log(factors[j]);
    }
    sums.score = (double)right;
    return sums;
}

static struct sums sigmoid_sums(float *dx, const float *x, const float *t, size_t count,
                                float scale)
{
    const size_t most = (size_t)LANES * FACTORS;
    struct sums sums = {0, 0};

    for (size_t at = 0; at < count; at += most) {
        const struct sums piece =
            sigmoid_piece(dx != NULL ? dx + at : NULL, x + at, t != NULL ? t + at : NULL,
                          count - at < most ? count - at : most, scale);
        sums = (struct sums){sums.loss + piece.loss, sums.score + piece.score};
    }
    return sums;
}

/* Likewise, of any number of outputs; the score is the sum of |x - t|. */
DP_HOT static struct sums square_sums(float *dx, const float *x, const float *t, size_t count,
                                      float scale)
{
    double squares[LANES] = {0}, distances[LANES] = {0};
    struct sums sums = {0, 0};

    for (size_t i = 0; i < count; i++) {
        const float off = x[i] - (t != NULL ? t[i] : 0);
        squares[i % LANES] += (double)off * (double)off;
        distances[i % LANES] += (double)fabsf(off);
        if (dx != NULL) {
            dx[i] = 2 * off * scale;
        }
    }
    for (size_t j = 0; j < LANES; j++) {
        sums.loss += squares[j];
        sums.score += distances[j];
    }
    return sums;
}

static struct sums add_outputs(struct sums sums, enum dp_loss_kind kind, float *dx, const float *x,
                               const float *t, size_t count, float scale)
{
    const struct sums more = kind == DP_LOSS_SIGMOID ? sigmoid_sums(dx, x, t, count, scale)
                                                     : square_sums(dx, x, t, count, scale);

    return (struct sums){sums.loss + more.loss, sums.score + more.score};
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

/* A row whose target is a class: the outputs before that of the class, its own, those after it. */
static struct sums class_sums(enum dp_loss_kind kind, float *dx, const float *x, size_t class,
                              size_t outputs, float scale)
{
    const size_t best = largest(x, outputs), after = class + 1; /* dx may be x */
    const float one = 1;
    struct sums sums = {0, 0};

    assert(class < outputs);
    sums = add_outputs(sums, kind, dx, x, NULL, class, scale);
    sums = add_outputs(sums, kind, dx != NULL ? dx + class : NULL, x + class, &one, 1, scale);
    sums = add_outputs(sums, kind, dx != NULL ? dx + after : NULL, x + after, NULL, outputs - after,
                       scale);
    if (kind == DP_LOSS_SIGMOID) {
        sums.score = best == class ? (double)outputs : 0; /* all outputs are one answer */
    }
    return sums;
}

/* A row whose target is a pair: the outputs of both classes, and those before, between, after. */
static struct sums pair_sums(enum dp_loss_kind kind, float *dx, const float *x, const int32_t *pair,
                             size_t outputs, float scale)
{
    const struct dp_pair p = dp_pair_of(pair);
    const size_t best = largest(x, outputs); /* dx may be x */
    const size_t ends[] = {p.first < p.other ? p.first : p.other,
                           p.first < p.other ? p.other : p.first};
    struct sums sums = {0, 0};
    size_t at = 0;

    for (int i = 0; i < 2; i++) {
        const float target = (float)dp_pair_target(&p, ends[i]);
        if (ends[i] < at) {
            break; /* both are one class */
        }
        sums =
            add_outputs(sums, kind, dx != NULL ? dx + at : NULL, x + at, NULL, ends[i] - at, scale);
        at = ends[i];
        sums = add_outputs(sums, kind, dx != NULL ? dx + at : NULL, x + at, &target, 1, scale);
        at++;
    }
    sums = add_outputs(sums, kind, dx != NULL ? dx + at : NULL, x + at, NULL, outputs - at, scale);
    if (kind == DP_LOSS_SIGMOID) {
        sums.score = dp_pair_target(&p, best) * (double)outputs; /* all outputs are one answer */
    }
    return sums;
}

dp_status dp_cpu_output_loss(struct dp_stream *s, const struct dp_output_loss *how, void *dx,
                             float *loss, float *score, const void *x, const void *targets,
                             const float *scale, float keep)
{
    const size_t outputs = how->outputs, count = how->rows * outputs;
    const float each = *scale / (float)outputs;
    const int32_t *classes = targets;
    const float *values = x;
    float *gradient = dx;
    struct sums sums = {0, 0};
    (void)s;

    if (how->kind == DP_LOSS_SOFTMAX) {
        return dp_cpu_softmax_pairs(how, dx, loss, score, x, classes, *scale, keep);
    }
    if (how->targets == DP_TARGET_NUMBERS) {
        sums = add_outputs(sums, how->kind, gradient, values, targets, count, each);
    }
    for (size_t r = 0; how->targets != DP_TARGET_NUMBERS && r < how->rows; r++) {
        float *to = gradient != NULL ? gradient + r * outputs : NULL;
        const float *from = values + r * outputs;
        const struct sums row =
            how->targets == DP_TARGET_PAIRS
                ? pair_sums(how->kind, to, from, classes + r * DP_PAIR_WORDS, outputs, each)
                : class_sums(how->kind, to, from, (size_t)classes[r], outputs, each);
        sums = (struct sums){sums.loss + row.loss, sums.score + row.score};
    }
    *loss = (float)(sums.loss / (double)outputs * (double)*scale + (keep != 0 ? (double)*loss : 0));
    *score = (float)(sums.score / (double)outputs + (keep != 0 ? (double)*score : 0));
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
