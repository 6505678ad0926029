/*
 * norm_ref.c - batch normalisation: the formulas of kernels/ops.h, one channel after the other.
 *
 * One function computes the value before the activation in float32, for forward and backward: the
 * mask of the relu is then the same to the bit.
 */
#include <math.h>

#include "kernels/ref/element.h"
#include "kernels/ref/ops_ref.h"

/* One channel of a normalisation. */
struct channel {
    double mean, deviation, gamma, beta; /* deviation = sqrt(var + eps) */
    size_t begin, end, step;             /* its elements */
    bool relu;
};

static struct channel channel_at(size_t c, const float *mean, const float *var, const float *gamma,
                                 const float *beta, const struct dp_norm *norm)
{
    return (struct channel){.mean = (double)mean[c],
                            .deviation = sqrt((double)var[c] + (double)norm->eps),
                            .gamma = (double)gamma[c],
                            .beta = (double)beta[c],
                            .begin = c,
                            .end = norm->count * norm->channels,
                            .step = norm->channels,
                            .relu = norm->act == DP_ACT_RELU};
}

static double hat(const struct channel *c, float x)
{
    return ((double)x - c->mean) / c->deviation;
}

static float normalised(const struct channel *c, float x)
{
    return (float)(hat(c, x) * c->gamma + c->beta);
}

/* The gradient after the activation. */
static double masked(const struct channel *c, float dy, float x)
{
    return !c->relu || normalised(c, x) > 0 ? (double)dy : 0;
}

/* Two passes over the new elements, then both parts are merged: Chan, Golub and LeVeque, "Updating
 * formulae and a pairwise algorithm for computing sample variances", 1979, formula 2.1. */
dp_status dp_ref_norm_moments(struct dp_stream *s, double *moments, size_t before, const void *x,
                              const struct dp_norm *norm)
{
    const double old = (double)before, fresh = (double)norm->count;
    for (size_t c = 0; c < norm->channels; c++) {
        double *mean = &moments[c], *squares = &moments[norm->channels + c];
        double sum = 0, center, delta, own = 0;
        for (size_t i = c; i < norm->count * norm->channels; i += norm->channels) {
            sum += (double)dp_ref_get(s, x, i);
        }
        center = norm->count > 0 ? sum / fresh : 0;
        for (size_t i = c; i < norm->count * norm->channels; i += norm->channels) {
            const double off = (double)dp_ref_get(s, x, i) - center;
            own += off * off;
        }
        if (before == 0) {
            *mean = center;
            *squares = own;
        } else if (norm->count > 0) {
            delta = center - *mean;
            *mean += delta * fresh / (old + fresh);
            *squares += own + delta * delta * old * fresh / (old + fresh);
        }
    }
    return DP_OK;
}

dp_status dp_ref_norm_mean(struct dp_stream *s, float *mean, const double *moments, double weight,
                           size_t channels)
{
    (void)s;
    for (size_t i = 0; i < channels; i++) {
        mean[i] = (float)(weight * moments[i]);
    }
    return DP_OK;
}

dp_status dp_ref_norm_variance(struct dp_stream *s, float *var, const double *moments,
                               const float *mean, double n, double each, size_t channels)
{
    (void)s;
    for (size_t i = 0; i < channels; i++) {
        const double off = moments[i] - (double)mean[i];
        var[i] = (float)(each * (moments[channels + i] + n * off * off));
    }
    return DP_OK;
}

dp_status dp_ref_norm_share(struct dp_stream *s, float *y, const float *x, size_t rows,
                            float factor, const struct dp_step_params *step_params, size_t count,
                            float keep)
{
    const float share = (float)rows * step_params->per_sample;

    (void)s;
    for (size_t i = 0; i < count; i++) {
        y[i] = (keep != 0.0f ? y[i] : 0.0f) + share * (factor * x[i]);
    }
    return DP_OK;
}

dp_status dp_ref_norm_grads(struct dp_stream *s, float *dgamma, float *dbeta, float *shared,
                            const double *sums, size_t channels, float keep)
{
    (void)s;
    for (size_t i = 0; i < 2 * channels; i++) {
        float *grad = i < channels ? &dbeta[i] : &dgamma[i - channels];
        shared[i] = (float)sums[i];
        *grad = (keep != 0.0f ? *grad : 0.0f) + shared[i];
    }
    return DP_OK;
}

dp_status dp_ref_norm_widen(struct dp_stream *s, double *y, const float *x, size_t count)
{
    (void)s;
    for (size_t i = 0; i < count; i++) {
        y[i] = (double)x[i];
    }
    return DP_OK;
}

dp_status dp_ref_norm_apply(struct dp_stream *s, void *y, const void *x, const void *add,
                            const float *mean, const float *var, const float *gamma,
                            const float *beta, const struct dp_norm *norm)
{
    for (size_t k = 0; k < norm->channels; k++) {
        const struct channel c = channel_at(k, mean, var, gamma, beta, norm);
        for (size_t i = c.begin; i < c.end; i += c.step) {
            const float own = normalised(&c, dp_ref_get(s, x, i));
            const float v = add != NULL ? own + dp_ref_get(s, add, i) : own;
            dp_ref_put(s, y, i, c.relu && v < 0 ? 0 : v);
        }
    }
    return DP_OK;
}

/* Sums over dy and dy * (x - mean) / sqrt(var + eps), dy masked. */
static void gradient_sums(const struct dp_stream *s, double sums[2], const struct channel *c,
                          const void *dy, const void *x)
{
    sums[0] = sums[1] = 0;
    for (size_t i = c->begin; i < c->end; i += c->step) {
        const float xi = dp_ref_get(s, x, i);
        const double g = masked(c, dp_ref_get(s, dy, i), xi);
        sums[0] += g;
        sums[1] += g * hat(c, xi);
    }
}

/* dx, given those sums over `total` elements; dx may be dy. */
static void gradient_apply(const struct dp_stream *s, void *dx, const struct channel *c,
                           const void *dy, const void *x, const double sums[2], double total)
{
    for (size_t i = c->begin; i < c->end; i += c->step) {
        const float xi = dp_ref_get(s, x, i);
        const double centered = masked(c, dp_ref_get(s, dy, i), xi) - sums[0] / total;
        const double slope = centered - hat(c, xi) * sums[1] / total;
        dp_ref_put(s, dx, i, (float)(c->gamma / c->deviation * slope));
    }
}

dp_status dp_ref_norm_backward_sums(struct dp_stream *s, double *sums, const void *dy,
                                    const void *x, const float *mean, const float *var,
                                    const float *gamma, const float *beta,
                                    const struct dp_norm *norm, float keep)
{
    for (size_t k = 0; k < norm->channels; k++) {
        const struct channel c = channel_at(k, mean, var, gamma, beta, norm);
        double both[2];
        gradient_sums(s, both, &c, dy, x);
        sums[k] = both[0] + (keep != 0 ? sums[k] : 0);
        sums[norm->channels + k] = both[1] + (keep != 0 ? sums[norm->channels + k] : 0);
    }
    return DP_OK;
}

/* NOLINTNEXTLINE(readability-function-size): the parameters are the contract's. */
dp_status dp_ref_norm_backward_apply(struct dp_stream *s, void *dx, const void *dy, const void *x,
                                     const float *mean, const float *var, const float *gamma,
                                     const float *beta, const double *sums, double total,
                                     const struct dp_norm *norm)
{
    for (size_t k = 0; k < norm->channels; k++) {
        const struct channel c = channel_at(k, mean, var, gamma, beta, norm);
        const double both[2] = {sums[k], sums[norm->channels + k]};
        gradient_apply(s, dx, &c, dy, x, both, total);
    }
    return DP_OK;
}
