/*
 * layer_leaky_relu.c - y = x where x > 0, else slope x. Source: Maas, Hannun and Ng, "Rectifier
 * nonlinearities improve neural network acoustic models", ICML 2013.
 */
#include "models/layers/layer.h"

struct leaky {
    double slope;
    size_t features;
};

static dp_status leaky_plan(void *state, struct dp_layer_plan *plan, char *problem,
                            size_t problem_size)
{
    struct leaky *l = state;

    (void)problem;
    (void)problem_size;
    l->features = dp_shape_count(&plan->in);
    plan->out = plan->in;
    plan->dx_in_dy = plan->keeps_order = plan->row_local = true;
    plan->flops = 2.0 * (double)l->features;
    return DP_OK;
}

static dp_status leaky_forward(const void *state, const struct dp_layer_call *c)
{
    const struct leaky *l = state;

    return c->stream->ops->leaky_forward(c->stream, c->y, c->x, (float)l->slope,
                                         c->rows * l->features);
}

static dp_status leaky_backward(const void *state, const struct dp_layer_call *c)
{
    const struct leaky *l = state;

    return c->dx == NULL ? DP_OK
                         : c->stream->ops->leaky_backward(c->stream, c->dx, c->dy, c->x,
                                                          (float)l->slope, c->rows * l->features);
}

static const struct dp_option leaky_options[] = {
    DP_DOUBLE(struct leaky, slope, "0.01", 0, 1, "factor of numbers below 0"),
    {0},
};

const struct dp_layer_type dp_layer_leaky_relu = {
    .plugin = {.name = "leaky_relu",
               .help = "y = x where x is above 0, else slope x",
               .options = leaky_options,
               .state_bytes = sizeof(struct leaky)},
    .plan = leaky_plan,
    .forward = leaky_forward,
    .backward = leaky_backward,
};
