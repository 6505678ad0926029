/*
 * memory_cpu.c - filling, copying and adding arrays, and converting bytes, at the speed of memory.
 *
 * Bytes moved per element: zero 4, copy, put_columns and take_columns 8, add 12, scale 8, sum_tree
 * 4 (n + outs), block_squares 4, bytes_load 5, floats_load 8.
 */
#include <assert.h>
#include <string.h>

#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/device.h"

struct bytes {
    char *y;
    const char *x; /* NULL: zeros */
};

static void bytes_part(void *arg, size_t begin, size_t end)
{
    const struct bytes *b = arg;

    if (b->x == NULL) {
        memset(b->y + begin, 0, end - begin);
    } else {
        memcpy(b->y + begin, b->x + begin, end - begin);
    }
}

dp_status dp_cpu_zero(struct dp_stream *s, void *y, size_t bytes)
{
    struct bytes b = {y, NULL};

    dp_parallel(s->threads, bytes, 4096, bytes_part, &b);
    return DP_OK;
}

dp_status dp_cpu_copy(struct dp_stream *s, void *y, const void *x, size_t bytes)
{
    struct bytes b = {y, x};

    dp_parallel(s->threads, bytes, 4096, bytes_part, &b);
    return DP_OK;
}

/* Rows are few bytes, and each is written once. */
struct columns {
    struct dp_stream *stream;
    char *to;
    const char *from;
    const struct dp_columns *columns;
    bool put;
};

static void columns_part(void *arg, size_t begin, size_t end)
{
    const struct columns *c = arg;
    const size_t e = dp_type_bytes(c->stream->type), count = c->columns->count * e;
    const size_t width = c->columns->width * e, at = c->columns->at * e;

    for (size_t i = begin; i < end; i++) {
        if (c->put) {
            char *row = c->to + i * width;
            memset(row, 0, at);
            memcpy(row + at, c->from + i * count, count);
            memset(row + at + count, 0, width - at - count);
        } else {
            memcpy(c->to + i * count, c->from + i * width + at, count);
        }
    }
}

dp_status dp_cpu_put_columns(struct dp_stream *s, void *y, const void *x, size_t rows,
                             const struct dp_columns *columns)
{
    struct columns c = {s, y, x, columns, true};

    dp_parallel(s->threads, rows, 64, columns_part, &c);
    return DP_OK;
}

dp_status dp_cpu_take_columns(struct dp_stream *s, void *x, const void *y, size_t rows,
                              const struct dp_columns *columns)
{
    struct columns c = {s, x, y, columns, false};

    dp_parallel(s->threads, rows, 64, columns_part, &c);
    return DP_OK;
}

struct add {
    float *y;
    const float *x;
};

DP_HOT static void add_part(void *arg, size_t begin, size_t end)
{
    const struct add *a = arg;
    float *restrict y = a->y;
    const float *restrict x = a->x;

    for (size_t i = begin; i < end; i++) {
        y[i] += x[i];
    }
}

dp_status dp_cpu_add(struct dp_stream *s, float *y, const float *x, size_t count)
{
    struct add a;

    a.y = y;
    a.x = x;
    dp_parallel(s->threads, count, DP_BLOCK, add_part, &a);
    return DP_OK;
}

struct scale {
    float *y;
    const float *x;
    float factor;
};

DP_HOT static void scale_part(void *arg, size_t begin, size_t end)
{
    const struct scale *a = arg;
    float *y = a->y;
    const float *x = a->x;
    const float factor = a->factor;

    DP_INDEPENDENT
    for (size_t i = begin; i < end; i++) {
        y[i] = factor * x[i];
    }
}

dp_status dp_cpu_scale(struct dp_stream *s, float *y, const float *x, float factor, size_t count)
{
    struct scale a = {y, x, factor};

    dp_parallel(s->threads, count, DP_BLOCK, scale_part, &a);
    return DP_OK;
}

/* Some hundred elements, once a step: too few for several threads. */
DP_HOT
dp_status dp_cpu_blend(struct dp_stream *s, float *y, const float *x, float weight, size_t count)
{
    (void)s;
    for (size_t i = 0; i < count; i++) {
        y[i] = (1.0f - weight) * y[i] + weight * x[i];
    }
    return DP_OK;
}

struct squares {
    float *out;
    const float *x;
};

/* 16 lanes over a block, then a tree over the lanes: the order is always the same. */
static inline float block_squares(const float *restrict x, size_t count)
{
    float lanes[16] = {0};
    size_t i = 0;

    for (; i + 16 <= count; i += 16) {
        for (size_t j = 0; j < 16; j++) {
            lanes[j] += x[i + j] * x[i + j];
        }
    }
    for (size_t j = 0; i + j < count; j++) {
        lanes[j] += x[i + j] * x[i + j];
    }
    for (size_t half = 8; half > 0; half /= 2) {
        for (size_t j = 0; j < half; j++) {
            lanes[j] += lanes[j + half];
        }
    }
    return lanes[0];
}

DP_HOT static void squares_part(void *arg, size_t begin, size_t end)
{
    const struct squares *q = arg;
    size_t i = begin;

    for (; i + DP_BLOCK <= end; i += DP_BLOCK) {
        q->out[i / DP_BLOCK] = block_squares(q->x + i, DP_BLOCK);
    }
    if (i < end) {
        q->out[i / DP_BLOCK] = block_squares(q->x + i, end - i);
    }
}

dp_status dp_cpu_block_squares(struct dp_stream *s, float *out, const float *x, size_t count)
{
    struct squares q;

    q.out = out;
    q.x = x;
    dp_parallel(s->threads, count, DP_BLOCK, squares_part, &q);
    return DP_OK;
}

enum { PATTERN = 256 };

struct load {
    float *y;
    const uint8_t *bytes; /* one of them is NULL */
    const float *floats;
    const float *scale, *shift; /* [width] */
    size_t width;
};

/* begin is a multiple of the width. */
DP_HOT static void bytes_load_part(void *arg, size_t begin, size_t end)
{
    const struct load *l = arg;
    const float *restrict scale = l->scale, *restrict shift = l->shift;

    for (size_t row = begin; row < end; row += l->width) {
        float *restrict y = l->y + row;
        const uint8_t *restrict x = l->bytes + row;
        const size_t width = end - row < l->width ? end - row : l->width;
        for (size_t j = 0; j < width; j++) {
            y[j] = (float)x[j] * scale[j] + shift[j];
        }
    }
}

DP_HOT static void floats_load_part(void *arg, size_t begin, size_t end)
{
    const struct load *l = arg;
    const float *restrict scale = l->scale, *restrict shift = l->shift;

    for (size_t row = begin; row < end; row += l->width) {
        float *restrict y = l->y + row;
        const float *restrict x = l->floats + row;
        const size_t width = end - row < l->width ? end - row : l->width;
        for (size_t j = 0; j < width; j++) {
            y[j] = x[j] * scale[j] + shift[j];
        }
    }
}

/* `l` has scale, shift and width of one pixel. */
static dp_status load(const struct dp_stream *s, struct load *l, size_t count)
{
    _Alignas(DP_MEM_ALIGN) float scales[PATTERN];
    _Alignas(DP_MEM_ALIGN) float shifts[PATTERN];
    const size_t channels = l->width;

    assert(channels > 0);
    /* Few channels: their factors are repeated, which makes the inner loop longer. */
    if (channels <= PATTERN / 2) {
        l->width = PATTERN / channels * channels;
        for (size_t j = 0; j < l->width; j++) {
            scales[j] = l->scale[j % channels];
            shifts[j] = l->shift[j % channels];
        }
        l->scale = scales;
        l->shift = shifts;
    }
    dp_parallel(s->threads, count, l->width, l->bytes != NULL ? bytes_load_part : floats_load_part,
                l);
    return DP_OK;
}

dp_status dp_cpu_bytes_load(struct dp_stream *s, void *y, const uint8_t *x, const float *scale,
                            const float *shift, size_t channels, size_t count)
{
    struct load l = {y, x, NULL, scale, shift, channels};

    return load(s, &l, count);
}

dp_status dp_cpu_floats_load(struct dp_stream *s, void *y, const float *x, const float *scale,
                             const float *shift, size_t channels, size_t count)
{
    struct load l = {y, NULL, x, scale, shift, channels};

    return load(s, &l, count);
}
