/*
 * layer_maxpool.c - the maximum of each window; `saved` holds the position of that element.
 */
#include "models/layers/layer.h"

struct maxpool {
    int size, stride, padding;
    struct dp_window window;
};

static dp_status maxpool_plan(void *state, struct dp_layer_plan *plan, char *problem,
                              size_t problem_size)
{
    struct maxpool *l = state;
    const int stride = l->stride == 0 ? l->size : l->stride;

    if (2 * l->padding > l->size) {
        return dp_layer_refuse(problem, problem_size,
                               "padding %d is more than half of the window's size %d", l->padding,
                               l->size);
    }
    if (l->size * l->size > 255) {
        return dp_layer_refuse(problem, problem_size, "size %d is more than 15", l->size);
    }
    DP_TRY(dp_layer_window(plan, (size_t)l->size, (size_t)stride, (size_t)l->padding, 0, &l->window,
                           problem, problem_size));
    plan->out = (struct dp_shape){3, {l->window.out_h, l->window.out_w, l->window.out_c}};
    plan->saved_bytes = dp_shape_count(&plan->out);
    plan->row_local = plan->skips_x = true;
    plan->flops = (double)plan->saved_bytes * l->size * l->size;
    return DP_OK;
}

static dp_status maxpool_prepare(const void *state, struct dp_stream *stream, size_t rows,
                                 bool training, bool first, enum dp_activation act)
{
    const struct maxpool *l = state;

    (void)first;
    (void)act;
    return stream->ops->pool_prepare(stream, &l->window, rows, DP_POOL_MAX, training);
}

static dp_status maxpool_forward(const void *state, const struct dp_layer_call *c)
{
    const struct maxpool *l = state;

    return c->stream->ops->pool_forward(c->stream, c->y, c->training ? c->saved : NULL, c->x,
                                        &l->window, c->rows, DP_POOL_MAX);
}

static dp_status maxpool_backward(const void *state, const struct dp_layer_call *c)
{
    const struct maxpool *l = state;

    return c->dx == NULL ? DP_OK
                         : c->stream->ops->pool_backward(c->stream, c->dx, c->dy, c->saved,
                                                         &l->window, c->rows, DP_POOL_MAX);
}

#define MAXPOOL struct maxpool

/* clang-format off */
static const struct dp_option maxpool_options[] = {
    DP_INT(MAXPOOL, size, NULL, 1, 15, "height and width of the window"),
    DP_INT(MAXPOOL, stride, "0", 0, 255, "step of the window; 0: its size"),
    DP_INT(MAXPOOL, padding, "0", 0, 7, "minus infinity around the image"),
    {0},
};
/* clang-format on */

const struct dp_layer_type dp_layer_maxpool = {
    .plugin = {.name = "maxpool",
               .help = "maximum of each window",
               .options = maxpool_options,
               .state_bytes = sizeof(struct maxpool)},
    .plan = maxpool_plan,
    .prepare = maxpool_prepare,
    .forward = maxpool_forward,
    .backward = maxpool_backward,
};
