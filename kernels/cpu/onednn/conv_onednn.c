#include "kernels/cpu/onednn/conv_onednn.h"
#include "kernels/cpu/onednn/choose_onednn.h"
#include "kernels/cpu/onednn/prepared_onednn.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/ref/window.h"

/* Prepares one use, unless it is prepared already. */
static dp_status prepare_use(struct dp_stream *s, const struct dp_prepared_key *key)
{
    struct dp_prepared_onednn *all = NULL;
    struct dp_prepared_conv *conv = NULL;
    dp_status status;
    int before;

    DP_TRY(dp_prepared_open(s, &all));
    if (dp_prepared_has(all, key)) {
        return DP_OK;
    }
    before = dp_prepared_threads(s->threads);
    status = dp_onednn_choose(s, key, &conv);
    (void)dp_prepared_threads(before);
    DP_TRY(status);
    return dp_prepared_add(all, conv);
}

dp_status dp_conv_prepare(struct dp_stream *s, enum dp_type type, const struct dp_window *w,
                          size_t rows, unsigned uses)
{
    static const unsigned single[] = {DP_CONV_FORWARD, DP_CONV_BACKWARD_DATA,
                                      DP_CONV_BACKWARD_WEIGHTS};

    DP_TRY(dp_window_check(w));
    for (size_t i = 0; rows > 0 && i < sizeof(single) / sizeof(single[0]); i++) {
        struct dp_prepared_key key = {
            .window = *w, .rows = rows, .use = uses & single[i], .type = type};
        if (key.use == 0) {
            continue;
        }
        if (key.use != DP_CONV_BACKWARD_DATA) {
            key.use |= uses & DP_CONV_BIAS;
        }
        DP_TRY(prepare_use(s, &key));
    }
    return DP_OK;
}

dp_status dp_conv_forward(struct dp_stream *s, enum dp_type type, void *y, const void *x,
                          const void *weights, const void *bias, const struct dp_window *w,
                          size_t rows)
{
    const unsigned use = DP_CONV_FORWARD | (bias != NULL ? (unsigned)DP_CONV_BIAS : 0u);
    const struct dp_prepared_key key = {.window = *w, .rows = rows, .use = use, .type = type};
    struct dp_prepared_conv *conv;

    if (rows == 0) {
        return DP_OK;
    }
    DP_TRY(dp_prepared_find(s, &key, &conv));
    return dp_prepared_run(s, conv, &(struct dp_prepared_arrays){x, y, weights, bias, false});
}

dp_status dp_conv_backward_data(struct dp_stream *s, enum dp_type type, void *dx, const void *dy,
                                const void *weights, const struct dp_window *w, size_t rows)
{
    const struct dp_prepared_key key = {
        .window = *w, .rows = rows, .use = DP_CONV_BACKWARD_DATA, .type = type};
    struct dp_prepared_conv *conv;

    if (rows == 0) {
        return DP_OK;
    }
    DP_TRY(dp_prepared_find(s, &key, &conv));
    return dp_prepared_run(s, conv, &(struct dp_prepared_arrays){dx, dy, weights, NULL, false});
}

/* A batch without rows: sums become 0, or are unchanged. */
static dp_status no_rows(struct dp_stream *s, float *dw, float *db, const struct dp_window *w,
                         float keep)
{
    if (keep != 0) {
        return DP_OK;
    }
    DP_TRY(dp_cpu_zero(s, dw, dp_window_weights(w) * sizeof(*dw)));
    if (db != NULL) {
        DP_TRY(dp_cpu_zero(s, db, w->out_c * sizeof(*db)));
    }
    return DP_OK;
}

/* Primitives overwrite their output. With `keep` they write to scratch, which is then added; ours
 * add by themselves. */
dp_status dp_conv_backward_weights(struct dp_stream *s, enum dp_type type, float *dw, float *db,
                                   const void *dy, const void *x, const struct dp_window *w,
                                   size_t rows, float keep)
{
    const unsigned use = DP_CONV_BACKWARD_WEIGHTS | (db != NULL ? (unsigned)DP_CONV_BIAS : 0u);
    const struct dp_prepared_key key = {.window = *w, .rows = rows, .use = use, .type = type};
    const struct dp_prepared_onednn *all = s->state;
    struct dp_prepared_conv *conv;
    float *plain, *bias;

    if (rows == 0) {
        return no_rows(s, dw, db, w, keep);
    }
    DP_TRY(dp_prepared_find(s, &key, &conv));
    if (conv->primitive == NULL) {
        return dp_prepared_run(s, conv, &(struct dp_prepared_arrays){x, dy, dw, db, keep != 0});
    }
    plain = keep != 0 ? (float *)(void *)(all->arena + conv->plain_at) : dw;
    bias = keep != 0 ? (float *)(void *)(all->arena + conv->bias_at) : db;
    DP_TRY(dp_prepared_run(s, conv, &(struct dp_prepared_arrays){x, dy, plain, bias, false}));
    if (keep != 0) {
        DP_TRY(dp_cpu_add(s, dw, plain, dp_window_weights(w)));
        if (db != NULL) {
            DP_TRY(dp_cpu_add(s, db, bias, w->out_c));
        }
    }
    return DP_OK;
}

/* ---- float32 ---- */

dp_status dp_cpu_conv_prepare(struct dp_stream *s, const struct dp_window *w, size_t rows,
                              unsigned uses)
{
    return dp_conv_prepare(s, DP_TYPE_F32, w, rows, uses);
}

dp_status dp_cpu_conv_forward(struct dp_stream *s, void *y, const void *x, const void *weights,
                              const void *bias, const struct dp_window *w, size_t rows,
                              enum dp_activation act)
{
    DP_TRY(dp_conv_forward(s, DP_TYPE_F32, y, x, weights, bias, w, rows));
    return act == DP_ACT_RELU ? dp_cpu_relu_forward(s, y, y, rows * dp_window_out(w)) : DP_OK;
}

dp_status dp_cpu_conv_backward_data(struct dp_stream *s, void *dx, const void *dy,
                                    const void *weights, const struct dp_window *w, size_t rows)
{
    return dp_conv_backward_data(s, DP_TYPE_F32, dx, dy, weights, w, rows);
}

dp_status dp_cpu_conv_backward_weights(struct dp_stream *s, float *dw, float *db, const void *dy,
                                       const void *x, const struct dp_window *w, size_t rows,
                                       float keep)
{
    return dp_conv_backward_weights(s, DP_TYPE_F32, dw, db, dy, x, w, rows, keep);
}
