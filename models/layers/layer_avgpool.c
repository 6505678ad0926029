/*
 * layer_avgpool.c - the mean of each window (padding counts), and of a whole image.
 */
#include "models/layers/layer.h"

#include <string.h>

struct avgpool {
    int size, stride, padding; /* not used by global_avgpool */
    struct dp_window window;
};

static void avgpool_out(const struct avgpool *l, struct dp_layer_plan *plan)
{
    const struct dp_window *w = &l->window;

    plan->out = (struct dp_shape){3, {w->out_h, w->out_w, w->out_c}};
    plan->row_local = plan->skips_x = true;
    plan->flops = (double)dp_shape_count(&plan->out) * (double)(w->kernel_h * w->kernel_w);
}

static dp_status avgpool_plan(void *state, struct dp_layer_plan *plan, char *problem,
                              size_t problem_size)
{
    struct avgpool *l = state;
    const int stride = l->stride == 0 ? l->size : l->stride;

    if (2 * l->padding > l->size) {
        return dp_layer_refuse(problem, problem_size,
                               "padding %d is more than half of the window's size %d", l->padding,
                               l->size);
    }
    DP_TRY(dp_layer_window(plan, (size_t)l->size, (size_t)stride, (size_t)l->padding, 0, &l->window,
                           problem, problem_size));
    avgpool_out(l, plan);
    return DP_OK;
}

/* The window is the image. The output is [channels], as PyTorch's AdaptiveAvgPool2d(1) followed by
 * a flatten; a flatten that follows here changes nothing. */
static dp_status global_plan(void *state, struct dp_layer_plan *plan, char *problem,
                             size_t problem_size)
{
    struct avgpool *l = state;
    struct dp_window *w = &l->window;

    DP_TRY(dp_layer_wants_image(plan, problem, problem_size));
    memset(w, 0, sizeof(*w));
    w->in_h = w->kernel_h = plan->in.dim[0];
    w->in_w = w->kernel_w = plan->in.dim[1];
    w->in_c = w->out_c = plan->in.dim[2];
    w->out_h = w->out_w = w->stride = 1;
    avgpool_out(l, plan);
    plan->out = (struct dp_shape){1, {w->out_c}};
    return DP_OK;
}

static dp_status avgpool_prepare(const void *state, struct dp_stream *stream, size_t rows,
                                 bool training, bool first, enum dp_activation act)
{
    const struct avgpool *l = state;

    (void)first;
    (void)act;
    return stream->ops->pool_prepare(stream, &l->window, rows, DP_POOL_AVERAGE, training);
}

static dp_status avgpool_forward(const void *state, const struct dp_layer_call *c)
{
    const struct avgpool *l = state;

    return c->stream->ops->pool_forward(c->stream, c->y, NULL, c->x, &l->window, c->rows,
                                        DP_POOL_AVERAGE);
}

static dp_status avgpool_backward(const void *state, const struct dp_layer_call *c)
{
    const struct avgpool *l = state;

    return c->dx == NULL ? DP_OK
                         : c->stream->ops->pool_backward(c->stream, c->dx, c->dy, NULL, &l->window,
                                                         c->rows, DP_POOL_AVERAGE);
}

#define AVGPOOL struct avgpool

/* clang-format off */
static const struct dp_option avgpool_options[] = {
    DP_INT(AVGPOOL, size, NULL, 1, 255, "height and width of the window"),
    DP_INT(AVGPOOL, stride, "0", 0, 255, "step of the window; 0: its size"),
    DP_INT(AVGPOOL, padding, "0", 0, 127, "zeros around the image; they count"),
    {0},
};
/* clang-format on */

const struct dp_layer_type dp_layer_avgpool = {
    .plugin = {.name = "avgpool",
               .help = "mean of each window",
               .options = avgpool_options,
               .state_bytes = sizeof(struct avgpool)},
    .plan = avgpool_plan,
    .prepare = avgpool_prepare,
    .forward = avgpool_forward,
    .backward = avgpool_backward,
};

const struct dp_layer_type dp_layer_global_avgpool = {
    .plugin = {.name = "global_avgpool",
               .help = "mean of each channel",
               .state_bytes = sizeof(struct avgpool)},
    .plan = global_plan,
    .prepare = avgpool_prepare,
    .forward = avgpool_forward,
    .backward = avgpool_backward,
};
