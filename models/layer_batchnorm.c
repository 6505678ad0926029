/*
 * layer_batchnorm.c - batch normalisation over all but the channels, with scale and shift.
 *
 * params[0] is the scale (weight) [channels], params[1] the shift (bias). In training a rank (or
 * lane, or micro-batch) normalises its own rows; with `sync` all of them normalise the global
 * batch together: the sums cross the ranks in forward and backward. Each pass adds its share of
 * the batch's mean and unbiased variance, by rows, to the tail of the gradient; summed over ranks
 * there, they update the running statistics, which evaluation uses.
 *
 * Source: Ioffe and Szegedy, "Batch normalization", arXiv:1502.03167.
 */
#include "models/layer.h"

#include <string.h>

enum { BATCHNORM_CHANNELS_MAX = 65536 };

struct batchnorm {
    double eps, momentum;
    bool sync;
    size_t channels, places; /* places: elements of a channel in one sample */
};

static dp_status batchnorm_plan(void *state, struct dp_layer_plan *plan, char *problem,
                                size_t problem_size)
{
    struct batchnorm *l = state;
    const size_t channels = plan->in.dim[plan->in.dims - 1];

    if (channels > BATCHNORM_CHANNELS_MAX) {
        return dp_layer_refuse(problem, problem_size, "has %zu channels, more than %d", channels,
                               BATCHNORM_CHANNELS_MAX);
    }
    l->channels = channels;
    l->places = dp_shape_count(&plan->in) / channels;
    dp_layer_param(plan, "weight", 1, &channels, 0)->initial = 1.0f;
    (void)dp_layer_param(plan, "bias", 1, &channels, 0);
    for (int i = 0; i < 2; i++) {
        plan->params[i].spatial = plan->spatial;
        plan->params[i].channels = channels / plan->spatial;
    }
    plan->out = plan->in;
    plan->statistics = 2 * channels;
    plan->local = 4 * channels; /* mean, variance, and two sums of synchronised backward */
    plan->momentum = (float)l->momentum;
    plan->synchronised = l->sync;
    plan->dx_in_dy = plan->fuses_relu = plan->mask_from_x = plan->keeps_order = true;
    plan->flops = 8.0 * (double)dp_shape_count(&plan->in);
    return DP_OK;
}

static struct dp_norm norm_of(const struct batchnorm *l, const struct dp_layer_call *c)
{
    return (struct dp_norm){c->rows * l->places, l->channels, (float)l->eps, c->act};
}

/* Adds this pass's share of the batch statistics to the tail: statistics weighted by rows. The
 * running variance is unbiased, over as many elements as were normalised together. */
static void add_share(const struct batchnorm *l, const struct dp_layer_call *c)
{
    const double rows = (double)(l->sync ? c->batch_rows : c->rows);
    const double n = rows * (double)l->places;
    const float share = (float)c->rows * c->knobs->per_sample;
    const float unbiased = n > 1.0 ? (float)(n / (n - 1.0)) : 1.0f;
    float *mean = c->statistics, *var = c->statistics + l->channels;

    for (size_t i = 0; i < l->channels; i++) {
        mean[i] = (c->keep != 0.0f ? mean[i] : 0.0f) + share * c->local[i];
        var[i] = (c->keep != 0.0f ? var[i] : 0.0f) + share * (unbiased * c->local[l->channels + i]);
    }
}

/* The statistics of the global batch: two sums over ranks, mean first, so that nothing cancels. */
static dp_status sync_statistics(const struct batchnorm *l, const struct dp_layer_call *c,
                                 const struct dp_norm *norm)
{
    const struct dp_ops *ops = c->stream->ops;
    const float each = 1.0f / ((float)c->batch_rows * (float)l->places);
    float *mean = c->local, *var = c->local + l->channels;

    DP_TRY(ops->norm_sums(c->stream, mean, c->x, NULL, norm));
    if (c->hooks->sum != NULL) {
        DP_TRY(c->hooks->sum(c->hooks->context, mean, l->channels));
    }
    for (size_t i = 0; i < l->channels; i++) {
        mean[i] *= each;
    }
    DP_TRY(ops->norm_sums(c->stream, var, c->x, mean, norm));
    if (c->hooks->sum != NULL) {
        DP_TRY(c->hooks->sum(c->hooks->context, var, l->channels));
    }
    for (size_t i = 0; i < l->channels; i++) {
        var[i] *= each;
    }
    return DP_OK;
}

static dp_status batchnorm_forward(const void *state, const struct dp_layer_call *c)
{
    const struct batchnorm *l = state;
    const struct dp_ops *ops = c->stream->ops;
    const struct dp_norm norm = norm_of(l, c);
    const float *gamma = c->weights[0], *beta = c->weights[1];
    float *mean = c->local, *var = c->local + l->channels;

    if (!c->training) {
        return ops->norm_apply(c->stream, c->y, c->x, c->running, c->running + l->channels, gamma,
                               beta, &norm);
    }
    if (l->sync) {
        DP_TRY(sync_statistics(l, c, &norm));
        DP_TRY(ops->norm_apply(c->stream, c->y, c->x, mean, var, gamma, beta, &norm));
    } else {
        DP_TRY(ops->norm_forward(c->stream, c->y, mean, var, c->x, gamma, beta, &norm));
    }
    add_share(l, c);
    return DP_OK;
}

/* By the sums of dy and dy * xhat. dgamma and dbeta are this rank's own share, since the gradient
 * is summed over ranks anyway; dx needs those of everybody who normalised together. */
static dp_status backward_by_sums(const struct batchnorm *l, const struct dp_layer_call *c,
                                  const struct dp_norm *norm)
{
    const struct dp_ops *ops = c->stream->ops;
    const float *gamma = c->weights[0], *beta = c->weights[1];
    const float *mean = c->local, *var = c->local + l->channels;
    float *sums = c->local + 2 * l->channels;
    const double total = (double)c->batch_rows * (double)l->places;

    DP_TRY(ops->norm_backward_sums(c->stream, sums, c->dy, c->x, mean, var, gamma, beta, norm));
    for (size_t i = 0; i < l->channels; i++) {
        c->grads[1][i] = (c->keep != 0.0f ? c->grads[1][i] : 0.0f) + sums[i];
        c->grads[0][i] = (c->keep != 0.0f ? c->grads[0][i] : 0.0f) + sums[l->channels + i];
    }
    if (l->sync && c->hooks->sum != NULL) {
        DP_TRY(c->hooks->sum(c->hooks->context, sums, 2 * l->channels));
    }
    if (c->dx == NULL) {
        return DP_OK;
    }
    return ops->norm_backward_apply(c->stream, c->dx, c->dy, c->x, mean, var, gamma, beta, sums,
                                    total, norm);
}

static dp_status batchnorm_backward(const void *state, const struct dp_layer_call *c)
{
    const struct batchnorm *l = state;
    const struct dp_norm norm = norm_of(l, c);

    if (l->sync || c->dx == NULL) {
        return backward_by_sums(l, c, &norm);
    }
    return c->stream->ops->norm_backward(c->stream, c->dx, c->grads[0], c->grads[1], c->dy, c->x,
                                         c->local, c->local + l->channels, c->weights[0],
                                         c->weights[1], &norm, c->keep);
}

#define BATCHNORM struct batchnorm

/* clang-format off */
static const struct dp_option batchnorm_options[] = {
    DP_DOUBLE(BATCHNORM, eps, "1e-5", 1e-12, 1, "added to the variance"),
    DP_DOUBLE(BATCHNORM, momentum, "0.1", 0, 1, "weight of a batch in the running statistics"),
    DP_SWITCH(BATCHNORM, sync, "false", "normalise over the global batch, not each rank's rows"),
    {0},
};
/* clang-format on */

const struct dp_layer_type dp_layer_batchnorm = {
    .plugin = {.name = "batchnorm",
               .help = "batch normalisation with scale and shift",
               .options = batchnorm_options,
               .state_bytes = sizeof(struct batchnorm)},
    .plan = batchnorm_plan,
    .forward = batchnorm_forward,
    .backward = batchnorm_backward,
};
