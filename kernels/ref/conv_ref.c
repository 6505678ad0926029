#include "kernels/op_path.h"
#include "kernels/ref/element.h"
#include "kernels/ref/ops_ref.h"
#include "kernels/ref/window.h"

dp_status dp_ref_conv_prepare(struct dp_stream *s, const struct dp_window *w, size_t rows,
                              unsigned uses)
{
    (void)s;
    (void)rows;
    (void)uses;
    return dp_window_check(w);
}

/* Elements of the weights of one output channel. */
static size_t kernel_of(const struct dp_window *w)
{
    return w->kernel_h * w->kernel_w * dp_window_fan(w);
}

/* The first input channel of the group that output channel `oc` belongs to. */
static size_t first_in(const struct dp_window *w, size_t oc)
{
    return oc / (w->out_c / dp_window_groups(w)) * dp_window_fan(w);
}

/* One output: the window at (oy, ox) of image x [in_h, in_w, in_c], from channel `first` on, times
 * weights k [kernel_h, kernel_w, fan]. */
static double window_dot(const struct dp_stream *s, const struct dp_window *w, const void *x,
                         size_t first, const void *k, size_t oy, size_t ox)
{
    const size_t fan = dp_window_fan(w);
    size_t y0, y1, x0, x1;
    double sum = 0;

    dp_window_inside(w, oy, w->in_h, w->kernel_h, &y0, &y1);
    dp_window_inside(w, ox, w->in_w, w->kernel_w, &x0, &x1);
    for (size_t ky = y0; ky < y1; ky++) {
        for (size_t kx = x0; kx < x1; kx++) {
            const size_t iy = oy * w->stride + ky - w->padding;
            const size_t ix = ox * w->stride + kx - w->padding;
            const void *pixel = dp_ref_at(s, x, (iy * w->in_w + ix) * w->in_c + first);
            const void *weight = dp_ref_at(s, k, (ky * w->kernel_w + kx) * fan);
            for (size_t c = 0; c < fan; c++) {
                sum += (double)dp_ref_get(s, pixel, c) * (double)dp_ref_get(s, weight, c);
            }
        }
    }
    return sum;
}

dp_status dp_ref_conv_forward(struct dp_stream *s, void *y, const void *x, const void *weights,
                              const void *bias, const struct dp_window *w, size_t rows,
                              enum dp_activation act)
{
    const size_t kernel = kernel_of(w);

    dp_op_path_note(s, "ref", "loops");
    for (size_t i = 0; i < rows * dp_window_out(w); i++) {
        const size_t channel = i % w->out_c, pixel = i / w->out_c;
        const size_t ox = pixel % w->out_w, oy = pixel / w->out_w % w->out_h;
        const size_t row = pixel / w->out_w / w->out_h;
        const double sum =
            window_dot(s, w, dp_ref_at(s, x, row * dp_window_in(w)), first_in(w, channel),
                       dp_ref_at(s, weights, channel * kernel), oy, ox) +
            (bias != NULL ? (double)dp_ref_get(s, bias, channel) : 0.0);
        dp_ref_put(s, y, i, act == DP_ACT_RELU && sum < 0 ? 0.0f : (float)sum);
    }
    return DP_OK;
}

/* The gradient of input (iy, ix, channel): every output whose window reads it. */
static double input_gradient(const struct dp_stream *s, const struct dp_window *w, const void *dy,
                             const void *weights, size_t iy, size_t ix, size_t channel)
{
    const size_t kernel = kernel_of(w), fan = dp_window_fan(w);
    const size_t outs = w->out_c / dp_window_groups(w), first = channel / fan * outs;
    double sum = 0;
    size_t oy, ox;

    for (size_t k = 0; k < w->kernel_h * w->kernel_w; k++) {
        const void *weight = dp_ref_at(s, weights, k * fan + channel % fan);
        if (!dp_window_source(w, iy, k / w->kernel_w, w->out_h, &oy) ||
            !dp_window_source(w, ix, k % w->kernel_w, w->out_w, &ox)) {
            continue;
        }
        for (size_t c = first; c < first + outs; c++) {
            sum += (double)dp_ref_get(s, dy, (oy * w->out_w + ox) * w->out_c + c) *
                   (double)dp_ref_get(s, weight, c * kernel);
        }
    }
    return sum;
}

dp_status dp_ref_conv_backward_data(struct dp_stream *s, void *dx, const void *dy,
                                    const void *weights, const struct dp_window *w, size_t rows)
{
    dp_op_path_note(s, "ref", "loops");
    for (size_t i = 0; i < rows * dp_window_in(w); i++) {
        const size_t channel = i % w->in_c, pixel = i / w->in_c;
        const size_t ix = pixel % w->in_w, iy = pixel / w->in_w % w->in_h;
        const size_t row = pixel / w->in_w / w->in_h;
        const void *image = dp_ref_at(s, dy, row * dp_window_out(w));
        dp_ref_put(s, dx, i, (float)input_gradient(s, w, image, weights, iy, ix, channel));
    }
    return DP_OK;
}

/* The gradient of weight (ky, kx, ic) of output channel oc over one image. */
static double weight_gradient(const struct dp_stream *s, const struct dp_window *w, const void *dy,
                              const void *x, size_t oc, size_t ky, size_t kx, size_t ic)
{
    size_t begin, end;
    double sum = 0;

    for (size_t i = 0; i < w->out_h * w->out_w; i++) {
        const size_t oy = i / w->out_w, ox = i % w->out_w;
        dp_window_inside(w, oy, w->in_h, w->kernel_h, &begin, &end);
        if (ky < begin || ky >= end) {
            continue;
        }
        dp_window_inside(w, ox, w->in_w, w->kernel_w, &begin, &end);
        if (kx >= begin && kx < end) {
            const size_t iy = oy * w->stride + ky - w->padding;
            const size_t ix = ox * w->stride + kx - w->padding;
            sum += (double)dp_ref_get(s, dy, i * w->out_c + oc) *
                   (double)dp_ref_get(s, x, (iy * w->in_w + ix) * w->in_c + ic);
        }
    }
    return sum;
}

dp_status dp_ref_conv_backward_weights(struct dp_stream *s, float *dw, float *db, const void *dy,
                                       const void *x, const struct dp_window *w, size_t rows,
                                       float keep)
{
    const size_t kernel = kernel_of(w);

    dp_op_path_note(s, "ref", "loops");
    for (size_t i = 0; i < w->out_c * kernel; i++) {
        const size_t fan = dp_window_fan(w), oc = i / kernel, k = i % kernel / fan;
        double sum = keep != 0 ? (double)dw[i] : 0.0;
        for (size_t row = 0; row < rows; row++) {
            sum += weight_gradient(s, w, dp_ref_at(s, dy, row * dp_window_out(w)),
                                   dp_ref_at(s, x, row * dp_window_in(w)), oc, k / w->kernel_w,
                                   k % w->kernel_w, first_in(w, oc) + i % fan);
        }
        dw[i] = (float)sum;
    }
    for (size_t c = 0; db != NULL && c < w->out_c; c++) {
        double sum = keep != 0 ? (double)db[c] : 0.0;
        for (size_t i = c; i < rows * dp_window_out(w); i += w->out_c) {
            sum += (double)dp_ref_get(s, dy, i);
        }
        db[c] = (float)sum;
    }
    return DP_OK;
}
