#include <string.h>

#include "kernels/cpu/bfloat.h"
#include "kernels/cpu/mixed.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/device.h"
#include "kernels/ref/window.h"

/*
 * Windows are processed pixel by pixel, and the channels of a pixel, which are contiguous, LANES at
 * a time, so that a window's result stays in registers. Threads share the rows of the output, or in
 * backward the images. (oneDNN's maximum is not faster and turns a NaN into a number.)
 */
enum { LANES = 32 };

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
    size_t first; /* offset in elements from the start of the image */
};

DP_INLINE struct inside inside_of(const struct dp_window *w, size_t oy, size_t ox)
{
    struct inside in;

    dp_window_inside(w, oy, w->in_h, w->kernel_h, &in.y0, &in.y1);
    dp_window_inside(w, ox, w->in_w, w->kernel_w, &in.x0, &in.x1);
    in.first =
        ((oy * w->stride + in.y0 - w->padding) * w->in_w + ox * w->stride + in.x0 - w->padding) *
        w->in_c;
    return in;
}

/* The maximum of `count` adjacent windows. The first of equal values stays, and so does a NaN. */
DP_INLINE void max_lanes(const struct dp_window *w, const struct inside *in, const void *x, void *y,
                         uint8_t *which, size_t count, bool narrow)
{
    float best[LANES];
    int32_t at[LANES];

    for (size_t c = 0; c < count; c++) {
        best[c] = dp_number(x, c, narrow);
        at[c] = (int32_t)(in->y0 * w->kernel_w + in->x0);
    }
    for (size_t ky = in->y0; ky < in->y1; ky++) {
        size_t pixel = (ky - in->y0) * w->in_w * w->in_c;
        for (size_t kx = in->x0; kx < in->x1; kx++, pixel += w->in_c) {
            const int32_t k = (int32_t)(ky * w->kernel_w + kx);
            for (size_t c = 0; c < count; c++) {
                const float own = dp_number(x, pixel + c, narrow);
                const int larger = (own > best[c]) | (own != own);
                best[c] = larger ? own : best[c];
                at[c] = larger ? k : at[c];
            }
        }
    }
    for (size_t c = 0; c < count; c++) {
        dp_number_to(y, c, best[c], narrow);
    }
    for (size_t c = 0; which != NULL && c < count; c++) {
        which[c] = (uint8_t)at[c];
    }
}

DP_INLINE void mean_lanes(const struct dp_window *w, const struct inside *in, const void *x,
                          void *y, size_t count, bool narrow)
{
    const float divisor = (float)(w->kernel_h * w->kernel_w);
    float sum[LANES] = {0};

    for (size_t ky = in->y0; ky < in->y1; ky++) {
        size_t pixel = (ky - in->y0) * w->in_w * w->in_c;
        for (size_t kx = in->x0; kx < in->x1; kx++, pixel += w->in_c) {
            for (size_t c = 0; c < count; c++) {
                sum[c] += dp_number(x, pixel + c, narrow);
            }
        }
    }
    for (size_t c = 0; c < count; c++) {
        dp_number_to(y, c, sum[c] / divisor, narrow);
    }
}

/* The channels of one output pixel; i is its first element, image that of its image. */
DP_INLINE void max_pixel(const struct pool *pool, size_t image, size_t i, size_t oy, size_t ox,
                         bool narrow)
{
    const struct dp_window *w = pool->w;
    const struct inside in = inside_of(w, oy, ox);
    const void *x = dp_element(pool->in, image + in.first, narrow);
    void *y = dp_element_to(pool->out, i, narrow);
    uint8_t *which = pool->which != NULL ? pool->which + i : NULL;
    size_t c = 0;

    for (; c + LANES <= w->in_c; c += LANES) {
        max_lanes(w, &in, dp_element(x, c, narrow), dp_element_to(y, c, narrow),
                  which != NULL ? which + c : NULL, LANES, narrow);
    }
    if (c < w->in_c) {
        max_lanes(w, &in, dp_element(x, c, narrow), dp_element_to(y, c, narrow),
                  which != NULL ? which + c : NULL, w->in_c - c, narrow);
    }
}

DP_INLINE void mean_pixel(const struct pool *pool, size_t image, size_t i, size_t oy, size_t ox,
                          bool narrow)
{
    const struct dp_window *w = pool->w;
    const struct inside in = inside_of(w, oy, ox);
    const void *x = dp_element(pool->in, image + in.first, narrow);
    void *y = dp_element_to(pool->out, i, narrow);
    size_t c = 0;

    for (; c + LANES <= w->in_c; c += LANES) {
        mean_lanes(w, &in, dp_element(x, c, narrow), dp_element_to(y, c, narrow), LANES, narrow);
    }
    if (c < w->in_c) {
        mean_lanes(w, &in, dp_element(x, c, narrow), dp_element_to(y, c, narrow), w->in_c - c,
                   narrow);
    }
}

/* Elements [begin, end) of the output, cut between rows of pixels. */
DP_INLINE void forward_part(const struct pool *pool, size_t begin, size_t end, bool max,
                            bool narrow)
{
    const struct dp_window *w = pool->w;
    const size_t width = w->out_w * w->out_c;

    for (size_t i = begin; i < end; i += width) {
        const size_t image = i / width / w->out_h * dp_window_in(w), oy = i / width % w->out_h;
        for (size_t ox = 0; ox < w->out_w; ox++) {
            if (max) {
                max_pixel(pool, image, i + ox * w->out_c, oy, ox, narrow);
            } else {
                mean_pixel(pool, image, i + ox * w->out_c, oy, ox, narrow);
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

/* Sets a gradient, or adds to it. */
DP_INLINE void give(void *dx, size_t i, float part, bool once, bool narrow)
{
    dp_number_to(dx, i, once ? part : dp_number(dx, i, narrow) + part, narrow);
}

/* Backward of one window of a maximum: adds all of dy to the element that was picked. */
DP_INLINE void max_scatter(const struct dp_window *w, const struct inside *in, void *dx,
                           const void *dy, const uint8_t *picked, bool once, bool narrow)
{
    for (size_t ky = in->y0; ky < in->y1; ky++) {
        size_t pixel = in->first + (ky - in->y0) * w->in_w * w->in_c;
        for (size_t kx = in->x0; kx < in->x1; kx++, pixel += w->in_c) {
            const int32_t k = (int32_t)(ky * w->kernel_w + kx);
            for (size_t c = 0; c < w->in_c; c++) {
                const float own = dp_number(dy, c, narrow);
                give(dx, pixel + c, (int32_t)picked[c] == k ? own : 0.0f, once, narrow);
            }
        }
    }
}

DP_INLINE void mean_scatter(const struct dp_window *w, const struct inside *in, void *dx,
                            const void *dy, bool once, bool narrow)
{
    const float divisor = (float)(w->kernel_h * w->kernel_w);

    for (size_t ky = in->y0; ky < in->y1; ky++) {
        size_t pixel = in->first + (ky - in->y0) * w->in_w * w->in_c;
        for (size_t kx = in->x0; kx < in->x1; kx++, pixel += w->in_c) {
            for (size_t c = 0; c < w->in_c; c++) {
                give(dx, pixel + c, dp_number(dy, c, narrow) / divisor, once, narrow);
            }
        }
    }
}

/* `first`: the image's first element of dy; dx is its own. */
DP_INLINE void scatter_image(const struct pool *pool, void *dx, size_t first, bool once,
                             bool narrow)
{
    const struct dp_window *w = pool->w;

    size_t at = first;

    for (size_t oy = 0; oy < w->out_h; oy++) {
        for (size_t ox = 0; ox < w->out_w; ox++, at += w->out_c) {
            const struct inside in = inside_of(w, oy, ox);
            const void *dy = dp_element(pool->in, at, narrow);
            if (pool->picked != NULL) {
                max_scatter(w, &in, dx, dy, pool->picked + at, once, narrow);
            } else {
                mean_scatter(w, &in, dx, dy, once, narrow);
            }
        }
    }
}

/* Elements [begin, end) of dx, cut between images. */
DP_HOT static void backward_part(void *arg, size_t begin, size_t end)
{
    const struct pool *pool = arg;
    const size_t size = dp_window_in(pool->w);

    for (size_t i = begin; i < end; i += size) {
        const size_t first = i / size * dp_window_out(pool->w);
        float *dx = (float *)pool->out + i;
        if (pool->once) {
            scatter_image(pool, dx, first, true, false);
        } else {
            memset(dx, 0, size * sizeof(*dx));
            scatter_image(pool, dx, first, false, false);
        }
    }
}

/* Of windows that do not overlap: sums would be rounded more than once. */
DP_HOT static void backward_part_bfloat(void *arg, size_t begin, size_t end)
{
    const struct pool *pool = arg;
    const size_t size = dp_window_in(pool->w);

    for (size_t i = begin; i < end; i += size) {
        scatter_image(pool, (uint16_t *)pool->out + i, i / size * dp_window_out(pool->w), true,
                      true);
    }
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
    dp_parallel(s->threads, rows * dp_window_in(w), dp_window_in(w), backward_part, &pool);
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
    dp_parallel(s->threads, rows * dp_window_in(w), dp_window_in(w), backward_part_bfloat, &pool);
    return DP_OK;
}
