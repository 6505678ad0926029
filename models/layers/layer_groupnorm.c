/*
 * layer_groupnorm.c - groupnorm, and layernorm, which has one group: each sample is normalised by
 * itself, so that nothing depends on the batch, nor on how ranks divide it. As PyTorch's.
 *
 * params[0] and [1] are scale and shift [channels]. Sources: kernels/ops.h.
 */
#include "models/layers/layer.h"

struct groupnorm {
    int groups;
    double eps;
    size_t places, channels;
};

/* Scale and shift of `channels`, which have `spatial` places each in a flattened image. */
static void plan_params(struct groupnorm *l, struct dp_layer_plan *plan, size_t spatial)
{
    static const char *const names[] = {"weight", "bias"};

    for (int i = 0; i < 2; i++) {
        struct dp_tensor *param = dp_layer_param(plan, names[i], 1, &l->channels, 0);
        param->initial = i == 0 ? 1.0f : 0.0f;
        param->spatial = spatial;
        param->channels = l->channels / spatial;
    }
    plan->out = plan->in;
    plan->saved_bytes = 2 * (size_t)l->groups * sizeof(float);
    plan->dx_in_dy = plan->keeps_order = true;
    plan->flops = 8.0 * (double)(l->places * l->channels);
}

static dp_status groupnorm_plan(void *state, struct dp_layer_plan *plan, char *problem,
                                size_t problem_size)
{
    struct groupnorm *l = state;

    DP_TRY(dp_layer_wants_image(plan, problem, problem_size));
    l->channels = plan->in.dim[2];
    l->places = plan->in.dim[0] * plan->in.dim[1];
    if (l->channels % (size_t)l->groups != 0) {
        return dp_layer_refuse(problem, problem_size, "%zu channels do not divide into %d groups",
                               l->channels, l->groups);
    }
    plan_params(l, plan, 1);
    return DP_OK;
}

static dp_status layernorm_plan(void *state, struct dp_layer_plan *plan, char *problem,
                                size_t problem_size)
{
    struct groupnorm *l = state;
    char text[96];

    if (plan->in.dims != 1) {
        return dp_layer_refuse(problem, problem_size,
                               "needs [features], but its input is %s: for images use groupnorm "
                               "{groups: 1}",
                               dp_shape_text(&plan->in, text, sizeof(text)));
    }
    l->groups = 1;
    l->places = 1;
    l->channels = plan->in.dim[0];
    plan_params(l, plan, plan->spatial);
    return DP_OK;
}

static struct dp_group_norm norm_of(const struct groupnorm *l, const struct dp_layer_call *c)
{
    return (struct dp_group_norm){.rows = c->rows,
                                  .places = l->places,
                                  .channels = l->channels,
                                  .groups = (size_t)l->groups,
                                  .eps = (float)l->eps};
}

static dp_status groupnorm_forward(const void *state, const struct dp_layer_call *c)
{
    const struct groupnorm *l = state;
    const struct dp_group_norm norm = norm_of(l, c);

    return c->stream->ops->group_norm_forward(c->stream, c->y, c->training ? c->saved : NULL, c->x,
                                              c->weights[0], c->weights[1], &norm);
}

static dp_status groupnorm_backward(const void *state, const struct dp_layer_call *c)
{
    const struct groupnorm *l = state;
    const struct dp_group_norm norm = norm_of(l, c);

    return c->stream->ops->group_norm_backward(c->stream, c->dx, c->grads[0], c->grads[1], c->dy,
                                               c->x, c->weights[0], c->saved, &norm, c->keep);
}

static const struct dp_option groupnorm_options[] = {
    DP_INT(struct groupnorm, groups, NULL, 1, 65536, "of channels, which they divide"),
    DP_DOUBLE(struct groupnorm, eps, "1e-5", 0, 1, "added to the variance"),
    {0},
};

const struct dp_layer_type dp_layer_groupnorm = {
    .plugin = {.name = "groupnorm",
               .help = "normalisation of each image's channels in groups",
               .options = groupnorm_options,
               .state_bytes = sizeof(struct groupnorm)},
    .plan = groupnorm_plan,
    .forward = groupnorm_forward,
    .backward = groupnorm_backward,
};

static const struct dp_option layernorm_options[] = {
    DP_DOUBLE(struct groupnorm, eps, "1e-5", 0, 1, "added to the variance"),
    {0},
};

const struct dp_layer_type dp_layer_layernorm = {
    .plugin = {.name = "layernorm",
               .help = "normalisation of each sample's features",
               .options = layernorm_options,
               .state_bytes = sizeof(struct groupnorm)},
    .plan = layernorm_plan,
    .forward = groupnorm_forward,
    .backward = groupnorm_backward,
};
