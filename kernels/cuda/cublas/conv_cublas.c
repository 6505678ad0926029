/*
 * conv_cublas.c - convolutions as products of matrices, a few images at a time.
 *
 * 2 pixels kernel_h kernel_w in_c out_c FLOPs each, where pixels = rows out_h out_w. The windows of
 * a tile of images are written out as the rows of a matrix (im2col.cu), DP_CUDA_COLUMNS bytes at
 * most, so that they are read again from the cache; a kernel of 1x1 with stride 1 needs no columns,
 * since its images are that matrix already.
 *
 *   forward            y  [pixels, out_c]  = columns weights' + bias
 *   backward, weights  dw [out_c, taps]    = dy' columns, tile after tile
 *   backward, data     columns             = dy weights, then gathered into dx: in float32, so that
 *                                            dx is rounded once
 */
#include "kernels/cuda/cublas/matmul_cublas.h"
#include "kernels/cuda/layers/conv_cuda.h"
#include "kernels/cuda/ops_cuda.h"
#include "kernels/cuda/stream/scratch_cuda.h"
#include "kernels/cuda/stream/stream_cuda.h"
#include "kernels/ref/window.h"

static bool is_plain(const struct dp_window *w)
{
    return w->kernel_h == 1 && w->kernel_w == 1 && w->stride == 1 && w->padding == 0;
}

static size_t taps_of(const struct dp_window *w)
{
    return w->kernel_h * w->kernel_w * w->in_c;
}

static size_t pixels_of(const struct dp_window *w, size_t rows)
{
    return rows * w->out_h * w->out_w;
}

/* Room for columns of either direction. */
static size_t columns_bytes(const struct dp_window *w, size_t rows)
{
    return pixels_of(w, rows) * taps_of(w) * sizeof(float);
}

/* Images whose columns are written out at a time. */
static size_t tile_rows(const struct dp_window *w, size_t rows)
{
    const size_t tile = is_plain(w) ? rows : DP_CUDA_COLUMNS / columns_bytes(w, 1);

    return tile == 0 ? 1 : tile < rows ? tile : rows;
}

static struct dp_matmul forward_shape(const struct dp_window *w, size_t rows, bool bias,
                                      enum dp_activation act)
{
    return (struct dp_matmul){.m = pixels_of(w, rows),
                              .n = w->out_c,
                              .k = taps_of(w),
                              .b_order = DP_TRANSPOSED,
                              .bias = bias,
                              .act = (uint32_t)act};
}

static struct dp_matmul data_shape(const struct dp_window *w, size_t rows)
{
    return (struct dp_matmul){
        .m = pixels_of(w, rows), .n = taps_of(w), .k = w->out_c, .wide = is_plain(w) ? 0 : 1};
}

static struct dp_matmul weights_shape(const struct dp_window *w, size_t rows)
{
    return (struct dp_matmul){.m = w->out_c,
                              .n = taps_of(w),
                              .k = pixels_of(w, rows),
                              .a_order = DP_TRANSPOSED,
                              .wide = 1};
}

static dp_status prepare_products(struct dp_stream *s, const struct dp_window *w, size_t rows,
                                  unsigned uses)
{
    const enum dp_activation act = (uses & DP_CONV_RELU) != 0 ? DP_ACT_RELU : DP_ACT_NONE;
    const struct dp_matmul forward = forward_shape(w, rows, (uses & DP_CONV_BIAS) != 0, act);
    const struct dp_matmul data = data_shape(w, rows), weights = weights_shape(w, rows);

    if ((uses & DP_CONV_FORWARD) != 0) {
        DP_TRY(dp_matmul_prepare(s, &forward));
    }
    if ((uses & DP_CONV_BACKWARD_DATA) != 0) {
        DP_TRY(dp_matmul_prepare(s, &data));
    }
    return (uses & DP_CONV_BACKWARD_WEIGHTS) != 0 ? dp_matmul_prepare(s, &weights) : DP_OK;
}

dp_status dp_cublas_conv_prepare(struct dp_stream *s, const struct dp_window *w, size_t rows,
                                 unsigned uses)
{
    DP_TRY(dp_window_check(w));
    if (rows == 0 || dp_window_groups(w) > 1) {
        return DP_OK;
    }
    const size_t tile = tile_rows(w, rows);
    if (!is_plain(w)) {
        DP_TRY(dp_cuda_scratch_grow(s, &dp_cuda_of(s)->columns, columns_bytes(w, tile),
                                    "windows of a convolution"));
    }
    DP_TRY(prepare_products(s, w, tile, uses));
    return rows % tile == 0 ? DP_OK : prepare_products(s, w, rows % tile, uses);
}

/* Images [begin, begin + count) of a tile. */
static struct dp_range tile_at(size_t rows, size_t tile, size_t begin)
{
    return (struct dp_range){begin, rows - begin < tile ? rows - begin : tile};
}

static const void *at(const struct dp_stream *s, const void *array, size_t elements)
{
    return (const char *)array + elements * dp_type_bytes(s->type);
}

static void *to(const struct dp_stream *s, void *array, size_t elements)
{
    return (char *)array + elements * dp_type_bytes(s->type);
}

/* The columns of a tile of x: written out, or x itself. */
static dp_status columns_of(struct dp_stream *s, const struct dp_window *w, const void *x,
                            struct dp_range rows, const void **columns)
{
    const struct dp_cuda *cuda = dp_cuda_of(s);
    const void *images = at(s, x, rows.begin * dp_window_in(w));

    *columns = is_plain(w) ? images : cuda->columns.memory;
    if (is_plain(w)) {
        return DP_OK;
    }
    if (columns_bytes(w, rows.count) > cuda->columns.bytes) {
        return DP_FAIL(DP_ERR_INTERNAL, "a convolution of %zu rows was not prepared", rows.count);
    }
    return dp_cuda_im2col(s, cuda->columns.memory, images, w, rows.count);
}

dp_status dp_cublas_conv_forward(struct dp_stream *s, void *y, const void *x, const void *weights,
                                 const void *bias, const struct dp_window *w, size_t rows,
                                 enum dp_activation act)
{
    const size_t tile = tile_rows(w, rows);

    if (dp_window_groups(w) > 1) {
        return dp_cuda_group_conv_forward(s, y, x, weights, bias, w, rows, act);
    }
    for (size_t begin = 0; begin < rows; begin += tile) {
        const struct dp_range range = tile_at(rows, tile, begin);
        const struct dp_matmul shape = forward_shape(w, range.count, bias != NULL, act);
        const void *columns;
        DP_TRY(columns_of(s, w, x, range, &columns));
        DP_TRY(dp_matmul_run(s, &shape, to(s, y, begin * dp_window_out(w)), columns, weights, bias,
                             NULL, 0.0f));
    }
    return DP_OK;
}

dp_status dp_cublas_conv_backward_data(struct dp_stream *s, void *dx, const void *dy,
                                       const void *weights, const struct dp_window *w, size_t rows)
{
    const size_t tile = tile_rows(w, rows);

    if (dp_window_groups(w) > 1) {
        return dp_cuda_group_conv_backward_data(s, dx, dy, weights, w, rows);
    }
    for (size_t begin = 0; begin < rows; begin += tile) {
        const struct dp_range range = tile_at(rows, tile, begin);
        const struct dp_matmul shape = data_shape(w, range.count);
        void *images = to(s, dx, begin * dp_window_in(w));
        void *columns = is_plain(w) ? images : dp_cuda_of(s)->columns.memory;
        DP_TRY(dp_matmul_run(s, &shape, columns, at(s, dy, begin * dp_window_out(w)), weights, NULL,
                             NULL, 0.0f));
        if (!is_plain(w)) {
            DP_TRY(dp_cuda_col2im(s, images, columns, w, range.count));
        }
    }
    return DP_OK;
}

dp_status dp_cublas_conv_backward_weights(struct dp_stream *s, float *dw, float *db, const void *dy,
                                          const void *x, const struct dp_window *w, size_t rows,
                                          float keep)
{
    const size_t tile = tile_rows(w, rows);

    if (rows == 0 && keep == 0.0f) {
        DP_TRY(dp_cuda_zero(s, dw, dp_window_weights(w) * sizeof(float)));
    } else if (dp_window_groups(w) > 1 && rows > 0) {
        DP_TRY(dp_cuda_group_conv_backward_weights(s, dw, dy, x, w, rows, keep));
    }
    for (size_t begin = 0; begin < rows && dp_window_groups(w) == 1; begin += tile) {
        const struct dp_range range = tile_at(rows, tile, begin);
        const struct dp_matmul shape = weights_shape(w, range.count);
        const void *columns;
        DP_TRY(columns_of(s, w, x, range, &columns));
        DP_TRY(dp_matmul_run(s, &shape, dw, at(s, dy, begin * dp_window_out(w)), columns, NULL,
                             NULL, begin > 0 ? 1.0f : keep));
    }
    return db == NULL ? DP_OK : dp_cuda_sum_rows(s, db, dy, pixels_of(w, rows), w->out_c, keep);
}
