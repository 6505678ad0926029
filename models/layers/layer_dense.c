/*
 * layer_dense.c - y = x w' + b: params[0] is w [units, in], params[1] is b [units].
 */
#include "models/layers/layer.h"

struct dense {
    int units;
    bool bias;
    size_t in;
};

static dp_status dense_plan(void *state, struct dp_layer_plan *plan, char *problem,
                            size_t problem_size)
{
    struct dense *l = state;
    const size_t shape[2] = {(size_t)l->units, plan->in.dim[0]};
    struct dp_tensor *weight;
    char text[96];

    if (plan->in.dims != 1) {
        return dp_layer_refuse(problem, problem_size,
                               "needs [features], but its input is %s: put a flatten before it",
                               dp_shape_text(&plan->in, text, sizeof(text)));
    }
    l->in = plan->in.dim[0];
    weight = dp_layer_param(plan, "weight", 2, shape, l->in);
    weight->spatial = plan->spatial;
    weight->channels = l->in / plan->spatial;
    if (l->bias) {
        (void)dp_layer_param(plan, "bias", 1, shape, l->in);
    }
    plan->out = (struct dp_shape){1, {(size_t)l->units}};
    plan->fuses_relu = true;
    plan->flops = 2.0 * (double)l->in * l->units;
    return DP_OK;
}

static dp_status dense_prepare(const void *state, struct dp_stream *stream, size_t rows,
                               bool training, bool first, enum dp_activation act)
{
    const struct dense *l = state;
    unsigned uses = DP_DENSE_FORWARD;

    if (training) {
        uses |= DP_DENSE_BACKWARD_WEIGHTS | (first ? 0u : (unsigned)DP_DENSE_BACKWARD_DATA);
    }
    if (l->bias) {
        uses |= DP_DENSE_BIAS;
    }
    if (act == DP_ACT_RELU) {
        uses |= DP_DENSE_RELU;
    }
    return stream->ops->dense_prepare(stream, rows, l->in, (size_t)l->units, uses);
}

/* Layers with 1 MB of weights or more are computed in two parts: the first can start while the
 * weights of the second are still being shared. The parts are always the same, and so are their
 * bits. */
enum { IN_PARTS = 1 << 18, PART_UNITS = 16 };

/* Units of the part that is computed second; 0: there are no parts. */
static size_t second_part(const struct dense *l, const struct dp_layer_call *c)
{
    const size_t out = (size_t)l->units;

    return out * l->in < IN_PARTS || out < (size_t)4 * PART_UNITS ||
                   c->stream->ops->dense_forward_part == NULL
               ? 0
               : (out / DP_DEFERRED_PART / PART_UNITS + 1) * PART_UNITS;
}

/* Whether the first part reads no deferred weights. */
static bool goes_first(const struct dense *l, const struct dp_layer_call *c)
{
    return c->deferred > 0 && c->deferred <= second_part(l, c) * l->in;
}

static dp_status forward_part(const struct dense *l, const struct dp_layer_call *c, size_t first,
                              size_t count)
{
    return c->stream->ops->dense_forward_part(
        c->stream, c->y, c->x, c->weights[0], l->bias ? c->weights[1] : NULL, c->rows, l->in,
        (size_t)l->units, (struct dp_range){first, count}, c->act);
}

static dp_status dense_forward_first(const void *state, const struct dp_layer_call *c)
{
    const struct dense *l = state;
    const size_t second = second_part(l, c);

    return goes_first(l, c) ? forward_part(l, c, second, (size_t)l->units - second) : DP_OK;
}

static dp_status dense_forward(const void *state, const struct dp_layer_call *c)
{
    const struct dense *l = state;
    const size_t second = second_part(l, c);

    if (second == 0) {
        return c->stream->ops->dense_forward(c->stream, c->y, c->x, c->weights[0],
                                             l->bias ? c->weights[1] : NULL, c->rows, l->in,
                                             (size_t)l->units, c->act);
    }
    DP_TRY(goes_first(l, c) ? DP_OK : forward_part(l, c, second, (size_t)l->units - second));
    return forward_part(l, c, 0, second);
}

static bool dense_masks(const void *state, const struct dp_layer_call *c)
{
    const struct dense *l = state;

    return l->bias && c->stream->ops->dense_backward_relu != NULL;
}

static dp_status backward_relu(const struct dense *l, const struct dp_layer_call *c)
{
    const struct dp_dense_backward b = {
        .dy = c->dy,
        .y = c->y,
        .x = c->x,
        .g = c->masked,
        .dw = c->grads[0],
        .db = c->grads[1],
        .rows = c->rows,
        .in = l->in,
        .out = (size_t)l->units,
        .keep = c->keep,
    };

    return c->stream->ops->dense_backward_relu(c->stream, &b);
}

static dp_status dense_backward(const void *state, const struct dp_layer_call *c)
{
    const struct dense *l = state;
    const struct dp_ops *ops = c->stream->ops;
    const size_t in = l->in, out = (size_t)l->units;

    if (c->masked != NULL) {
        return backward_relu(l, c);
    }
    if (l->bias && ops->dense_backward_both != NULL) {
        DP_TRY(ops->dense_backward_both(c->stream, c->grads[0], c->grads[1], c->dy, c->x, c->rows,
                                        in, out, c->keep));
    } else {
        DP_TRY(l->bias ? ops->sum_rows(c->stream, c->grads[1], c->dy, c->rows, out, c->keep)
                       : DP_OK);
        DP_TRY(ops->dense_backward_weights(c->stream, c->grads[0], c->dy, c->x, c->rows, in, out,
                                           c->keep));
    }
    return DP_OK;
}

static dp_status dense_backward_data(const void *state, const struct dp_layer_call *c)
{
    const struct dense *l = state;

    return c->stream->ops->dense_backward_data(c->stream, c->dx, c->dy, c->weights[0], c->rows,
                                               l->in, (size_t)l->units);
}

#define DENSE struct dense

/* clang-format off */
static const struct dp_option dense_options[] = {
    DP_INT(DENSE, units, NULL, 1, 16777216, "outputs"),
    DP_SWITCH(DENSE, bias, "true", "add a bias"),
    {0},
};
/* clang-format on */

const struct dp_layer_type dp_layer_dense = {
    .plugin = {.name = "dense",
               .help = "fully connected: y = x w' + b",
               .options = dense_options,
               .state_bytes = sizeof(struct dense)},
    .plan = dense_plan,
    .prepare = dense_prepare,
    .forward = dense_forward,
    .forward_first = dense_forward_first,
    .backward = dense_backward,
    .backward_data = dense_backward_data,
    .masks = dense_masks,
};
