/*
 * layer_concat.c - puts the outputs of several branches beside each other: the channels of images,
 * or features.
 *
 * The model lays out the branches as layers of their own, then for each branch a node that puts its
 * output where it belongs in an array of all channels, with 0 elsewhere, and joins that add these
 * arrays: a sum with 0 is exact. So gradients need no more than a residual's: a join hands dy on as
 * one array, of which each branch takes its channels.
 */
#include "models/layers/layer.h"

struct concat {
    size_t features;
};

static dp_status concat_plan(void *state, struct dp_layer_plan *plan, char *problem,
                             size_t problem_size)
{
    struct concat *l = state;

    (void)problem;
    (void)problem_size;
    l->features = dp_shape_count(&plan->in);
    plan->out = plan->in;
    plan->row_local = plan->skips_x = true;
    plan->y_in_x = plan->dx_in_dy = plan->fuses_relu = true;
    return DP_OK;
}

static dp_status concat_forward(const void *state, const struct dp_layer_call *c)
{
    const struct concat *l = state;

    return c->stream->ops->add_forward(c->stream, c->y, c->x, c->x2, c->rows * l->features, c->act);
}

static dp_status concat_backward(const void *state, const struct dp_layer_call *c)
{
    const struct concat *l = state;

    return dp_layer_hand_on(c, l->features);
}

const struct dp_layer_type dp_layer_concat = {
    .plugin = {.name = "concat",
               .help = "branches side by side: {branches: [[...], []]}; [] is the identity",
               .state_bytes = sizeof(struct concat)},
    .plan = concat_plan,
    .forward = concat_forward,
    .backward = concat_backward,
};

static dp_status branch_plan(void *state, struct dp_layer_plan *plan, char *problem,
                             size_t problem_size)
{
    struct dp_concat_branch *l = state;

    (void)problem;
    (void)problem_size;
    l->places = plan->in.dims == 3 ? plan->in.dim[0] * plan->in.dim[1] : 1;
    plan->out = plan->in;
    plan->out.dim[plan->in.dims - 1] = l->columns.width;
    plan->row_local = plan->skips_x = true;
    return DP_OK;
}

static dp_status branch_forward(const void *state, const struct dp_layer_call *c)
{
    const struct dp_concat_branch *l = state;

    return c->stream->ops->put_columns(c->stream, c->y, c->x, c->rows * l->places, &l->columns);
}

static dp_status branch_backward(const void *state, const struct dp_layer_call *c)
{
    const struct dp_concat_branch *l = state;

    return c->dx == NULL ? DP_OK
                         : c->stream->ops->take_columns(c->stream, c->dx, c->dy,
                                                        c->rows * l->places, &l->columns);
}

const struct dp_layer_type dp_layer_concat_branch = {
    .plugin = {.name = "concat",
               .help = "one branch of it, where it belongs",
               .state_bytes = sizeof(struct dp_concat_branch)},
    .plan = branch_plan,
    .forward = branch_forward,
    .backward = branch_backward,
};
