/*
 * layer_dropout.c - sets elements to 0 with probability `rate` and scales the others.
 *
 * The random numbers are keyed by seed, layer, step and the element's place in the global batch. So
 * they do not depend on the number of ranks, and backward generates the same ones again.
 */
#include "models/layers/layer.h"

#include "base/random.h"

struct dropout {
    double rate;
    size_t features;
};

static dp_status dropout_plan(void *state, struct dp_layer_plan *plan, char *problem,
                              size_t problem_size)
{
    struct dropout *l = state;

    (void)problem;
    (void)problem_size;
    l->features = dp_shape_count(&plan->in);
    plan->out = plan->in;
    plan->y_in_x = plan->dx_in_dy = plan->keeps_order = true;
    plan->row_local = plan->skips_x = true;
    plan->flops = (double)l->features;
    return DP_OK;
}

static dp_status dropout_apply(const struct dropout *l, const struct dp_layer_call *c, void *y,
                               const void *x)
{
    const struct dp_dropout dropout = {c->seed, DP_RANDOM_DROPOUT + (uint32_t)c->index,
                                       (float)l->rate};
    const uint64_t first = (uint64_t)c->first_row * l->features;

    return c->stream->ops->dropout(c->stream, y, x, c->rows * l->features, &dropout, first,
                                   c->step_params);
}

static dp_status dropout_forward(const void *state, const struct dp_layer_call *c)
{
    const struct dropout *l = state;

    if (c->training) {
        return dropout_apply(l, c, c->y, c->x);
    }
    return c->y == c->x
               ? DP_OK
               : c->stream->ops->copy(c->stream, c->y, c->x,
                                      c->rows * l->features * dp_type_bytes(c->stream->type));
}

static dp_status dropout_backward(const void *state, const struct dp_layer_call *c)
{
    return c->dx == NULL ? DP_OK : dropout_apply(state, c, c->dx, c->dy);
}

#define DROPOUT struct dropout

/* clang-format off */
static const struct dp_option dropout_options[] = {
    DP_DOUBLE(DROPOUT, rate, "0.5", 0, 0.999, "probability that an element becomes 0"),
    {0},
};
/* clang-format on */

const struct dp_layer_type dp_layer_dropout = {
    .plugin = {.name = "dropout",
               .help = "zeroes elements at random while training",
               .options = dropout_options,
               .state_bytes = sizeof(struct dropout)},
    .plan = dropout_plan,
    .forward = dropout_forward,
    .backward = dropout_backward,
};
