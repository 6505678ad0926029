/*
 * layer_silu.c - y = x / (1 + e^-x), also called swish.
 */
#include "models/layers/layer.h"

struct silu {
    size_t features;
};

static dp_status silu_plan(void *state, struct dp_layer_plan *plan, char *problem,
                           size_t problem_size)
{
    struct silu *l = state;

    (void)problem;
    (void)problem_size;
    l->features = dp_shape_count(&plan->in);
    plan->out = plan->in;
    plan->dx_in_dy = plan->keeps_order = plan->row_local = true;
    plan->flops = 6.0 * (double)l->features;
    return DP_OK;
}

static dp_status silu_forward(const void *state, const struct dp_layer_call *c)
{
    const struct silu *l = state;

    return c->stream->ops->silu_forward(c->stream, c->y, c->x, c->rows * l->features);
}

static dp_status silu_backward(const void *state, const struct dp_layer_call *c)
{
    const struct silu *l = state;

    return c->dx == NULL ? DP_OK
                         : c->stream->ops->silu_backward(c->stream, c->dx, c->dy, c->x,
                                                         c->rows * l->features);
}

const struct dp_layer_type dp_layer_silu = {
    .plugin = {.name = "silu",
               .help = "y = x / (1 + e^-x), also called swish",
               .state_bytes = sizeof(struct silu)},
    .plan = silu_plan,
    .forward = silu_forward,
    .backward = silu_backward,
};
