/*
 * layer_flatten.c - [height, width, channels] to [features]: the same memory with another shape.
 *
 * Features stay in (row, column, channel) order; PyTorch's are (channel, row, column). So tensors
 * of the following layers have `spatial`, and are permuted when files are read and written.
 */
#include "models/layers/layer.h"

static dp_status flatten_plan(void *state, struct dp_layer_plan *plan, char *problem,
                              size_t problem_size)
{
    (void)state;
    (void)problem;
    (void)problem_size;
    plan->out = (struct dp_shape){1, {dp_shape_count(&plan->in)}};
    plan->alias = plan->passes_dy = plan->row_local = plan->skips_x = true;
    return DP_OK;
}

static dp_status flatten_nothing(const void *state, const struct dp_layer_call *c)
{
    (void)state;
    (void)c;
    return DP_OK;
}

const struct dp_layer_type dp_layer_flatten = {
    .plugin = {.name = "flatten", .help = "an image as a row of features"},
    .plan = flatten_plan,
    .forward = flatten_nothing,
    .backward = flatten_nothing,
};
