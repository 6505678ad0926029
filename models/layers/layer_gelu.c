/*
 * layer_gelu.c - y = x (1 + erf(x / sqrt(2))) / 2, exact as PyTorch's default.
 */
#include "models/layers/layer.h"

struct gelu {
    size_t features;
};

static dp_status gelu_plan(void *state, struct dp_layer_plan *plan, char *problem,
                           size_t problem_size)
{
    struct gelu *l = state;

    (void)problem;
    (void)problem_size;
    l->features = dp_shape_count(&plan->in);
    plan->out = plan->in;
    plan->dx_in_dy = plan->keeps_order = plan->row_local = true;
    plan->flops = 8.0 * (double)l->features;
    return DP_OK;
}

static dp_status gelu_forward(const void *state, const struct dp_layer_call *c)
{
    const struct gelu *l = state;

    return c->stream->ops->gelu_forward(c->stream, c->y, c->x, c->rows * l->features);
}

static dp_status gelu_backward(const void *state, const struct dp_layer_call *c)
{
    const struct gelu *l = state;

    return c->dx == NULL ? DP_OK
                         : c->stream->ops->gelu_backward(c->stream, c->dx, c->dy, c->x,
                                                         c->rows * l->features);
}

const struct dp_layer_type dp_layer_gelu = {
    .plugin = {.name = "gelu",
               .help = "y = x times the normal distribution function of x",
               .state_bytes = sizeof(struct gelu)},
    .plan = gelu_plan,
    .forward = gelu_forward,
    .backward = gelu_backward,
};
