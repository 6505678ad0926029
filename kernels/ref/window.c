#include "kernels/ref/window.h"

static bool fits(const struct dp_window *w, size_t in, size_t kernel, size_t out)
{
    return in > 0 && kernel > 0 && in + 2 * w->padding >= kernel &&
           out == (in + 2 * w->padding - kernel) / w->stride + 1;
}

dp_status dp_window_check(const struct dp_window *w)
{
    if (w->in_c == 0 || w->out_c == 0 || w->stride == 0 ||
        !fits(w, w->in_h, w->kernel_h, w->out_h) || !fits(w, w->in_w, w->kernel_w, w->out_w)) {
        return DP_FAIL(DP_ERR_ARG,
                       "window %zux%zu, stride %zu, padding %zu over %zux%zux%zu does not give "
                       "%zux%zux%zu",
                       w->kernel_h, w->kernel_w, w->stride, w->padding, w->in_h, w->in_w, w->in_c,
                       w->out_h, w->out_w, w->out_c);
    }
    if (w->in_c % dp_window_groups(w) != 0 || w->out_c % dp_window_groups(w) != 0) {
        return DP_FAIL(DP_ERR_ARG, "%zu channels into %zu do not divide into %zu groups", w->in_c,
                       w->out_c, w->groups);
    }
    return DP_OK;
}

dp_status dp_window_check_pool(const struct dp_window *w, enum dp_pool_kind kind)
{
    DP_TRY(dp_window_check(w));
    if (w->in_c != w->out_c) {
        return DP_FAIL(DP_ERR_ARG, "a pool of %zu channels into %zu", w->in_c, w->out_c);
    }
    if (w->padding >= w->kernel_h || w->padding >= w->kernel_w) {
        return DP_FAIL(DP_ERR_ARG, "a pool of %zux%zu with padding %zu has empty windows",
                       w->kernel_h, w->kernel_w, w->padding);
    }
    if (kind == DP_POOL_MAX && w->kernel_h * w->kernel_w > UINT8_MAX) {
        return DP_FAIL(DP_ERR_ARG, "a maximum over %zux%zu elements: at most 255", w->kernel_h,
                       w->kernel_w);
    }
    return DP_OK;
}
