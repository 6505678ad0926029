/*
 * layer_batchnorm.c - batch normalisation over all but the channels, with scale and shift.
 *
 * params[0] is the scale (weight) [channels], params[1] the shift (bias). In training a rank (or
 * lane, or micro-batch) normalises its own rows. With `sync` all of them normalise the global batch
 * together, with small sums over ranks after each half of forward and backward.
 *
 * The layer is two nodes of the model, since all rows are needed twice. `statistics` computes the
 * moments of x while it is still in the cache; after all rows, the layer itself scales and shifts.
 * Backward goes the other way: the layer itself sums the gradient, and after all rows `statistics`
 * computes dx. At the end of a residual's body the join scales, shifts and adds the shortcut in one
 * pass over memory, and the layer itself only sums the gradient; on devices that have an operation
 * for it the join sums it, too, while it undoes its relu.
 *
 * Each pass adds its share of the batch's mean and unbiased variance, by rows, to the tail of the
 * gradient. Their sums over ranks update the running statistics, which evaluation uses.
 *
 * Source: Ioffe and Szegedy, "Batch normalization", arXiv:1502.03167.
 */
#include "models/layers/layer.h"

#include <string.h>

enum { BATCHNORM_CHANNELS_MAX = 65536, SIGNS = 8 /* of a byte */ };

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
    plan->local = 17 * channels; /* in floats: see struct own */
    plan->momentum = (float)l->momentum;
    plan->synchronised = l->sync;
    plan->passes_dy = plan->row_local = plan->fuses_relu = plan->mask_from_x = true;
    plan->keeps_order = true;
    plan->flops = 8.0 * (double)dp_shape_count(&plan->in);
    plan->join_saves = channels % SIGNS == 0 ? dp_shape_count(&plan->in) / SIGNS : 0;
    return DP_OK;
}

/* The contents of `local`. */
struct own {
    float *mean, *var;      /* [channels] */
    float *shared;          /* [2, channels]: sums over ranks */
    double *moments, *sums; /* [2, channels] */
    float *scales;          /* [2, channels]: parameters in float32, as forward read them */
    float *scale, *slopes;  /* [channels], [2, channels]: of struct dp_norm */
    const float *gamma, *beta;
};

/* Whether all that a pass needs of its statistics, and of its gradients' sums, is made at once: of
 * its rows alone, which do not come in tiles, by a device that can. */
static bool is_whole(const void *state, const struct dp_layer_call *c)
{
    const struct batchnorm *l = state;

    return c->stream->ops->norm_statistics != NULL && c->stream->device->tile_bytes == 0 &&
           c->training && !l->sync;
}

/* In another thread's `local`. */
static const double *moments_in(const struct batchnorm *l, const float *local)
{
    return (const double *)(const void *)(local + 4 * l->channels);
}

static struct own own_of(const struct batchnorm *l, const struct dp_layer_call *c)
{
    const bool in_place = c->stream->type == DP_TYPE_F32 && is_whole(l, c);
    struct own own;

    own.mean = c->local;
    own.var = own.mean + l->channels;
    own.shared = own.var + l->channels;
    own.moments = (double *)(void *)(own.shared + 2 * l->channels);
    own.sums = own.moments + 2 * l->channels;
    own.scales = (float *)(void *)(own.sums + 2 * l->channels);
    own.scale = own.scales + 2 * l->channels;
    own.slopes = own.scale + l->channels;
    own.gamma = in_place ? c->weights[0] : own.scales;
    own.beta = in_place ? c->weights[1] : own.scales + l->channels;
    return own;
}

static struct dp_norm norm_of(const struct batchnorm *l, const struct dp_layer_call *c)
{
    const struct own own = own_of(l, c);
    const bool whole = is_whole(l, c);

    return (struct dp_norm){.count = c->rows * l->places,
                            .channels = l->channels,
                            .eps = (float)l->eps,
                            .act = c->act,
                            .scale = whole ? own.scale : NULL,
                            .slopes = whole ? own.slopes : NULL};
}

/* The number of elements of a channel that are normalised together. */
static double together(const struct batchnorm *l, const struct dp_layer_call *c)
{
    return (double)(l->sync ? c->batch_rows : c->pass_rows) * (double)l->places;
}

/* Sums over all ranks that normalise together. */
static dp_status sum_over_ranks(const struct batchnorm *l, const struct dp_layer_call *c,
                                float *data, size_t count)
{
    return l->sync && c->hooks->sum != NULL ? c->hooks->sum(c->hooks->context, data, count) : DP_OK;
}

/* ---- statistics: inserted before the layer itself ---- */

static dp_status statistics_plan(void *state, struct dp_layer_plan *plan, char *problem,
                                 size_t problem_size)
{
    const struct batchnorm *l = state;

    (void)problem;
    (void)problem_size;
    plan->out = plan->in;
    plan->synchronised = l->sync;
    plan->alias = plan->dx_in_dy = plan->row_local = plan->gathers = plan->keeps_order = true;
    return DP_OK;
}

/* The factor that makes a biased variance unbiased, over the number of elements that were
 * normalised together. */
static float unbiased(const struct batchnorm *l, const struct dp_layer_call *c)
{
    const double n = together(l, c);

    return n > 1.0 ? (float)(n / (n - 1.0)) : 1.0f;
}

static dp_status whole_statistics(const struct batchnorm *l, const struct dp_layer_call *c,
                                  const struct dp_norm *norm)
{
    const struct own own = own_of(l, c);
    const bool narrow = c->stream->type != DP_TYPE_F32;
    const struct dp_norm_statistics to = {
        .mean = own.mean,
        .var = own.var,
        .scale = own.scale,
        .weights = {c->weights[0], c->weights[1]},
        .wide = {narrow ? own.scales : NULL, narrow ? own.scales + l->channels : NULL},
        .shares = c->statistics,
        .rows = c->rows,
        .unbiased = unbiased(l, c),
        .keep = c->keep,
        .step_params = c->step_params,
    };

    return c->stream->ops->norm_statistics(c->stream, &to, c->x, norm);
}

static dp_status statistics_forward(const void *state, const struct dp_layer_call *c)
{
    const struct batchnorm *l = state;
    const struct dp_norm norm = norm_of(l, c);

    if (!c->training || is_whole(l, c)) {
        return c->training ? whole_statistics(l, c, &norm) : DP_OK;
    }
    return c->stream->ops->norm_moments(c->stream, own_of(l, c).moments, c->rows_before * l->places,
                                        c->x, &norm);
}

/* Chan, Golub and LeVeque: see norm_moments(). */
static dp_status statistics_merge(const void *state, const struct dp_layer_call *c,
                                  const float *from)
{
    const struct batchnorm *l = state;
    double *mean = own_of(l, c).moments, *squares = mean + l->channels;
    const double *mean2 = moments_in(l, from), *squares2 = mean2 + l->channels;
    const double before = (double)c->rows_before, rows = (double)c->rows, all = before + rows;

    for (size_t i = 0; c->training && i < l->channels; i++) {
        const double delta = mean2[i] - mean[i];
        mean[i] += delta * (rows / all);
        squares[i] += squares2[i] + delta * delta * (double)l->places * (before * rows / all);
    }
    return DP_OK;
}

/* Adds this pass's share of the batch statistics to the tail: statistics weighted by rows. The
 * running variance is unbiased. */
static dp_status add_share(const struct batchnorm *l, const struct dp_layer_call *c,
                           const struct own *own)
{
    const struct dp_ops *ops = c->stream->ops;

    DP_TRY(ops->norm_share(c->stream, c->statistics, own->mean, c->rows, 1.0f, c->step_params,
                           l->channels, c->keep));
    return ops->norm_share(c->stream, c->statistics + l->channels, own->var, c->rows,
                           unbiased(l, c), c->step_params, l->channels, c->keep);
}

/* Computes the statistics of all that is normalised together from the moments of this pass's rows.
 * Two sums over ranks, the mean first, which avoids cancellation. */
static dp_status statistics_forward_end(const void *state, const struct dp_layer_call *c)
{
    const struct batchnorm *l = state;
    const struct own own = own_of(l, c);
    const double n = (double)c->rows * (double)l->places, all = together(l, c);
    const double each = all > 0.0 ? 1.0 / all : 0.0;
    const struct dp_ops *ops = c->stream->ops;

    if (!c->training || is_whole(l, c)) {
        return DP_OK;
    }
    DP_TRY(ops->norm_mean(c->stream, own.mean, own.moments, n * each, l->channels));
    DP_TRY(sum_over_ranks(l, c, own.mean, l->channels));
    DP_TRY(ops->norm_variance(c->stream, own.var, own.moments, own.mean, n, each, l->channels));
    DP_TRY(sum_over_ranks(l, c, own.var, l->channels));
    return add_share(l, c, &own);
}

static dp_status statistics_backward(const void *state, const struct dp_layer_call *c)
{
    const struct batchnorm *l = state;
    const struct dp_norm norm = norm_of(l, c);
    const struct own own = own_of(l, c);

    if (c->dx == NULL) {
        return DP_OK;
    }
    return c->stream->ops->norm_backward_apply(c->stream, c->dx, c->dy, c->x, own.mean, own.var,
                                               own.gamma, own.beta, own.sums, together(l, c),
                                               &norm);
}

static const struct dp_layer_type statistics = {
    .plugin = {.name = "statistics", .help = "of a batch normalisation"},
    .plan = statistics_plan,
    .forward = statistics_forward,
    .merge = statistics_merge,
    .forward_end = statistics_forward_end,
    .backward = statistics_backward,
};

/* ---- the layer itself ---- */

/* Operations need scale and shift in float32. Backward reads what forward has copied: where ranks
 * share one copy of the weights, another rank may update them once all ranks have announced their
 * gradients, which is before `statistics` computes dx. */
static dp_status copy_scales(const struct batchnorm *l, const struct dp_layer_call *c,
                             const struct own *own)
{
    const enum dp_type type = c->stream->type;

    for (size_t i = 0; i < 2; i++) {
        float *to = own->scales + i * l->channels;
        DP_TRY(type == DP_TYPE_F32
                   ? c->stream->ops->copy(c->stream, to, c->weights[i], l->channels * sizeof(*to))
                   : c->stream->ops->widen(c->stream, to, c->weights[i], l->channels, type));
    }
    return DP_OK;
}

/* Of the join, which keeps the signs of its y where backward can read these instead: a bit for two
 * bytes. */
static struct dp_norm norm_of_join(const struct batchnorm *l, const struct dp_layer_call *c)
{
    struct dp_norm norm = norm_of(l, c);

    if (is_whole(l, c) && c->stream->type != DP_TYPE_F32 && l->channels % SIGNS == 0 &&
        c->act == DP_ACT_RELU) {
        norm.signs = c->saved;
    }
    return norm;
}

static dp_status apply(const struct batchnorm *l, const struct dp_layer_call *c,
                       const struct dp_norm *norm)
{
    const struct own own = own_of(l, c);

    return c->stream->ops->norm_apply(
        c->stream, c->y, c->x, c->x2, c->training ? own.mean : c->running,
        c->training ? own.var : c->running + l->channels, own.gamma, own.beta, norm);
}

/* Scales and shifts x, and adds x2, for the join of a residual. */
static dp_status joined_forward(const void *state, const struct dp_layer_call *c)
{
    const struct dp_norm norm = norm_of_join(state, c);

    return apply(state, c, &norm);
}

/* The part of the above that runs once a pass, before it. */
static dp_status deferred_forward(const void *state, const struct dp_layer_call *c)
{
    const struct batchnorm *l = state;
    const struct own own = own_of(l, c);

    return c->rows_before > 0 || is_whole(l, c) ? DP_OK : copy_scales(l, c, &own);
}

static dp_status batchnorm_forward(const void *state, const struct dp_layer_call *c)
{
    const struct dp_norm norm = norm_of(state, c);

    DP_TRY(deferred_forward(state, c));
    return apply(state, c, &norm);
}

/* join: whether it sums for the join, which is c then: dy and dy2 there, masked where act says. */
static dp_status whole_backward(const struct batchnorm *l, const struct dp_layer_call *c, bool join)
{
    const struct dp_norm norm = join ? norm_of_join(l, c) : norm_of(l, c);
    const struct own own = own_of(l, c);
    const struct dp_norm_backward b = {
        .dy = c->dy,
        .x = c->x,
        .dy2 = join ? c->dy2 : NULL,
        .y = join && c->act == DP_ACT_RELU ? c->y : NULL,
        .g = join ? c->dx : NULL,
        .mean = own.mean,
        .var = own.var,
        .gamma = own.gamma,
        .beta = own.beta,
        .dgamma = c->grads[0],
        .dbeta = c->grads[1],
        .slopes = own.slopes,
        .total = together(l, c),
        .keep = c->keep,
    };

    return c->stream->ops->norm_backward(c->stream, &b, &norm);
}

static dp_status batchnorm_backward(const void *state, const struct dp_layer_call *c)
{
    const struct batchnorm *l = state;
    const struct dp_norm norm = norm_of(l, c);
    const struct own own = own_of(l, c);

    if (is_whole(l, c)) {
        return whole_backward(l, c, false);
    }
    return c->stream->ops->norm_backward_sums(c->stream, own.sums, c->dy, c->x, own.mean, own.var,
                                              own.gamma, own.beta, &norm,
                                              c->rows_before > 0 ? 1.0f : 0.0f);
}

static dp_status batchnorm_merge(const void *state, const struct dp_layer_call *c,
                                 const float *from)
{
    const struct batchnorm *l = state;
    double *sums = own_of(l, c).sums;
    const double *others = moments_in(l, from) + 2 * l->channels;

    for (size_t i = 0; i < 2 * l->channels; i++) {
        sums[i] += others[i];
    }
    return DP_OK;
}

/* dgamma and dbeta are this rank's own share, since the gradient is summed over ranks later. dx
 * needs the sums over all ranks that normalised together. */
static dp_status batchnorm_backward_end(const void *state, const struct dp_layer_call *c)
{
    const struct batchnorm *l = state;
    const struct own own = own_of(l, c);

    if (is_whole(l, c)) {
        return DP_OK;
    }
    DP_TRY(c->stream->ops->norm_grads(c->stream, c->grads[0], c->grads[1], own.shared, own.sums,
                                      l->channels, c->keep));
    if (!l->sync || c->hooks->sum == NULL) {
        return DP_OK;
    }
    DP_TRY(sum_over_ranks(l, c, own.shared, 2 * l->channels));
    return c->stream->ops->norm_widen(c->stream, own.sums, own.shared, 2 * l->channels);
}

/* ---- at the end of a residual's body ---- */

/* Nothing is left to sum where the join has. */
static dp_status deferred_backward(const void *state, const struct dp_layer_call *c)
{
    return is_whole(state, c) ? DP_OK : batchnorm_backward(state, c);
}

static const struct dp_layer_type deferred = {
    .plugin = {.name = "batchnorm", .help = "whose scaling the join does"},
    .plan = batchnorm_plan,
    .forward = deferred_forward,
    .backward = deferred_backward,
    .merge = batchnorm_merge,
    .backward_end = batchnorm_backward_end,
};

static dp_status joined_backward(const void *state, const struct dp_layer_call *c)
{
    const struct batchnorm *l = state;

    return dp_layer_hand_on(c, l->channels * l->places);
}

static dp_status joined_backward_whole(const void *state, const struct dp_layer_call *c)
{
    return whole_backward(state, c, true);
}

static const struct dp_layer_type joined = {
    .plugin = {.name = "residual", .help = "y = batchnorm(x) + shortcut"},
    .plan = batchnorm_plan,
    .forward = joined_forward,
    .backward = joined_backward,
    .is_whole = is_whole,
    .backward_whole = joined_backward_whole,
};

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
    .merge = batchnorm_merge,
    .backward_end = batchnorm_backward_end,
    .before = &statistics,
    .deferred = &deferred,
    .joined = &joined,
};
