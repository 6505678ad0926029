/*
 * mixed_onednn.c - convolutions of bfloat16 or half by oneDNN, in float32 or in bfloat16.
 */
#include "kernels/cpu/mixed.h"
#include "kernels/cpu/onednn/conv_onednn.h"
#include "kernels/ref/window.h"

dp_status dp_cpu_mixed_conv_forward(struct dp_stream *s, void *y, const void *x,
                                    const void *weights, const void *bias,
                                    const struct dp_window *w, size_t rows, enum dp_activation act)
{
    struct dp_scratch scratch = dp_scratch_of(s);
    float *values, *xs, *ws, *bs;

    DP_TRY(dp_scratch_widen(&scratch, x, rows * dp_window_in(w), &xs));
    DP_TRY(dp_scratch_widen(&scratch, weights, dp_window_weights(w), &ws));
    DP_TRY(dp_scratch_widen(&scratch, bias, w->out_c, &bs));
    DP_TRY(dp_scratch_take(&scratch, rows * dp_window_out(w), &values));
    DP_TRY(dp_cpu_conv_forward(s, values, xs, ws, bs, w, rows, act));
    return dp_scratch_narrow(&scratch, y, values, rows * dp_window_out(w));
}

dp_status dp_cpu_mixed_conv_backward_data(struct dp_stream *s, void *dx, const void *dy,
                                          const void *weights, const struct dp_window *w,
                                          size_t rows)
{
    struct dp_scratch scratch = dp_scratch_of(s);
    float *values, *dys, *ws;

    DP_TRY(dp_scratch_widen(&scratch, dy, rows * dp_window_out(w), &dys));
    DP_TRY(dp_scratch_widen(&scratch, weights, dp_window_weights(w), &ws));
    DP_TRY(dp_scratch_take(&scratch, rows * dp_window_in(w), &values));
    DP_TRY(dp_cpu_conv_backward_data(s, values, dys, ws, w, rows));
    return dp_scratch_narrow(&scratch, dx, values, rows * dp_window_in(w));
}

dp_status dp_cpu_mixed_conv_backward_weights(struct dp_stream *s, float *dw, float *db,
                                             const void *dy, const void *x,
                                             const struct dp_window *w, size_t rows, float keep)
{
    struct dp_scratch scratch = dp_scratch_of(s);
    float *dys, *xs;

    DP_TRY(dp_scratch_widen(&scratch, dy, rows * dp_window_out(w), &dys));
    DP_TRY(dp_scratch_widen(&scratch, x, rows * dp_window_in(w), &xs));
    return dp_cpu_conv_backward_weights(s, dw, db, dys, xs, w, rows, keep);
}

/* ---- bfloat16, where the processor has its arithmetic ---- */

dp_status dp_cpu_bf16_conv_prepare(struct dp_stream *s, const struct dp_window *w, size_t rows,
                                   unsigned uses)
{
    return dp_conv_prepare(s, DP_TYPE_BF16, w, rows, uses);
}

dp_status dp_cpu_bf16_conv_forward(struct dp_stream *s, void *y, const void *x, const void *weights,
                                   const void *bias, const struct dp_window *w, size_t rows,
                                   enum dp_activation act)
{
    DP_TRY(dp_conv_forward(s, DP_TYPE_BF16, y, x, weights, bias, w, rows));
    return act == DP_ACT_RELU ? dp_cpu_bfloat_relu_forward(s, y, y, rows * dp_window_out(w))
                              : DP_OK;
}

dp_status dp_cpu_bf16_conv_backward_data(struct dp_stream *s, void *dx, const void *dy,
                                         const void *weights, const struct dp_window *w,
                                         size_t rows)
{
    return dp_conv_backward_data(s, DP_TYPE_BF16, dx, dy, weights, w, rows);
}

dp_status dp_cpu_bf16_conv_backward_weights(struct dp_stream *s, float *dw, float *db,
                                            const void *dy, const void *x,
                                            const struct dp_window *w, size_t rows, float keep)
{
    return dp_conv_backward_weights(s, DP_TYPE_BF16, dw, db, dy, x, w, rows, keep);
}
