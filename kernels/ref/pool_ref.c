#include <math.h>

#include "kernels/ref/element.h"
#include "kernels/ref/ops_ref.h"
#include "kernels/ref/window.h"

dp_status dp_ref_pool_prepare(struct dp_stream *s, const struct dp_window *w, size_t rows,
                              enum dp_pool_kind kind, bool training)
{
    (void)s;
    (void)rows;
    (void)training;
    return dp_window_check_pool(w, kind);
}

/* The window at (oy, ox) of one channel of an image. *which is the number of the kernel position
 * with the first maximum. A NaN counts as larger than any number, so it is not lost. */
static float window_max(const struct dp_stream *s, const struct dp_window *w, const void *x,
                        size_t oy, size_t ox, uint8_t *which)
{
    size_t y0, y1, x0, x1;
    float best = -INFINITY;

    dp_window_inside(w, oy, w->in_h, w->kernel_h, &y0, &y1);
    dp_window_inside(w, ox, w->in_w, w->kernel_w, &x0, &x1);
    *which = (uint8_t)(y0 * w->kernel_w + x0);
    for (size_t ky = y0; ky < y1; ky++) {
        for (size_t kx = x0; kx < x1; kx++) {
            const size_t iy = oy * w->stride + ky - w->padding;
            const size_t ix = ox * w->stride + kx - w->padding;
            const float value = dp_ref_get(s, x, (iy * w->in_w + ix) * w->in_c);
            if (value > best || isnan(value)) {
                best = value;
                *which = (uint8_t)(ky * w->kernel_w + kx);
            }
        }
    }
    return best;
}

static float window_mean(const struct dp_stream *s, const struct dp_window *w, const void *x,
                         size_t oy, size_t ox)
{
    size_t y0, y1, x0, x1;
    double sum = 0;

    dp_window_inside(w, oy, w->in_h, w->kernel_h, &y0, &y1);
    dp_window_inside(w, ox, w->in_w, w->kernel_w, &x0, &x1);
    for (size_t ky = y0; ky < y1; ky++) {
        for (size_t kx = x0; kx < x1; kx++) {
            const size_t iy = oy * w->stride + ky - w->padding;
            const size_t ix = ox * w->stride + kx - w->padding;
            sum += (double)dp_ref_get(s, x, (iy * w->in_w + ix) * w->in_c);
        }
    }
    return (float)(sum / (double)(w->kernel_h * w->kernel_w));
}

dp_status dp_ref_pool_forward(struct dp_stream *s, void *y, uint8_t *which, const void *x,
                              const struct dp_window *w, size_t rows, enum dp_pool_kind kind)
{
    uint8_t unused;

    for (size_t i = 0; i < rows * dp_window_out(w); i++) {
        const size_t channel = i % w->in_c, pixel = i / w->in_c;
        const size_t ox = pixel % w->out_w, oy = pixel / w->out_w % w->out_h;
        const void *image =
            dp_ref_at(s, x, pixel / w->out_w / w->out_h * dp_window_in(w) + channel);
        if (kind == DP_POOL_MAX) {
            dp_ref_put(s, y, i,
                       window_max(s, w, image, oy, ox, which != NULL ? &which[i] : &unused));
        } else {
            dp_ref_put(s, y, i, window_mean(s, w, image, oy, ox));
        }
    }
    return DP_OK;
}

/* The gradient of input (iy, ix) of one channel; `which` is NULL for an average. */
static double pool_gradient(const struct dp_stream *s, const struct dp_window *w, const void *dy,
                            const uint8_t *which, size_t iy, size_t ix)
{
    const size_t kernel = w->kernel_h * w->kernel_w;
    double sum = 0;
    size_t oy, ox;

    for (size_t k = 0; k < kernel; k++) {
        if (!dp_window_source(w, iy, k / w->kernel_w, w->out_h, &oy) ||
            !dp_window_source(w, ix, k % w->kernel_w, w->out_w, &ox)) {
            continue;
        }
        const size_t i = (oy * w->out_w + ox) * w->out_c;
        if (which == NULL) {
            sum += (double)dp_ref_get(s, dy, i) / (double)kernel;
        } else if (which[i] == k) {
            sum += (double)dp_ref_get(s, dy, i);
        }
    }
    return sum;
}

dp_status dp_ref_pool_backward(struct dp_stream *s, void *dx, const void *dy, const uint8_t *which,
                               const struct dp_window *w, size_t rows, enum dp_pool_kind kind)
{
    if (kind == DP_POOL_MAX && which == NULL && rows > 0) {
        return DP_FAIL(DP_ERR_ARG, "gradient of a maximum without what forward kept");
    }
    for (size_t i = 0; i < rows * dp_window_in(w); i++) {
        const size_t channel = i % w->in_c, pixel = i / w->in_c;
        const size_t ix = pixel % w->in_w, iy = pixel / w->in_w % w->in_h;
        const size_t image = pixel / w->in_w / w->in_h * dp_window_out(w) + channel;
        dp_ref_put(s, dx, i,
                   (float)pool_gradient(s, w, dp_ref_at(s, dy, image),
                                        kind == DP_POOL_MAX ? which + image : NULL, iy, ix));
    }
    return DP_OK;
}
