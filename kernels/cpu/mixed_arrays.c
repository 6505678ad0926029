/*
 * mixed_arrays.c - operations on whole arrays of bfloat16 or half, through the stream's scratch.
 *
 * A call moves 12 bytes more per element than its float32 operation, mostly within the second-level
 * cache, since models are computed in tiles of rows (models/model_place.c).
 */
#include "kernels/cpu/mixed.h"
#include "kernels/cpu/stream_cpu.h"
#include "kernels/ref/window.h"

struct dp_scratch dp_scratch_of(struct dp_stream *s)
{
    const struct dp_cpu_stream *own = dp_cpu_stream_of(s);

    return (struct dp_scratch){s, own->scratch, own->scratch_count};
}

dp_status dp_scratch_take(struct dp_scratch *scratch, size_t count, float **out)
{
    const size_t all = dp_round_up(count, DP_BLOCK);

    if (all > scratch->left) {
        return DP_FAIL(DP_ERR_INTERNAL, "%zu elements of scratch, and %zu are left", count,
                       scratch->left);
    }
    *out = scratch->next;
    scratch->next += all;
    scratch->left -= all;
    return DP_OK;
}

dp_status dp_scratch_widen(struct dp_scratch *scratch, const void *x, size_t count, float **out)
{
    *out = NULL;
    if (x == NULL) {
        return DP_OK;
    }
    DP_TRY(dp_scratch_take(scratch, count, out));
    return dp_cpu_widen(scratch->stream, *out, x, count, scratch->stream->type);
}

dp_status dp_scratch_narrow(const struct dp_scratch *scratch, void *y, const float *values,
                            size_t count)
{
    return dp_cpu_narrow(scratch->stream, y, values, count, scratch->stream->type);
}

dp_status dp_cpu_mixed_dense_forward(struct dp_stream *s, void *y, const void *x, const void *w,
                                     const void *b, size_t rows, size_t in, size_t out,
                                     enum dp_activation act)
{
    struct dp_scratch scratch = dp_scratch_of(s);
    float *values, *xs, *ws, *bs;

    DP_TRY(dp_scratch_widen(&scratch, x, rows * in, &xs));
    DP_TRY(dp_scratch_widen(&scratch, w, in * out, &ws));
    DP_TRY(dp_scratch_widen(&scratch, b, out, &bs));
    DP_TRY(dp_scratch_take(&scratch, rows * out, &values));
    DP_TRY(dp_cpu_dense_forward(s, values, xs, ws, bs, rows, in, out, act));
    return dp_scratch_narrow(&scratch, y, values, rows * out);
}

dp_status dp_cpu_mixed_dense_backward_data(struct dp_stream *s, void *dx, const void *dy,
                                           const void *w, size_t rows, size_t in, size_t out)
{
    struct dp_scratch scratch = dp_scratch_of(s);
    float *values, *dys, *ws;

    DP_TRY(dp_scratch_widen(&scratch, dy, rows * out, &dys));
    DP_TRY(dp_scratch_widen(&scratch, w, in * out, &ws));
    DP_TRY(dp_scratch_take(&scratch, rows * in, &values));
    DP_TRY(dp_cpu_dense_backward_data(s, values, dys, ws, rows, in, out));
    return dp_scratch_narrow(&scratch, dx, values, rows * in);
}

dp_status dp_cpu_mixed_dense_backward_weights(struct dp_stream *s, float *dw, const void *dy,
                                              const void *x, size_t rows, size_t in, size_t out,
                                              float keep)
{
    struct dp_scratch scratch = dp_scratch_of(s);
    float *dys, *xs;

    DP_TRY(dp_scratch_widen(&scratch, dy, rows * out, &dys));
    DP_TRY(dp_scratch_widen(&scratch, x, rows * in, &xs));
    return dp_cpu_dense_backward_weights(s, dw, dys, xs, rows, in, out, keep);
}

dp_status dp_cpu_mixed_sum_rows(struct dp_stream *s, float *db, const void *dy, size_t rows,
                                size_t cols, float keep)
{
    struct dp_scratch scratch = dp_scratch_of(s);
    float *dys;

    DP_TRY(dp_scratch_widen(&scratch, dy, rows * cols, &dys));
    return dp_cpu_sum_rows(s, db, dys, rows, cols, keep);
}

dp_status dp_cpu_mixed_pool_forward(struct dp_stream *s, void *y, uint8_t *which, const void *x,
                                    const struct dp_window *w, size_t rows, enum dp_pool_kind kind)
{
    struct dp_scratch scratch = dp_scratch_of(s);
    float *values, *xs;

    DP_TRY(dp_scratch_widen(&scratch, x, rows * dp_window_in(w), &xs));
    DP_TRY(dp_scratch_take(&scratch, rows * dp_window_out(w), &values));
    DP_TRY(dp_cpu_pool_forward(s, values, which, xs, w, rows, kind));
    return dp_scratch_narrow(&scratch, y, values, rows * dp_window_out(w));
}

dp_status dp_cpu_mixed_pool_backward(struct dp_stream *s, void *dx, const void *dy,
                                     const uint8_t *which, const struct dp_window *w, size_t rows,
                                     enum dp_pool_kind kind)
{
    struct dp_scratch scratch = dp_scratch_of(s);
    float *values, *dys;

    DP_TRY(dp_scratch_widen(&scratch, dy, rows * dp_window_out(w), &dys));
    DP_TRY(dp_scratch_take(&scratch, rows * dp_window_in(w), &values));
    DP_TRY(dp_cpu_pool_backward(s, values, dys, which, w, rows, kind));
    return dp_scratch_narrow(&scratch, dx, values, rows * dp_window_in(w));
}

dp_status dp_cpu_mixed_norm_moments(struct dp_stream *s, double *moments, size_t before,
                                    const void *x, const struct dp_norm *norm)
{
    struct dp_scratch scratch = dp_scratch_of(s);
    float *xs;

    DP_TRY(dp_scratch_widen(&scratch, x, norm->count * norm->channels, &xs));
    return dp_cpu_norm_moments(s, moments, before, xs, norm);
}

dp_status dp_cpu_mixed_norm_apply(struct dp_stream *s, void *y, const void *x, const void *add,
                                  const float *mean, const float *var, const float *gamma,
                                  const float *beta, const struct dp_norm *norm)
{
    const size_t count = norm->count * norm->channels;
    struct dp_scratch scratch = dp_scratch_of(s);
    float *xs, *adds;

    DP_TRY(dp_scratch_widen(&scratch, x, count, &xs));
    DP_TRY(dp_scratch_widen(&scratch, add, count, &adds));
    DP_TRY(dp_cpu_norm_apply(s, xs, xs, adds, mean, var, gamma, beta, norm));
    return dp_scratch_narrow(&scratch, y, xs, count);
}

dp_status dp_cpu_mixed_norm_backward_sums(struct dp_stream *s, double *sums, const void *dy,
                                          const void *x, const float *mean, const float *var,
                                          const float *gamma, const float *beta,
                                          const struct dp_norm *norm, float keep)
{
    const size_t count = norm->count * norm->channels;
    struct dp_scratch scratch = dp_scratch_of(s);
    float *dys, *xs;

    DP_TRY(dp_scratch_widen(&scratch, dy, count, &dys));
    DP_TRY(dp_scratch_widen(&scratch, x, count, &xs));
    return dp_cpu_norm_backward_sums(s, sums, dys, xs, mean, var, gamma, beta, norm, keep);
}

/* NOLINTNEXTLINE(readability-function-size): the parameters are the contract's. */
dp_status dp_cpu_mixed_norm_backward_apply(struct dp_stream *s, void *dx, const void *dy,
                                           const void *x, const float *mean, const float *var,
                                           const float *gamma, const float *beta,
                                           const double *sums, double total,
                                           const struct dp_norm *norm)
{
    const size_t count = norm->count * norm->channels;
    struct dp_scratch scratch = dp_scratch_of(s);
    float *dys, *xs;

    DP_TRY(dp_scratch_widen(&scratch, dy, count, &dys));
    DP_TRY(dp_scratch_widen(&scratch, x, count, &xs));
    DP_TRY(dp_cpu_norm_backward_apply(s, dys, dys, xs, mean, var, gamma, beta, sums, total, norm));
    return dp_scratch_narrow(&scratch, dx, dys, count);
}

dp_status dp_cpu_mixed_group_norm_forward(struct dp_stream *s, void *y, float *saved, const void *x,
                                          const void *gamma, const void *beta,
                                          const struct dp_group_norm *norm)
{
    const size_t count = norm->rows * norm->places * norm->channels;
    struct dp_scratch scratch = dp_scratch_of(s);
    float *values, *xs, *gammas, *betas;

    DP_TRY(dp_scratch_widen(&scratch, x, count, &xs));
    DP_TRY(dp_scratch_widen(&scratch, gamma, norm->channels, &gammas));
    DP_TRY(dp_scratch_widen(&scratch, beta, norm->channels, &betas));
    DP_TRY(dp_scratch_take(&scratch, count, &values));
    DP_TRY(dp_cpu_group_norm_forward(s, values, saved, xs, gammas, betas, norm));
    return dp_scratch_narrow(&scratch, y, values, count);
}

dp_status dp_cpu_mixed_group_norm_backward(struct dp_stream *s, void *dx, float *dgamma,
                                           float *dbeta, const void *dy, const void *x,
                                           const void *gamma, const float *saved,
                                           const struct dp_group_norm *norm, float keep)
{
    const size_t count = norm->rows * norm->places * norm->channels;
    struct dp_scratch scratch = dp_scratch_of(s);
    float *dys, *xs, *gammas;

    DP_TRY(dp_scratch_widen(&scratch, dy, count, &dys));
    DP_TRY(dp_scratch_widen(&scratch, x, count, &xs));
    DP_TRY(dp_scratch_widen(&scratch, gamma, norm->channels, &gammas));
    DP_TRY(dp_cpu_group_norm_backward(s, dx != NULL ? dys : NULL, dgamma, dbeta, dys, xs, gammas,
                                      saved, norm, keep));
    return dx != NULL ? dp_scratch_narrow(&scratch, dx, dys, count) : DP_OK;
}

dp_status dp_cpu_mixed_softmax_loss(struct dp_stream *s, void *dx, float *loss, float *correct,
                                    const void *x, const int32_t *labels, size_t rows,
                                    size_t classes, const float *scale, float keep)
{
    struct dp_scratch scratch = dp_scratch_of(s);
    float *xs;

    DP_TRY(dp_scratch_widen(&scratch, x, rows * classes, &xs));
    DP_TRY(dp_cpu_softmax_loss(s, dx != NULL ? xs : NULL, loss, correct, xs, labels, rows, classes,
                               scale, keep));
    return dx != NULL ? dp_scratch_narrow(&scratch, dx, xs, rows * classes) : DP_OK;
}

dp_status dp_cpu_mixed_output_loss(struct dp_stream *s, const struct dp_output_loss *how, void *dx,
                                   float *loss, float *score, const void *x, const void *targets,
                                   const float *scale, float keep)
{
    struct dp_scratch scratch = dp_scratch_of(s);
    const size_t count = how->rows * how->outputs;
    float *xs;

    DP_TRY(dp_scratch_widen(&scratch, x, count, &xs));
    DP_TRY(
        dp_cpu_output_loss(s, how, dx != NULL ? xs : NULL, loss, score, xs, targets, scale, keep));
    return dx != NULL ? dp_scratch_narrow(&scratch, dx, xs, count) : DP_OK;
}

dp_status dp_cpu_mixed_count_top(struct dp_stream *s, float *count, const void *x,
                                 const int32_t *labels, size_t rows, size_t classes, size_t k,
                                 float keep)
{
    struct dp_scratch scratch = dp_scratch_of(s);
    float *xs;

    DP_TRY(dp_scratch_widen(&scratch, x, rows * classes, &xs));
    return dp_cpu_count_top(s, count, xs, labels, rows, classes, k, keep);
}
