/*
 * group_norm_ref.c - normalisation of groups: the formulas of kernels/ops.h, in double.
 */
#include <math.h>

#include "kernels/ref/element.h"
#include "kernels/ref/ops_ref.h"

/* One group of one sample. */
struct group {
    const struct dp_group_norm *norm;
    size_t row, group, width; /* channels of a group */
};

static struct group group_at(const struct dp_group_norm *norm, size_t i)
{
    return (struct group){norm, i / norm->groups, i % norm->groups, norm->channels / norm->groups};
}

static size_t elements(const struct group *g)
{
    return g->norm->places * g->width;
}

static size_t channel(const struct group *g, size_t i)
{
    return g->group * g->width + i % g->width;
}

/* Where element i of the group is. */
static size_t place(const struct group *g, size_t i)
{
    return (g->row * g->norm->places + i / g->width) * g->norm->channels + channel(g, i);
}

dp_status dp_ref_group_norm_forward(struct dp_stream *s, void *y, float *saved, const void *x,
                                    const void *gamma, const void *beta,
                                    const struct dp_group_norm *norm)
{
    for (size_t k = 0; k < norm->rows * norm->groups; k++) {
        const struct group g = group_at(norm, k);
        const size_t count = elements(&g);
        double mean = 0, var = 0;
        for (size_t i = 0; i < count; i++) {
            mean += (double)dp_ref_get(s, x, place(&g, i)) / (double)count;
        }
        for (size_t i = 0; i < count; i++) {
            const double from = (double)dp_ref_get(s, x, place(&g, i)) - mean;
            var += from * from / (double)count;
        }
        const double scale = 1 / sqrt(var + (double)norm->eps);
        for (size_t i = 0; i < count; i++) {
            const double hat = ((double)dp_ref_get(s, x, place(&g, i)) - mean) * scale;
            dp_ref_put(s, y, place(&g, i),
                       (float)(hat * (double)dp_ref_get(s, gamma, channel(&g, i)) +
                               (double)dp_ref_get(s, beta, channel(&g, i))));
        }
        if (saved != NULL) {
            saved[2 * k] = (float)mean;
            saved[2 * k + 1] = (float)scale;
        }
    }
    return DP_OK;
}

/* (x - mean) / sqrt(var + eps) of an element. */
static double hat_at(const struct dp_stream *s, const void *x, size_t at, const float *saved)
{
    return ((double)dp_ref_get(s, x, at) - (double)saved[0]) * (double)saved[1];
}

static void affine_gradient(const struct dp_stream *s, float *dgamma, float *dbeta, const void *dy,
                            const void *x, const float *saved, const struct dp_group_norm *norm,
                            float keep)
{
    const size_t width = norm->channels / norm->groups;

    for (size_t c = 0; c < norm->channels; c++) {
        double scale = 0, shift = 0;
        for (size_t i = 0; i < norm->rows * norm->places; i++) {
            const size_t k = i / norm->places * norm->groups + c / width;
            const size_t at = i * norm->channels + c;
            const double g = (double)dp_ref_get(s, dy, at);
            scale += g * hat_at(s, x, at, saved + 2 * k);
            shift += g;
        }
        dgamma[c] = (float)((keep != 0 ? (double)dgamma[c] : 0) + scale);
        dbeta[c] = (float)((keep != 0 ? (double)dbeta[c] : 0) + shift);
    }
}

dp_status dp_ref_group_norm_backward(struct dp_stream *s, void *dx, float *dgamma, float *dbeta,
                                     const void *dy, const void *x, const void *gamma,
                                     const float *saved, const struct dp_group_norm *norm,
                                     float keep)
{
    affine_gradient(s, dgamma, dbeta, dy, x, saved, norm, keep);
    for (size_t k = 0; k < norm->rows * norm->groups && dx != NULL; k++) {
        const struct group g = group_at(norm, k);
        const double count = (double)elements(&g);
        double mean = 0, slope = 0;
        for (size_t i = 0; i < elements(&g); i++) {
            const double own = (double)dp_ref_get(s, dy, place(&g, i)) *
                               (double)dp_ref_get(s, gamma, channel(&g, i));
            mean += own / count;
            slope += own * hat_at(s, x, place(&g, i), saved + 2 * k) / count;
        }
        for (size_t i = 0; i < elements(&g); i++) {
            const double own = (double)dp_ref_get(s, dy, place(&g, i)) *
                               (double)dp_ref_get(s, gamma, channel(&g, i));
            const double hat = hat_at(s, x, place(&g, i), saved + 2 * k);
            dp_ref_put(s, dx, place(&g, i),
                       (float)((own - mean - hat * slope) * (double)saved[2 * k + 1]));
        }
    }
    return DP_OK;
}
