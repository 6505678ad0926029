/*
 * gpu_passes.h - the passes over memory that bench_gpu measures: float32 if the name says so, else
 * bf16.
 */
#ifndef DP_BENCHMARKS_GPU_PASSES_H
#define DP_BENCHMARKS_GPU_PASSES_H

#include <cublasLt.h>

#include "kernels/device.h"

/* Images have PLACES places. */
enum { CHANNELS = 256, CLASSES = 1024, PLACES = 16 * 16 };

struct bench {
    struct dp_stream *s;
    struct dp_algo_choices *algo_choices; /* of the stream */
    size_t count;                         /* elements of each array */
    float *a, *b, *c, *d, *e;
    float *ones;     /* [CLASSES]: statistics, scales */
    double *sums;    /* [2 CHANNELS] */
    uint8_t *labels; /* [count / CLASSES] int32_t, all 0 */
    struct dp_step_params *step_params;
    void *workspace; /* of DP_CUDA_WORKSPACE bytes */
    cublasLtHandle_t handle;
    double copy_rate; /* GB/s, read and written */
    double peak_rate; /* TFLOP/s, the best product */
};

/* Something to time: run(bench, what). */
typedef dp_status measured(struct bench *b, const void *what);

struct pass {
    const char *name;
    measured *run;
    double bytes; /* of an element */
};

/* As in models/resnet50.cfg: the first one, and the last one, over a whole image. */
static const struct dp_window first_pool = {16, 16, CHANNELS, 8, 8, CHANNELS, 3, 3, 2, 1, 0};
static const struct dp_window last_pool = {16, 16, CHANNELS, 1, 1, CHANNELS, 16, 16, 16, 0, 0};

/* With factors, as in training. */
static struct dp_norm norm_of(const struct bench *b)
{
    return (struct dp_norm){.count = b->count / CHANNELS,
                            .channels = CHANNELS,
                            .eps = 1e-5f,
                            .act = DP_ACT_RELU,
                            .scale = b->ones,
                            .slopes = b->ones};
}

static struct dp_update update_of(const struct bench *b)
{
    return (struct dp_update){.master = b->a,
                              .weights = b->b,
                              .grad = b->c,
                              .slots = {b->d, b->e},
                              .count = b->count,
                              .step_params = b->step_params};
}

#define PASS(name, ...)                                           \
    static dp_status name(struct bench *b, const void *what)      \
    {                                                             \
        const struct dp_ops *ops = b->s->ops;                     \
        const struct dp_norm norm = norm_of(b);                   \
        const struct dp_update u = update_of(b);                  \
        const struct dp_dropout drop = {.seed = 1, .rate = 0.5f}; \
        (void)what;                                               \
        (void)norm;                                               \
        (void)u;                                                  \
        (void)drop;                                               \
        return ops->__VA_ARGS__;                                  \
    }

static dp_status sum_of_4(struct bench *b, const void *what)
{
    const float *const xs[] = {b->b, b->c, b->d, b->e};

    (void)what;
    return b->s->ops->sum_tree(b->s, &b->a, 1, xs, 4, b->count);
}

/* Where the branches of a residual join. */
static dp_status norm_join(struct bench *b, const void *what)
{
    float *small = (float *)(void *)b->sums;
    const struct dp_norm norm = norm_of(b);
    const struct dp_norm_backward all = {.dy = b->b,
                                         .x = b->e,
                                         .dy2 = b->c,
                                         .y = b->d,
                                         .g = b->a,
                                         .mean = b->ones,
                                         .var = b->ones,
                                         .gamma = b->ones,
                                         .beta = b->ones,
                                         .dgamma = small,
                                         .dbeta = small + CHANNELS,
                                         .slopes = small + (ptrdiff_t)2 * CHANNELS,
                                         .total = (double)norm.count};

    (void)what;
    return b->s->ops->norm_backward(b->s, &all, &norm);
}

/* clang-format off */
PASS(copy, copy(b->s, b->a, b->b, b->count * sizeof(float)))
PASS(add, add(b->s, b->a, b->b, b->count))
PASS(squares, block_squares(b->s, b->e, b->b, b->count))
PASS(narrow, narrow(b->s, (uint16_t *)(void *)b->a, b->b, b->count, DP_TYPE_BF16))
PASS(widen, widen(b->s, b->a, (const uint16_t *)(const void *)b->b, b->count, DP_TYPE_BF16))
PASS(bytes_load, bytes_load(b->s, b->a, (const uint8_t *)b->b, b->ones, b->ones, 3,
                            b->count / 3 * 3))
PASS(sgd, sgd(b->s, &u, 0.9f, false, 1e-4f))
PASS(adamw, adamw(b->s, &u, 0.9, 0.999, 1e-8f, 1e-2f))
PASS(relu, relu_forward(b->s, b->a, b->b, b->count))
PASS(relu_backward, relu_backward(b->s, b->a, b->b, b->c, b->count))
PASS(gelu, gelu_forward(b->s, b->a, b->b, b->count))
PASS(gelu_backward, gelu_backward(b->s, b->a, b->b, b->c, b->count))
PASS(add_relu, add_forward(b->s, b->a, b->b, b->c, b->count, DP_ACT_RELU))
PASS(accumulate, accumulate(b->s, b->a, b->b, b->count))
PASS(dropout, dropout(b->s, b->a, b->b, b->count, &drop, 0, b->step_params))
PASS(sum_rows, sum_rows(b->s, b->e, b->b, b->count / CHANNELS, CHANNELS, 0.0f))
PASS(norm_moments, norm_moments(b->s, b->sums, 0, b->b, &norm))
PASS(norm_apply, norm_apply(b->s, b->a, b->b, NULL, b->ones, b->ones, b->ones, b->ones, &norm))
PASS(norm_add, norm_apply(b->s, b->a, b->b, b->c, b->ones, b->ones, b->ones, b->ones, &norm))
PASS(norm_sums, norm_backward_sums(b->s, b->sums, b->b, b->c, b->ones, b->ones, b->ones, b->ones,
                                   &norm, 0.0f))
PASS(norm_backward, norm_backward_apply(b->s, b->a, b->b, b->c, b->ones, b->ones, b->ones, b->ones,
                                        b->sums, (double)norm.count, &norm))
PASS(max_pool, pool_forward(b->s, b->a, (uint8_t *)b->e, b->b, &first_pool, norm.count / PLACES,
                            DP_POOL_MAX))
PASS(max_pool_backward, pool_backward(b->s, b->a, b->b, (const uint8_t *)b->e, &first_pool,
                                      norm.count / PLACES, DP_POOL_MAX))
PASS(average_pool, pool_forward(b->s, b->a, NULL, b->b, &last_pool, norm.count / PLACES,
                                DP_POOL_AVERAGE))
PASS(average_pool_backward, pool_backward(b->s, b->a, b->b, NULL, &last_pool, norm.count / PLACES,
                                          DP_POOL_AVERAGE))
PASS(softmax, softmax_loss(b->s, b->a, b->e, b->e + 1, b->b, (const int32_t *)b->labels,
                           b->count / CLASSES, CLASSES, b->ones, 0.0f))

static const struct pass passes[] = {
    {"copy fp32", copy, 8}, {"add fp32", add, 12}, {"sum of 4 fp32", sum_of_4, 20},
    {"block_squares fp32", squares, 4}, {"narrow fp32 to bf16", narrow, 6},
    {"widen bf16 to fp32", widen, 6}, {"bytes_load", bytes_load, 3},
    {"sgd, momentum, bf16 weights", sgd, 22}, {"adamw, bf16 weights", adamw, 30},
    {"relu", relu, 4}, {"relu backward", relu_backward, 6},
    {"gelu", gelu, 4}, {"gelu backward", gelu_backward, 6},
    {"add + relu", add_relu, 6}, {"accumulate", accumulate, 6}, {"dropout", dropout, 4},
    {"sum_rows", sum_rows, 2}, {"batch norm: statistics", norm_moments, 2},
    {"batch norm + relu", norm_apply, 4}, {"batch norm + residual + relu", norm_add, 6},
    {"batch norm: backward sums", norm_sums, 4},
    {"batch norm + residual + relu: backward sums", norm_join, 10},
    {"batch norm: backward", norm_backward, 6}, {"softmax cross-entropy", softmax, 4},
    {"max pool", max_pool, 2.75}, {"max pool backward", max_pool_backward, 2.75},
    {"average pool", average_pool, 2}, {"average pool backward", average_pool_backward, 2},
};
/* clang-format on */

#endif
