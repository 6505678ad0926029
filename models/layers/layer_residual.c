/*
 * layer_residual.c - where a residual's two branches join: y = body + shortcut.
 *
 * The model lays out body and shortcut as layers of their own; this is the join after them. x comes
 * from the body, x2 from the shortcut. Both get dy back, as one array. After a body that ends in
 * batch norm, a type of that layer takes this one's place: see dp_layer_type.joined.
 *
 * Source: He, Zhang, Ren and Sun, "Deep residual learning", arXiv:1512.03385, section 3.2.
 */
#include "models/layers/layer.h"

struct residual {
    size_t features;
};

static dp_status residual_plan(void *state, struct dp_layer_plan *plan, char *problem,
                               size_t problem_size)
{
    struct residual *l = state;

    (void)problem;
    (void)problem_size;
    l->features = dp_shape_count(&plan->in);
    plan->out = plan->in;
    plan->row_local = plan->skips_x = true;
    plan->y_in_x = plan->dx_in_dy = plan->fuses_relu = plan->keeps_order = true;
    plan->flops = (double)l->features;
    return DP_OK;
}

static dp_status residual_forward(const void *state, const struct dp_layer_call *c)
{
    const struct residual *l = state;

    return c->stream->ops->add_forward(c->stream, c->y, c->x, c->x2, c->rows * l->features, c->act);
}

static dp_status residual_backward(const void *state, const struct dp_layer_call *c)
{
    const struct residual *l = state;

    return dp_layer_hand_on(c, l->features);
}

const struct dp_layer_type dp_layer_residual = {
    .plugin = {.name = "residual",
               .help = "y = body(x) + shortcut(x); an empty shortcut is the identity",
               .state_bytes = sizeof(struct residual)},
    .plan = residual_plan,
    .forward = residual_forward,
    .backward = residual_backward,
};
