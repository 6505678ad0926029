#if defined(__GNUC__) && !defined(__clang__)
/* Keeps lanes in registers: loops that copy or clear them would become memcpy and memset. */
#pragma GCC optimize("no-tree-loop-distribute-patterns")
#endif

#include <string.h>

#include "kernels/cpu/bfloat.h"
#include "kernels/cpu/mixed.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/device.h"
#include "kernels/ref/window.h"

/*
 * Windows are processed pixel by pixel, and the channels of a pixel, which are contiguous, LANES at
 * a time, then FEW, then one, so that a window's result stays in registers. Threads share the rows
 * of the output, or in backward the images. (oneDNN's maximum is not faster and turns a NaN into a
 * number.)
 */
enum { LANES = 32, FEW = 8 };

struct pool {
    const struct dp_window *w;
    const void *in;        /* x or dy */
    void *out;             /* y or dx */
    uint8_t *which;        /* written by forward; NULL: not needed */
    const uint8_t *picked; /* read by backward */
    bool once;             /* windows do not overlap, and together cover the image */
};

/* The part of a window inside the image, and its first pixel. */
struct inside {
    size_t y0, y1, x0, x1;
    size_t first;    /* offset in elements from the start of the image */
    size_t row, col; /* elements from one row, and one pixel, to the next */
    size_t kernel_w;
};

DP_INLINE struct inside inside_of(const struct dp_window *w, size_t oy, size_t ox)
{
    struct inside in = {.row = w->in_w * w->in_c, .col = w->in_c, .kernel_w = w->kernel_w};

    dp_window_inside(w, oy, w->in_h, w->kernel_h, &in.y0, &in.y1);
    dp_window_inside(w, ox, w->in_w, w->kernel_w, &in.x0, &in.x1);
    in.first = (oy * w->stride + in.y0 - w->padding) * in.row +
               (ox * w->stride + in.x0 - w->padding) * in.col;
    return in;
}

/* A whole window of 2 by 2, and the same with constants: the compiler unrolls loops over it. */
DP_INLINE bool is_two_by_two(const struct inside *in)
{
    return in->kernel_w == 2 && in->y0 == 0 && in->y1 == 2 && in->x0 == 0 && in->x1 == 2;
}

DP_INLINE struct inside two_by_two(const struct inside *in)
{
    return (struct inside){0, 2, 0, 2, in->first, in->row, in->col, 2};
}

/* The maximum of `count` adjacent windows. The first of equal values stays, and so does a NaN. */
DP_INLINE void max_floats(const struct inside *in, const float *x, float *y, uint8_t *which,
                          size_t count)
{
    float best[LANES];
    int32_t at[LANES];

    DP_LANES
    for (size_t c = 0; c < count; c++) {
        best[c] = x[c];
        at[c] = (int32_t)(in->y0 * in->kernel_w + in->x0);
    }
    for (size_t ky = in->y0; ky < in->y1; ky++) {
        for (size_t kx = in->x0; kx < in->x1; kx++) {
            const float *pixel = x + (ky - in->y0) * in->row + (kx - in->x0) * in->col;
            const int32_t k = (int32_t)(ky * in->kernel_w + kx);
            DP_LANES
            for (size_t c = 0; c < count; c++) {
                const float own = pixel[c];
                const int larger = (own > best[c]) | (own != own);
                best[c] = larger ? own : best[c];
                at[c] = larger ? k : at[c];
            }
        }
    }
    DP_LANES
    for (size_t c = 0; c < count; c++) {
        y[c] = best[c];
    }
    if (which != NULL) {
        DP_LANES
        for (size_t c = 0; c < count; c++) {
            which[c] = (uint8_t)at[c];
        }
    }
}

/* Integers that compare as bfloats do: zeros are equal. Any NaN is above DP_BFLOAT_INFINITY. */
DP_INLINE int16_t order_of(uint16_t b)
{
    const int magnitude = b & 0x7fff;

    return (int16_t)((int16_t)b < -127 ? -magnitude : magnitude); /* -127 to -1 are NaN */
}

DP_INLINE int16_t larger_of(int16_t a, int16_t b)
{
    return (int16_t)(a > b ? a : b);
}

/* As `own` > `best`, but a NaN is larger than any other. */
DP_INLINE bool replaces(int16_t own, int16_t best)
{
    return own > (best < DP_BFLOAT_INFINITY ? best : DP_BFLOAT_INFINITY);
}

/* The same of bfloats, in lanes of 16 bits. */
DP_INLINE void max_bfloats(const struct inside *in, const uint16_t *x, uint16_t *y, uint8_t *which,
                           size_t count)
{
    uint16_t best[LANES];
    int16_t order[LANES], at[LANES];

    DP_LANES
    for (size_t c = 0; c < count; c++) {
        best[c] = x[c];
        order[c] = order_of(x[c]);
        at[c] = (int16_t)(in->y0 * in->kernel_w + in->x0);
    }
    for (size_t ky = in->y0; ky < in->y1; ky++) {
        for (size_t kx = in->x0; kx < in->x1; kx++) {
            const uint16_t *pixel = x + (ky - in->y0) * in->row + (kx - in->x0) * in->col;
            const int16_t k = (int16_t)(ky * in->kernel_w + kx);
            DP_LANES
            for (size_t c = 0; c < count; c++) {
                const int16_t own = order_of(pixel[c]);
                const bool larger = replaces(own, order[c]);
                best[c] = larger ? pixel[c] : best[c];
                at[c] = (int16_t)(larger ? k : at[c]);
                order[c] = larger_of(own, order[c]);
            }
        }
    }
    DP_LANES
    for (size_t c = 0; c < count; c++) {
        y[c] = dp_bfloat_rounded(best[c]);
    }
    if (which != NULL) {
        DP_LANES
        for (size_t c = 0; c < count; c++) {
            which[c] = (uint8_t)at[c];
        }
    }
}

DP_INLINE void mean_lanes(const struct dp_window *w, const struct inside *in, const void *x,
                          void *y, size_t count, bool narrow)
{
    const float divisor = (float)(w->kernel_h * w->kernel_w);
    float sum[LANES] = {0};

    for (size_t ky = in->y0; ky < in->y1; ky++) {
        size_t pixel = (ky - in->y0) * in->row;
        for (size_t kx = in->x0; kx < in->x1; kx++, pixel += in->col) {
            DP_LANES
            for (size_t c = 0; c < count; c++) {
                sum[c] += dp_number(x, pixel + c, narrow);
            }
        }
    }
    DP_LANES
    for (size_t c = 0; c < count; c++) {
        dp_number_to(y, c, sum[c] / divisor, narrow);
    }
}

/* Channels c to c + count of one window. */
DP_INLINE void forward_lanes(const struct dp_window *w, const struct inside *in, const void *x,
                             void *y, uint8_t *which, size_t c, size_t count, bool max, bool narrow)
{
    const void *from = dp_element(x, c, narrow);
    void *to = dp_element_to(y, c, narrow);
    uint8_t *at = which != NULL ? which + c : NULL;

    if (!max) {
        mean_lanes(w, in, from, to, count, narrow);
    } else if (narrow) {
        max_bfloats(in, from, to, at, count);
    } else {
        max_floats(in, from, to, at, count);
    }
}

/* All channels; x, y and which are at the first one. */
DP_INLINE void forward_pixel(const struct dp_window *w, const struct inside *in, const void *x,
                             void *y, uint8_t *which, bool max, bool narrow)
{
    size_t c = 0;

    for (; c + LANES <= w->in_c; c += LANES) {
        forward_lanes(w, in, x, y, which, c, LANES, max, narrow);
    }
    for (; c + FEW <= w->in_c; c += FEW) {
        forward_lanes(w, in, x, y, which, c, FEW, max, narrow);
    }
    for (; c < w->in_c; c++) {
        forward_lanes(w, in, x, y, which, c, 1, max, narrow);
    }
}

/* Elements [begin, end) of the output, cut between rows of pixels. */
DP_INLINE void forward_part(const struct pool *pool, size_t begin, size_t end, bool max,
                            bool narrow)
{
    const struct dp_window *w = pool->w;
    const size_t width = w->out_w * w->out_c;

    for (size_t row = begin; row < end; row += width) {
        const size_t image = row / width / w->out_h * dp_window_in(w), oy = row / width % w->out_h;
        for (size_t ox = 0, i = row; ox < w->out_w; ox++, i += w->out_c) {
            const struct inside in = inside_of(w, oy, ox), constant = two_by_two(&in);
            const void *x = dp_element(pool->in, image + in.first, narrow);
            void *y = dp_element_to(pool->out, i, narrow);
            uint8_t *which = pool->which != NULL ? pool->which + i : NULL;
            if (is_two_by_two(&in)) {
                forward_pixel(w, &constant, x, y, which, max, narrow);
            } else {
                forward_pixel(w, &in, x, y, which, max, narrow);
            }
        }
    }
}

DP_HOT static void max_part(void *arg, size_t begin, size_t end)
{
    forward_part(arg, begin, end, true, false);
}

DP_HOT static void mean_part(void *arg, size_t begin, size_t end)
{
    forward_part(arg, begin, end, false, false);
}

DP_HOT static void max_part_bfloat(void *arg, size_t begin, size_t end)
{
    forward_part(arg, begin, end, true, true);
}

DP_HOT static void mean_part_bfloat(void *arg, size_t begin, size_t end)
{
    forward_part(arg, begin, end, false, true);
}

/* Backward of adjacent windows: each gives all of dy to the element that was picked, or, of a mean,
 * an equal part to each. Adds to dx, or sets it where windows do not overlap. */
DP_INLINE void scatter_floats(const struct inside *in, float *dx, const float *dy,
                              const uint8_t *picked, float divisor, size_t count, bool once)
{
    float part[LANES];
    uint8_t at[LANES];

    DP_LANES
    for (size_t c = 0; c < count; c++) {
        part[c] = picked != NULL ? dy[c] : dy[c] / divisor;
    }
    if (picked != NULL) {
        DP_LANES
        for (size_t c = 0; c < count; c++) {
            at[c] = picked[c];
        }
    }
    for (size_t ky = in->y0; ky < in->y1; ky++) {
        for (size_t kx = in->x0; kx < in->x1; kx++) {
            float *pixel = dx + (ky - in->y0) * in->row + (kx - in->x0) * in->col;
            const int32_t k = (int32_t)(ky * in->kernel_w + kx);
            DP_LANES
            for (size_t c = 0; c < count; c++) {
                const float own = picked == NULL || (int32_t)at[c] == k ? part[c] : 0.0f;
                pixel[c] = once ? own : pixel[c] + own;
            }
        }
    }
}

/* The same of bfloats and windows that do not overlap, and of which padding cuts none. */
DP_INLINE void scatter_bfloats(const struct inside *in, uint16_t *dx, const uint16_t *dy,
                               const uint8_t *picked, float divisor, size_t count)
{
    uint16_t part[LANES];
    uint8_t at[LANES];

    DP_LANES
    for (size_t c = 0; c < count; c++) {
        part[c] =
            picked != NULL ? dp_bfloat_rounded(dy[c]) : dp_bfloat_of(dp_of_bfloat(dy[c]) / divisor);
    }
    if (picked != NULL) {
        DP_LANES
        for (size_t c = 0; c < count; c++) {
            at[c] = picked[c];
        }
    }
    for (size_t ky = 0; ky < in->y1; ky++) {
        for (size_t kx = 0; kx < in->x1; kx++) {
            uint16_t *pixel = dx + ky * in->row + kx * in->col;
            const uint16_t k = (uint16_t)(ky * in->kernel_w + kx);
            DP_LANES
            for (size_t c = 0; c < count; c++) {
                pixel[c] = picked == NULL || (uint16_t)at[c] == k ? part[c] : 0;
            }
        }
    }
}

DP_INLINE void scatter_lanes(const struct dp_window *w, const struct inside *in, void *dx,
                             const void *dy, const uint8_t *picked, size_t c, size_t count,
                             bool once, bool narrow)
{
    const float divisor = (float)(w->kernel_h * w->kernel_w);
    const uint8_t *at = picked != NULL ? picked + c : NULL;
    const void *from = dp_element(dy, c, narrow);
    void *to = dp_element_to(dx, c, narrow);

    if (narrow) {
        scatter_bfloats(in, to, from, at, divisor, count);
    } else {
        scatter_floats(in, to, from, at, divisor, count, once);
    }
}

DP_INLINE void scatter_pixel(const struct dp_window *w, const struct inside *in, void *dx,
                             const void *dy, const uint8_t *picked, bool once, bool narrow)
{
    size_t c = 0;

    for (; c + LANES <= w->in_c; c += LANES) {
        scatter_lanes(w, in, dx, dy, picked, c, LANES, once, narrow);
    }
    for (; c + FEW <= w->in_c; c += FEW) {
        scatter_lanes(w, in, dx, dy, picked, c, FEW, once, narrow);
    }
    for (; c < w->in_c; c++) {
        scatter_lanes(w, in, dx, dy, picked, c, 1, once, narrow);
    }
}

/* `first`: the image's first element of dy; dx is its own. */
DP_INLINE void scatter_image(const struct pool *pool, void *dx, size_t first, bool once, bool max,
                             bool narrow)
{
    const struct dp_window *w = pool->w;
    size_t at = first;

    for (size_t oy = 0; oy < w->out_h; oy++) {
        for (size_t ox = 0; ox < w->out_w; ox++, at += w->out_c) {
            const struct inside in = inside_of(w, oy, ox), constant = two_by_two(&in);
            const void *dy = dp_element(pool->in, at, narrow);
            const uint8_t *picked = max ? pool->picked + at : NULL;
            void *to = dp_element_to(dx, in.first, narrow);
            if (is_two_by_two(&in)) {
                scatter_pixel(w, &constant, to, dy, picked, once, narrow);
            } else {
                scatter_pixel(w, &in, to, dy, picked, once, narrow);
            }
        }
    }
}

/* Elements [begin, end) of dx, cut between images. */
DP_INLINE void backward_part(const struct pool *pool, size_t begin, size_t end, bool max)
{
    const size_t size = dp_window_in(pool->w);

    for (size_t i = begin; i < end; i += size) {
        const size_t first = i / size * dp_window_out(pool->w);
        float *dx = (float *)pool->out + i;
        if (pool->once) {
            scatter_image(pool, dx, first, true, max, false);
        } else {
            memset(dx, 0, size * sizeof(*dx));
            scatter_image(pool, dx, first, false, max, false);
        }
    }
}

/* Of windows that do not overlap: sums would be rounded more than once. */
DP_INLINE void backward_part_bfloat(const struct pool *pool, size_t begin, size_t end, bool max)
{
    const size_t size = dp_window_in(pool->w);

    for (size_t i = begin; i < end; i += size) {
        scatter_image(pool, (uint16_t *)pool->out + i, i / size * dp_window_out(pool->w), true, max,
                      true);
    }
}

DP_HOT static void max_back(void *arg, size_t begin, size_t end)
{
    backward_part(arg, begin, end, true);
}

DP_HOT static void mean_back(void *arg, size_t begin, size_t end)
{
    backward_part(arg, begin, end, false);
}

DP_HOT static void max_back_bfloat(void *arg, size_t begin, size_t end)
{
    backward_part_bfloat(arg, begin, end, true);
}

DP_HOT static void mean_back_bfloat(void *arg, size_t begin, size_t end)
{
    backward_part_bfloat(arg, begin, end, false);
}

static bool covers_once(const struct dp_window *w)
{
    return w->padding == 0 && w->stride == w->kernel_h && w->stride == w->kernel_w &&
           w->out_h * w->stride == w->in_h && w->out_w * w->stride == w->in_w;
}

dp_status dp_cpu_pool_prepare(struct dp_stream *s, const struct dp_window *w, size_t rows,
                              enum dp_pool_kind kind, bool training)
{
    (void)s;
    (void)rows;
    (void)training;
    return dp_window_check_pool(w, kind);
}

dp_status dp_cpu_pool_forward(struct dp_stream *s, void *y, uint8_t *which, const void *x,
                              const struct dp_window *w, size_t rows, enum dp_pool_kind kind)
{
    struct pool pool = {.w = w, .in = x, .out = y};

    pool.which = which;
    dp_parallel(s->threads, rows * dp_window_out(w), w->out_w * w->out_c,
                kind == DP_POOL_MAX ? max_part : mean_part, &pool);
    return DP_OK;
}

dp_status dp_cpu_bfloat_pool_forward(struct dp_stream *s, void *y, uint8_t *which, const void *x,
                                     const struct dp_window *w, size_t rows, enum dp_pool_kind kind)
{
    struct pool pool = {.w = w, .in = x, .out = y};

    pool.which = which;
    dp_parallel(s->threads, rows * dp_window_out(w), w->out_w * w->out_c,
                kind == DP_POOL_MAX ? max_part_bfloat : mean_part_bfloat, &pool);
    return DP_OK;
}

dp_status dp_cpu_pool_backward(struct dp_stream *s, void *dx, const void *dy, const uint8_t *which,
                               const struct dp_window *w, size_t rows, enum dp_pool_kind kind)
{
    struct pool pool = {.w = w,
                        .in = dy,
                        .out = dx,
                        .picked = kind == DP_POOL_MAX ? which : NULL,
                        .once = covers_once(w)};

    if (kind == DP_POOL_MAX && which == NULL && rows > 0) {
        return DP_FAIL(DP_ERR_ARG, "gradient of a maximum without what forward kept");
    }
    dp_parallel(s->threads, rows * dp_window_in(w), dp_window_in(w),
                kind == DP_POOL_MAX ? max_back : mean_back, &pool);
    return DP_OK;
}

dp_status dp_cpu_bfloat_pool_backward(struct dp_stream *s, void *dx, const void *dy,
                                      const uint8_t *which, const struct dp_window *w, size_t rows,
                                      enum dp_pool_kind kind)
{
    struct pool pool = {
        .w = w, .in = dy, .out = dx, .picked = kind == DP_POOL_MAX ? which : NULL, .once = true};

    if (!covers_once(w) || (kind == DP_POOL_MAX && which == NULL)) {
        return dp_cpu_mixed_pool_backward(s, dx, dy, which, w, rows, kind);
    }
    dp_parallel(s->threads, rows * dp_window_in(w), dp_window_in(w),
                kind == DP_POOL_MAX ? max_back_bfloat : mean_back_bfloat, &pool);
    return DP_OK;
}
