/*
 * layer_conv2d.c - convolution: params[0] is [filters, kernel, kernel, in / groups] here and
 * [filters, in / groups, kernel, kernel] in PyTorch, params[1] the bias [filters].
 */
#include "models/layers/layer.h"

struct conv2d {
    int filters, kernel, stride, padding, groups;
    bool bias;
    struct dp_window window;
};

static dp_status conv2d_plan(void *state, struct dp_layer_plan *plan, char *problem,
                             size_t problem_size)
{
    struct conv2d *l = state;
    const size_t kernel = (size_t)l->kernel, filters = (size_t)l->filters;
    const size_t groups = (size_t)l->groups;
    struct dp_tensor *weight;

    DP_TRY(dp_layer_window(plan, kernel, (size_t)l->stride, (size_t)l->padding, filters, &l->window,
                           problem, problem_size));
    if (l->window.in_c % groups != 0 || filters % groups != 0) {
        return dp_layer_refuse(problem, problem_size,
                               "%zu channels of the input and %zu filters do not both divide into "
                               "%zu groups",
                               l->window.in_c, filters, groups);
    }
    l->window.groups = groups;
    const size_t in = dp_window_fan(&l->window), fan_in = in * kernel * kernel;
    const size_t shape[4] = {filters, in, kernel, kernel};
    weight = dp_layer_param(plan, "weight", 4, shape, fan_in);
    weight->spatial = kernel * kernel;
    weight->channels = in;
    if (l->bias) {
        (void)dp_layer_param(plan, "bias", 1, shape, fan_in);
    }
    plan->out = (struct dp_shape){3, {l->window.out_h, l->window.out_w, filters}};
    plan->row_local = true;
    plan->fuses_relu = true;
    plan->flops = 2.0 * (double)fan_in * (double)dp_shape_count(&plan->out);
    return DP_OK;
}

static dp_status conv2d_prepare(const void *state, struct dp_stream *stream, size_t rows,
                                bool training, bool first, enum dp_activation act)
{
    const struct conv2d *l = state;
    unsigned uses = DP_CONV_FORWARD;

    if (training) {
        uses |= DP_CONV_BACKWARD_WEIGHTS | (first ? 0u : (unsigned)DP_CONV_BACKWARD_DATA);
    }
    if (l->bias) {
        uses |= DP_CONV_BIAS;
    }
    if (act == DP_ACT_RELU) {
        uses |= DP_CONV_RELU;
    }
    return stream->ops->conv_prepare(stream, &l->window, rows, uses);
}

static dp_status conv2d_forward(const void *state, const struct dp_layer_call *c)
{
    const struct conv2d *l = state;

    return c->stream->ops->conv_forward(c->stream, c->y, c->x, c->weights[0],
                                        l->bias ? c->weights[1] : NULL, &l->window, c->rows,
                                        c->act);
}

static dp_status conv2d_backward(const void *state, const struct dp_layer_call *c)
{
    const struct conv2d *l = state;

    return c->stream->ops->conv_backward_weights(c->stream, c->grads[0],
                                                 l->bias ? c->grads[1] : NULL, c->dy, c->x,
                                                 &l->window, c->rows, c->keep);
}

static dp_status conv2d_backward_data(const void *state, const struct dp_layer_call *c)
{
    const struct conv2d *l = state;

    return c->stream->ops->conv_backward_data(c->stream, c->dx, c->dy, c->weights[0], &l->window,
                                              c->rows);
}

#define CONV2D struct conv2d

/* clang-format off */
static const struct dp_option conv2d_options[] = {
    DP_INT(CONV2D, filters, NULL, 1, 65536, "output channels"),
    DP_INT(CONV2D, kernel, NULL, 1, 255, "height and width of the kernel"),
    DP_INT(CONV2D, stride, "1", 1, 255, "step of the kernel"),
    DP_INT(CONV2D, padding, "0", 0, 255, "zeros around the image"),
    DP_INT(CONV2D, groups, "1", 1, 65536, "of channels, convolved by themselves"),
    DP_SWITCH(CONV2D, bias, "true", "add a bias"),
    {0},
};
/* clang-format on */

const struct dp_layer_type dp_layer_conv2d = {
    .plugin = {.name = "conv2d",
               .help = "two-dimensional convolution (cross-correlation, as PyTorch)",
               .options = conv2d_options,
               .state_bytes = sizeof(struct conv2d)},
    .plan = conv2d_plan,
    .prepare = conv2d_prepare,
    .forward = conv2d_forward,
    .backward = conv2d_backward,
    .backward_data = conv2d_backward_data,
};
