/*
 * gpu_convs.h - the convolutions that bench_gpu measures one by one: those of models/resnet50.cfg.
 */
#ifndef DP_BENCHMARKS_GPU_CONVS_H
#define DP_BENCHMARKS_GPU_CONVS_H

#include "benchmarks/gpu_passes.h"

enum conv_kind { CONV_FORWARD, CONV_BACKWARD_DATA, CONV_BACKWARD_WEIGHTS, CONV_KINDS };

static const char *const conv_names[] = {"forward", "backward data", "backward weights"};

struct conv_shape {
    size_t side, in_c, out_c, kernel, stride, padding;
};

static const struct conv_shape conv_shapes[] = {
    {224, 3, 64, 7, 2, 3},    {56, 64, 64, 1, 1, 0},     {56, 64, 64, 3, 1, 1},
    {56, 64, 256, 1, 1, 0},   {56, 256, 64, 1, 1, 0},    {56, 256, 128, 1, 1, 0},
    {56, 128, 128, 3, 2, 1},  {56, 256, 512, 1, 2, 0},   {28, 128, 512, 1, 1, 0},
    {28, 512, 128, 1, 1, 0},  {28, 128, 128, 3, 1, 1},   {28, 512, 256, 1, 1, 0},
    {28, 256, 256, 3, 2, 1},  {28, 512, 1024, 1, 2, 0},  {14, 256, 1024, 1, 1, 0},
    {14, 1024, 256, 1, 1, 0}, {14, 256, 256, 3, 1, 1},   {14, 1024, 512, 1, 1, 0},
    {14, 512, 512, 3, 2, 1},  {14, 1024, 2048, 1, 2, 0}, {7, 512, 2048, 1, 1, 0},
    {7, 2048, 512, 1, 1, 0},  {7, 512, 512, 3, 1, 1},
};

/* To try the program. */
static const struct conv_shape small_conv_shapes[] = {{8, 3, 8, 3, 2, 1}, {8, 8, 16, 1, 1, 0}};

struct conv {
    enum conv_kind kind;
    struct dp_window window;
    size_t rows;
};

static struct dp_window window_of(const struct conv_shape *shape)
{
    const size_t out = (shape->side + 2 * shape->padding - shape->kernel) / shape->stride + 1;

    return (struct dp_window){
        shape->side,   shape->side,   shape->in_c,    out, out, shape->out_c, shape->kernel,
        shape->kernel, shape->stride, shape->padding, 1};
}

static dp_status run_conv(struct bench *b, const void *what)
{
    const struct conv *conv = (const struct conv *)what;
    const struct dp_ops *ops = b->s->ops;

    switch (conv->kind) {
    case CONV_FORWARD:
        return ops->conv_forward(b->s, b->a, b->b, b->c, NULL, &conv->window, conv->rows,
                                 DP_ACT_NONE);
    case CONV_BACKWARD_DATA:
        return ops->conv_backward_data(b->s, b->a, b->b, b->c, &conv->window, conv->rows);
    default:
        return ops->conv_backward_weights(b->s, b->a, NULL, b->b, b->c, &conv->window, conv->rows,
                                          0.0f);
    }
}

/* A multiplication and an addition for each weight and place of the output. */
static double conv_flops(const struct conv *conv)
{
    const struct dp_window *w = &conv->window;

    return 2.0 * (double)(conv->rows * w->out_h * w->out_w * w->out_c) *
           (double)(w->kernel_h * w->kernel_w * w->in_c);
}

#endif
