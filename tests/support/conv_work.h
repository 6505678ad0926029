/*
 * conv_work.h - a convolution with its arrays, computed and compared in any type.
 */
#ifndef DP_TESTS_SUPPORT_CONV_WORK_H
#define DP_TESTS_SUPPORT_CONV_WORK_H

#include "tests/support/arrays.h"

/* A convolution and its arrays, in the type of a stream. */
struct work {
    struct dp_window w;
    size_t rows, xs, ys, ws;
    bool bias, relu;
    float keep;
    void *x, *dy, *weights, *b;
    void *y, *dx;
    float *dw, *db;
};

/* Numbers in -1..1 of a type; room for float32. */
static inline void *numbers(struct dp_stream *ref, size_t count, uint32_t seed)
{
    float *wide = uniform(count, seed, -1, 1);
    void *array = zeros(count);

    if (ref->type == DP_TYPE_F32) {
        memcpy(array, wide, count * sizeof(float));
    } else {
        OK(ref->ops->narrow(ref, array, wide, count, ref->type));
    }
    dp_free(wide);
    return array;
}

static inline struct work work_open(struct dp_stream *ref, const struct dp_window *w, size_t rows)
{
    struct work k = {.w = *w, .rows = rows};

    k.w.out_h = (w->in_h + 2 * w->padding - w->kernel_h) / w->stride + 1;
    k.w.out_w = (w->in_w + 2 * w->padding - w->kernel_w) / w->stride + 1;
    k.xs = rows * w->in_h * w->in_w * w->in_c;
    k.ys = rows * k.w.out_h * k.w.out_w * w->out_c;
    k.ws = dp_window_weights(w);
    k.x = numbers(ref, k.xs, 1);
    k.dy = numbers(ref, k.ys, 2);
    k.weights = numbers(ref, k.ws, 3);
    k.b = numbers(ref, w->out_c, 4);
    k.y = zeros(k.ys);
    k.dx = zeros(k.xs);
    k.dw = zeros(k.ws);
    k.db = zeros(w->out_c);
    return k;
}

static inline void work_close(struct work *k)
{
    void *const arrays[] = {k->x, k->dy, k->weights, k->b, k->y, k->dx, k->dw, k->db};

    for (size_t i = 0; i < DP_COUNT(arrays); i++) {
        dp_free(arrays[i]);
    }
}

static inline dp_status prepare(struct dp_stream *s, const struct work *k)
{
    return s->ops->conv_prepare(s, &k->w, k->rows,
                                DP_CONV_FORWARD | DP_CONV_BACKWARD_DATA | DP_CONV_BACKWARD_WEIGHTS |
                                    (k->bias ? (unsigned)DP_CONV_BIAS : 0u) |
                                    (k->relu ? (unsigned)DP_CONV_RELU : 0u));
}

static inline void compute(struct dp_stream *s, struct work *k)
{
    memset(k->y, 0xff, k->ys * sizeof(float)); /* NaN */
    memset(k->dx, 0xff, k->xs * sizeof(float));
    for (size_t i = 0; i < k->ws; i++) {
        k->dw[i] = k->keep != 0 ? (float)(i % 7) / 4 - 1 : NAN;
    }
    for (size_t i = 0; i < k->w.out_c; i++) {
        k->db[i] = k->keep != 0 ? 0.5f : NAN;
    }
    OK(s->ops->conv_forward(s, k->y, k->x, k->weights, k->bias ? k->b : NULL, &k->w, k->rows,
                            k->relu ? DP_ACT_RELU : DP_ACT_NONE));
    OK(s->ops->conv_backward_data(s, k->dx, k->dy, k->weights, &k->w, k->rows));
    OK(s->ops->conv_backward_weights(s, k->dw, k->bias ? k->db : NULL, k->dy, k->x, &k->w, k->rows,
                                     k->keep));
    OK(s->device->synchronize(s));
}

/* Equal but for one step of the type, and what float32 sums may be off before they are rounded. */
static inline void assert_typed(struct dp_stream *ref, const void *found, const void *wanted,
                                size_t count, double error)
{
    static const double steps[] = {
        [DP_TYPE_F32] = 0, [DP_TYPE_BF16] = 1.0 / 128, [DP_TYPE_F16] = 1.0 / 1024};
    float *a = zeros(count), *b = zeros(count);

    if (ref->type == DP_TYPE_F32) {
        memcpy(a, found, count * sizeof(float));
        memcpy(b, wanted, count * sizeof(float));
    } else {
        OK(ref->ops->widen(ref, a, found, count, ref->type));
        OK(ref->ops->widen(ref, b, wanted, count, ref->type));
    }
    assert_near(a, b, count, error, steps[ref->type]);
    dp_free(a);
    dp_free(b);
}

/* 1e-7 (n + 4) for sums of n products of numbers below 1: see test_dense.c. */
static inline double near_sum(size_t terms)
{
    return 1e-7 * ((double)terms + 4);
}

static inline struct dp_stream *typed_stream(const char *name, enum dp_type type)
{
    struct dp_stream *s = stream_on(name, 1);

    dp_stream_set_type(s, type);
    return s;
}

/* What y may be off where it is rounded once more, before the bias is added: half a step of the
 * largest sum. */
static inline double rounding_before_bias(struct dp_stream *ref, const struct work *k)
{
    struct work plain = *k;
    float *sums = zeros(k->ys);
    double most = 0;

    plain.y = zeros(k->ys);
    OK(ref->ops->conv_forward(ref, plain.y, k->x, k->weights, NULL, &k->w, k->rows, DP_ACT_NONE));
    if (ref->type == DP_TYPE_F32) {
        memcpy(sums, plain.y, k->ys * sizeof(float));
    } else {
        OK(ref->ops->widen(ref, sums, plain.y, k->ys, ref->type));
    }
    for (size_t i = 0; i < k->ys; i++) {
        most = fmax(most, fabs((double)sums[i]));
    }
    dp_free(plain.y);
    dp_free(sums);
    return !k->bias || ref->type == DP_TYPE_F32 ? 0
           : ref->type == DP_TYPE_BF16          ? most * 0x1p-9
                                                : most * 0x1p-11;
}

#endif
