/*
 * conv_cuda.c - which engine computes a convolution: see conv_cuda.h.
 */
#include "kernels/cuda/layers/conv_cuda.h"

#include <stdio.h>

#include "base/log.h"
#include "kernels/cuda/cudnn/cudnn_api.h"
#include "kernels/ref/window.h"

/* Version 8 counts 8.9.7 as 8907, version 9 counts 9.19.0 as 91900. */
static void write_version(char *text, size_t size, size_t version)
{
    const size_t major = version >= 90000 ? 10000 : 1000;

    (void)snprintf(text, size, "cudnn %zu.%zu.%zu", version / major, version % major / 100,
                   version % 100);
}

dp_status dp_cuda_find_conv(enum dp_conv_engine wanted, const char **text)
{
    static _Thread_local char found[400];
    const char *why_not = NULL;
    const struct dp_cudnn *library = wanted == DP_CONV_CUBLAS ? NULL : dp_cudnn_library(&why_not);

    if (wanted == DP_CONV_CUDNN && library == NULL) {
        return DP_FAIL(DP_ERR_UNAVAILABLE,
                       "device.conv: cudnn: %s; install it, or leave device.conv at auto", why_not);
    }
    if (library != NULL) {
        write_version(found, sizeof(found), library->version());
    } else {
        (void)snprintf(found, sizeof(found), "cublas%s%s%s", why_not != NULL ? " (" : "",
                       why_not != NULL ? why_not : "", why_not != NULL ? ")" : "");
    }
    *text = found;
    return DP_OK;
}

void dp_cuda_conv_text(char text[DP_CONV_TEXT], const struct dp_window *w, size_t rows)
{
    (void)snprintf(text, DP_CONV_TEXT, "%zux%zux%zu -> %zux%zux%zu by %zux%zu of %zu row%s",
                   w->in_h, w->in_w, w->in_c, w->out_h, w->out_w, w->out_c, w->kernel_h,
                   w->kernel_w, rows, dp_plural(rows));
}

/* Whether the stream's engine may be cudnn. */
static bool may_use_cudnn(const struct dp_stream *s)
{
    const char *why_not;

    return s->conv == DP_CONV_CUDNN ||
           (s->conv == DP_CONV_AUTO && dp_cudnn_library(&why_not) != NULL);
}

static dp_status prepare_use(struct dp_stream *s, const struct dp_window *w, size_t rows,
                             unsigned uses)
{
    char text[DP_CONV_TEXT];
    bool found = false;

    if (may_use_cudnn(s)) {
        DP_TRY(dp_cudnn_conv_prepare(s, w, rows, uses, &found));
    }
    if (!found && s->conv == DP_CONV_CUDNN) {
        dp_cuda_conv_text(text, w, rows);
        return DP_FAIL(DP_ERR_UNAVAILABLE,
                       "device.conv: cudnn has no convolution %s in this precision; auto takes "
                       "cublas for it",
                       text);
    }
    return found ? DP_OK : dp_cublas_conv_prepare(s, w, rows, uses);
}

dp_status dp_cuda_conv_prepare(struct dp_stream *s, const struct dp_window *w, size_t rows,
                               unsigned uses)
{
    const unsigned backwards[] = {DP_CONV_BACKWARD_DATA, DP_CONV_BACKWARD_WEIGHTS};

    DP_TRY(dp_window_check(w));
    if (rows == 0) {
        return DP_OK;
    }
    if ((uses & DP_CONV_FORWARD) != 0) {
        DP_TRY(prepare_use(s, w, rows, uses & (DP_CONV_FORWARD | DP_CONV_BIAS | DP_CONV_RELU)));
    }
    for (int i = 0; i < 2; i++) {
        if ((uses & backwards[i]) != 0) {
            DP_TRY(prepare_use(s, w, rows, backwards[i]));
        }
    }
    return DP_OK;
}

/* Whether cublas takes over what cuDNN, with this status, has not computed. */
static bool falls_back(const struct dp_stream *s, dp_status status)
{
    return status == DP_ERR_UNAVAILABLE && s->conv == DP_CONV_AUTO;
}

dp_status dp_cuda_conv_forward(struct dp_stream *s, void *y, const void *x, const void *weights,
                               const void *bias, const struct dp_window *w, size_t rows,
                               enum dp_activation act)
{
    const unsigned uses = DP_CONV_FORWARD | (bias != NULL ? (unsigned)DP_CONV_BIAS : 0u) |
                          (act == DP_ACT_RELU ? (unsigned)DP_CONV_RELU : 0u);
    const struct dp_conv *conv = dp_cudnn_conv_find(s, w, rows, uses);
    dp_status status;

    if (conv != NULL) {
        status = dp_cudnn_conv_forward(s, conv, y, x, weights, bias);
        if (!falls_back(s, status)) {
            return status;
        }
        DP_TRY(dp_cublas_conv_prepare(s, w, rows, uses));
    }
    return dp_cublas_conv_forward(s, y, x, weights, bias, w, rows, act);
}

dp_status dp_cuda_conv_backward_data(struct dp_stream *s, void *dx, const void *dy,
                                     const void *weights, const struct dp_window *w, size_t rows)
{
    const struct dp_conv *conv = dp_cudnn_conv_find(s, w, rows, DP_CONV_BACKWARD_DATA);
    dp_status status;

    if (conv != NULL) {
        status = dp_cudnn_conv_backward_data(s, conv, dx, dy, weights);
        if (!falls_back(s, status)) {
            return status;
        }
        DP_TRY(dp_cublas_conv_prepare(s, w, rows, DP_CONV_BACKWARD_DATA));
    }
    return dp_cublas_conv_backward_data(s, dx, dy, weights, w, rows);
}

dp_status dp_cuda_conv_backward_weights(struct dp_stream *s, float *dw, float *db, const void *dy,
                                        const void *x, const struct dp_window *w, size_t rows,
                                        float keep)
{
    const struct dp_conv *conv = dp_cudnn_conv_find(s, w, rows, DP_CONV_BACKWARD_WEIGHTS);
    dp_status status;

    if (conv != NULL) {
        status = dp_cudnn_conv_backward_weights(s, conv, dw, dy, x, keep);
        if (!falls_back(s, status)) {
            DP_TRY(status);
            return db == NULL
                       ? DP_OK
                       : dp_cuda_sum_rows(s, db, dy, rows * w->out_h * w->out_w, w->out_c, keep);
        }
        DP_TRY(dp_cublas_conv_prepare(s, w, rows, DP_CONV_BACKWARD_WEIGHTS));
    }
    return dp_cublas_conv_backward_weights(s, dw, db, dy, x, w, rows, keep);
}
