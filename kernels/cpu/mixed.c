/*
 * mixed.c - operations on arrays of bfloat16 or half: read as float32, computed by this device's
 * float32 operations, and rounded once when written.
 *
 * This file has the elementwise operations. They go piece by piece through the first-level cache,
 * and read or write 2 bytes where float32 moves 4. Results do not depend on the number of threads.
 */
#include <assert.h>

#include "kernels/cpu/mixed.h"
#include "kernels/cpu/parallel.h"

enum { PIECE = 2048 };

/* Element i of a narrow array. */
static const uint16_t *at(const void *x, size_t i)
{
    return (const uint16_t *)x + i;
}

static uint16_t *to(void *y, size_t i)
{
    return (uint16_t *)y + i;
}

/* ---- elementwise ---- */

struct each {
    struct dp_stream *stream;
    void *y;
    const void *a, *b; /* b may be NULL */
    /* Elements from `first` on: y = op(y, b), in float32. */
    dp_status (*op)(const struct each *e, float *y, const float *b, size_t first, size_t count);
    const void *arg;
    dp_status status;
};

/* Below DP_PARALLEL_MIN elements casts and operations stay on the calling thread. */
static dp_status each_piece(const struct each *e, size_t first, size_t count)
{
    _Alignas(DP_MEM_ALIGN) float y[PIECE];
    _Alignas(DP_MEM_ALIGN) float b[PIECE];
    struct dp_stream *s = e->stream;

    if (e->a != NULL) {
        DP_TRY(dp_cpu_widen(s, y, at(e->a, first), count, s->type));
    }
    if (e->b != NULL) {
        DP_TRY(dp_cpu_widen(s, b, at(e->b, first), count, s->type));
    }
    DP_TRY(e->op(e, y, b, first, count));
    return dp_cpu_narrow(s, to(e->y, first), y, count, s->type);
}

static void each_part(void *arg, size_t begin, size_t end)
{
    struct each *e = arg;

    for (size_t i = begin; i < end; i += PIECE) {
        const dp_status status = each_piece(e, i, end - i < PIECE ? end - i : PIECE);
        if (status != DP_OK) {
            e->status = status;
        }
    }
}

static dp_status each(struct each *e, size_t count)
{
    dp_parallel(e->stream->threads, count, DP_BLOCK, each_part, e);
    return e->status;
}

static dp_status relu(const struct each *e, float *y, const float *b, size_t first, size_t count)
{
    (void)b;
    (void)first;
    return dp_cpu_relu_forward(e->stream, y, y, count);
}

static dp_status relu_back(const struct each *e, float *y, const float *b, size_t first,
                           size_t count)
{
    (void)first;
    return dp_cpu_relu_backward(e->stream, y, y, b, count);
}

static dp_status gelu(const struct each *e, float *y, const float *b, size_t first, size_t count)
{
    (void)b;
    (void)first;
    return dp_cpu_gelu_forward(e->stream, y, y, count);
}

static dp_status gelu_back(const struct each *e, float *y, const float *b, size_t first,
                           size_t count)
{
    (void)first;
    return dp_cpu_gelu_backward(e->stream, y, y, b, count);
}

static dp_status silu(const struct each *e, float *y, const float *b, size_t first, size_t count)
{
    (void)b;
    (void)first;
    return dp_cpu_silu_forward(e->stream, y, y, count);
}

static dp_status silu_back(const struct each *e, float *y, const float *b, size_t first,
                           size_t count)
{
    (void)first;
    return dp_cpu_silu_backward(e->stream, y, y, b, count);
}

static dp_status leaky(const struct each *e, float *y, const float *b, size_t first, size_t count)
{
    (void)b;
    (void)first;
    return dp_cpu_leaky_forward(e->stream, y, y, *(const float *)e->arg, count);
}

static dp_status leaky_back(const struct each *e, float *y, const float *b, size_t first,
                            size_t count)
{
    (void)first;
    return dp_cpu_leaky_backward(e->stream, y, y, b, *(const float *)e->arg, count);
}

static dp_status plus(const struct each *e, float *y, const float *b, size_t first, size_t count)
{
    (void)first;
    return dp_cpu_add_forward(e->stream, y, y, b, count, *(const enum dp_activation *)e->arg);
}

struct drop {
    const struct dp_dropout *dropout;
    const struct dp_step_params *step_params;
    uint64_t first;
};

static dp_status drop(const struct each *e, float *y, const float *b, size_t first, size_t count)
{
    const struct drop *d = e->arg;

    (void)b;
    return dp_cpu_dropout(e->stream, y, y, count, d->dropout, d->first + first, d->step_params);
}

dp_status dp_cpu_mixed_relu_forward(struct dp_stream *s, void *y, const void *x, size_t count)
{
    struct each e = {s, y, x, NULL, relu, NULL, DP_OK};

    return each(&e, count);
}

dp_status dp_cpu_mixed_relu_backward(struct dp_stream *s, void *dx, const void *dy, const void *y,
                                     size_t count)
{
    struct each e = {s, dx, dy, y, relu_back, NULL, DP_OK};

    return each(&e, count);
}

dp_status dp_cpu_mixed_gelu_forward(struct dp_stream *s, void *y, const void *x, size_t count)
{
    struct each e = {s, y, x, NULL, gelu, NULL, DP_OK};

    return each(&e, count);
}

dp_status dp_cpu_mixed_gelu_backward(struct dp_stream *s, void *dx, const void *dy, const void *x,
                                     size_t count)
{
    struct each e = {s, dx, dy, x, gelu_back, NULL, DP_OK};

    return each(&e, count);
}

dp_status dp_cpu_mixed_silu_forward(struct dp_stream *s, void *y, const void *x, size_t count)
{
    struct each e = {s, y, x, NULL, silu, NULL, DP_OK};

    return each(&e, count);
}

dp_status dp_cpu_mixed_silu_backward(struct dp_stream *s, void *dx, const void *dy, const void *x,
                                     size_t count)
{
    struct each e = {s, dx, dy, x, silu_back, NULL, DP_OK};

    return each(&e, count);
}

dp_status dp_cpu_mixed_leaky_forward(struct dp_stream *s, void *y, const void *x, float slope,
                                     size_t count)
{
    struct each e = {s, y, x, NULL, leaky, &slope, DP_OK};

    return each(&e, count);
}

dp_status dp_cpu_mixed_leaky_backward(struct dp_stream *s, void *dx, const void *dy, const void *x,
                                      float slope, size_t count)
{
    struct each e = {s, dx, dy, x, leaky_back, &slope, DP_OK};

    return each(&e, count);
}

dp_status dp_cpu_mixed_add_forward(struct dp_stream *s, void *y, const void *a, const void *b,
                                   size_t count, enum dp_activation act)
{
    struct each e = {s, y, a, b, plus, &act, DP_OK};

    return each(&e, count);
}

dp_status dp_cpu_mixed_accumulate(struct dp_stream *s, void *dx, const void *dy, size_t count)
{
    return dp_cpu_mixed_add_forward(s, dx, dx, dy, count, DP_ACT_NONE);
}

dp_status dp_cpu_mixed_dropout(struct dp_stream *s, void *y, const void *x, size_t count,
                               const struct dp_dropout *dropout, uint64_t first,
                               const struct dp_step_params *step_params)
{
    const struct drop d = {dropout, step_params, first};
    struct each e = {s, y, x, NULL, drop, &d, DP_OK};

    return each(&e, count);
}

struct load {
    const uint8_t *bytes; /* one of them is NULL */
    const float *floats;
    const float *scale, *shift; /* [channels] */
    size_t channels;
};

/* `n` elements from `at` on, which is element `channel` of a pixel. */
static dp_status load_some(const struct load *l, struct dp_stream *s, float *y, size_t at,
                           size_t channel, size_t channels, size_t n)
{
    const float *scale = l->scale + channel, *shift = l->shift + channel;

    return l->bytes != NULL ? dp_cpu_bytes_load(s, y, l->bytes + at, scale, shift, channels, n)
                            : dp_cpu_floats_load(s, y, l->floats + at, scale, shift, channels, n);
}

/* Up to the end of a pixel if a piece begins or ends inside one; else many pixels at a time. */
static dp_status load(const struct each *e, float *y, const float *b, size_t first, size_t count)
{
    const struct load *l = e->arg;
    size_t done = 0;

    (void)b;
    while (done < count) {
        const size_t channel = (first + done) % l->channels, left = count - done;
        const size_t rest = l->channels - channel;
        const bool whole = channel == 0 && left >= l->channels;
        const size_t n = whole ? left / l->channels * l->channels : rest < left ? rest : left;
        DP_TRY(
            load_some(l, e->stream, y + done, first + done, channel, whole ? l->channels : n, n));
        done += n;
    }
    return DP_OK;
}

static dp_status load_all(struct dp_stream *s, void *y, const struct load *l, size_t count)
{
    struct each e = {s, y, NULL, NULL, load, l, DP_OK};

    assert(l->channels > 0);
    return each(&e, count);
}

dp_status dp_cpu_mixed_bytes_load(struct dp_stream *s, void *y, const uint8_t *x,
                                  const float *scale, const float *shift, size_t channels,
                                  size_t count)
{
    const struct load l = {x, NULL, scale, shift, channels};

    return load_all(s, y, &l, count);
}

dp_status dp_cpu_mixed_floats_load(struct dp_stream *s, void *y, const float *x, const float *scale,
                                   const float *shift, size_t channels, size_t count)
{
    const struct load l = {NULL, x, scale, shift, channels};

    return load_all(s, y, &l, count);
}
