/*
 * layer_relu.c - y = max(x, 0). The model fuses it into the previous layer where possible.
 */
#include "models/layers/layer.h"

struct relu {
    size_t features;
};

static dp_status relu_plan(void *state, struct dp_layer_plan *plan, char *problem,
                           size_t problem_size)
{
    struct relu *l = state;

    (void)problem;
    (void)problem_size;
    l->features = dp_shape_count(&plan->in);
    plan->out = plan->in;
    plan->y_in_x = plan->dx_in_dy = plan->reads_y = plan->keeps_order = true;
    plan->row_local = plan->skips_x = true;
    plan->flops = (double)l->features;
    return DP_OK;
}

static dp_status relu_forward(const void *state, const struct dp_layer_call *c)
{
    const struct relu *l = state;

    return c->stream->ops->relu_forward(c->stream, c->y, c->x, c->rows * l->features);
}

static dp_status relu_backward(const void *state, const struct dp_layer_call *c)
{
    const struct relu *l = state;

    return c->dx == NULL ? DP_OK
                         : c->stream->ops->relu_backward(c->stream, c->dx, c->dy, c->y,
                                                         c->rows * l->features);
}

const struct dp_layer_type dp_layer_relu = {
    .plugin = {.name = "relu", .help = "y = max(x, 0)", .state_bytes = sizeof(struct relu)},
    .plan = relu_plan,
    .forward = relu_forward,
    .backward = relu_backward,
};
