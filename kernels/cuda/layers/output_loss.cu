/*
 * output_loss.cu - losses of each output by itself, and answers among the best: see kernels/ops.h
 * for the contracts.
 *
 * A block takes a row at a time, and reads it once: 2 e bytes an element of type size e.
 */
#include "kernels/cuda/pairs.cuh"
#include "kernels/cuda/row_sums.cuh"

/* The loss of an output x with target t, and its slope. */
template <dp_loss_kind Kind> static __device__ float loss_of(float x, float t, float *slope)
{
    if (Kind == DP_LOSS_SQUARE) {
        *slope = 2.0f * (x - t);
        return (x - t) * (x - t);
    }
    const float e = expf(-fabsf(x));
    *slope = (x >= 0.0f ? 1.0f : e) / (1.0f + e) - t;
    return (x > 0.0f ? x : 0.0f) - x * t + log1pf(e);
}

/* One row: the sum of its losses on every thread, and *score; writes the gradient where dx is
 * wanted (dx may be x). t: the target of each output; NULL: those of `pair`. */
template <dp_loss_kind Kind, typename T>
static __device__ double row_loss(T *dx, const T *x, const float *t, dp_pair pair, int outputs,
                                  float scale, void *shared, double *score)
{
    dp_best mine = {-INFINITY, INT32_MAX};
    double sum = 0, near = 0;
    float slope;

    for (int c = (int)threadIdx.x; c < outputs; c += (int)blockDim.x) {
        const float v = dp_wide(x[c]), wanted = t != nullptr ? t[c] : dp_pair_target(pair, c);
        mine = dp_better(mine, dp_best{v, c});
        sum += (double)loss_of<Kind>(v, wanted, &slope);
        near += Kind == DP_LOSS_SQUARE          ? (double)fabsf(v - wanted)
                : (v > 0.0f) == (wanted > 0.5f) ? 1.0
                                                : 0.0;
        if (dx != nullptr) {
            dp_narrow(&dx[c], slope * scale);
        }
    }
    if (Kind == DP_LOSS_SIGMOID && t == nullptr) {
        const dp_best top = dp_block_best(mine, static_cast<dp_best *>(shared));
        *score = (double)dp_pair_target(pair, top.at == INT32_MAX ? 0 : top.at);
    } else {
        *score = dp_block_sum(near, static_cast<double *>(shared)) / outputs;
    }
    return dp_block_sum(sum, static_cast<double *>(shared));
}

template <dp_loss_kind Kind, typename T>
static __global__ void output_kernel(double *partials, T *dx, const T *x, const void *targets,
                                     dp_target_kind kind, size_t rows, int outputs,
                                     const float *scale)
{
    DP_SHARED(double, shared);
    const float each = *scale / (float)outputs;
    double loss = 0, score = 0;

    for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const size_t at = row * (size_t)outputs;
        const float *t =
            kind != DP_TARGET_NUMBERS ? nullptr : static_cast<const float *>(targets) + at;
        const dp_pair pair = kind != DP_TARGET_NUMBERS
                                 ? dp_pair_at(targets, row, kind == DP_TARGET_PAIRS)
                                 : dp_pair{-1, -1, 0.0f};
        double right;
        loss += row_loss<Kind>(dx != nullptr ? dx + at : nullptr, x + at, t, pair, outputs, each,
                               shared, &right) /
                outputs;
        score += right;
    }
    dp_leave_sums(partials, loss, score);
}

template <dp_loss_kind Kind>
static dp_status launch(struct dp_stream *s, const struct dp_output_loss *how, void *dx,
                        const void *x, const void *targets, const float *scale, size_t blocks)
{
    double *partials = dp_cuda_of(s)->partials;

    DP_BY_TYPE(s->type, T, {
        DP_LAUNCH((output_kernel<Kind, T>), blocks, dp_row_threads(how->outputs),
                  32 * sizeof(double), s, partials, (T *)dx, (const T *)x, targets, how->targets,
                  how->rows, (int)how->outputs, scale);
    });
    return DP_CUDA(cudaGetLastError());
}

extern "C" dp_status dp_cuda_output_loss(struct dp_stream *s, const struct dp_output_loss *how,
                                         void *dx, float *loss, float *score, const void *x,
                                         const void *targets, const float *scale, float keep)
{
    const size_t blocks = dp_least(how->rows, DP_ROW_BLOCKS);

    if (how->outputs > INT32_MAX) {
        return DP_FAIL(DP_ERR_ARG, "%zu outputs", how->outputs);
    }
    if (how->kind == DP_LOSS_SOFTMAX) {
        return dp_cuda_softmax_pairs(s, how, dx, loss, score, x, targets, scale, keep);
    }
    DP_TRY(dp_cuda_zero(s, dp_cuda_of(s)->partials, 2 * blocks * sizeof(double)));
    if (how->rows > 0) {
        DP_TRY(how->kind == DP_LOSS_SQUARE
                   ? launch<DP_LOSS_SQUARE>(s, how, dx, x, targets, scale, blocks)
                   : launch<DP_LOSS_SIGMOID>(s, how, dx, x, targets, scale, blocks));
    }
    return dp_add_rows(s, loss, score, dp_cuda_of(s)->partials, blocks, scale, keep);
}

/* ---- the best k ---- */

template <typename T>
static __global__ void top_kernel(double *partials, const T *x, const int32_t *labels, size_t rows,
                                  int classes, size_t k)
{
    DP_SHARED(double, shared);
    double count = 0;

    for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const T *from = x + row * (size_t)classes;
        const int label = labels[row];
        const float own = dp_wide(from[label]);
        double before = 0;
        for (int c = (int)threadIdx.x; c < classes; c += (int)blockDim.x) {
            const float v = dp_wide(from[c]);
            before += v > own || (v == own && c < label) ? 1.0 : 0.0;
        }
        before = dp_block_sum(before, shared);
        count += own == own && before < (double)k ? 1.0 : 0.0;
    }
    dp_leave_sums(partials, 0.0, count);
}

extern "C" dp_status dp_cuda_count_top(struct dp_stream *s, float *count, const void *x,
                                       const int32_t *labels, size_t rows, size_t classes, size_t k,
                                       float keep)
{
    const size_t blocks = dp_least(rows, DP_ROW_BLOCKS);
    double *partials = dp_cuda_of(s)->partials;

    if (classes > INT32_MAX) {
        return DP_FAIL(DP_ERR_ARG, "%zu classes", classes);
    }
    DP_TRY(dp_cuda_zero(s, partials, 2 * blocks * sizeof(double)));
    if (rows > 0) {
        DP_BY_TYPE(s->type, T, {
            DP_LAUNCH(top_kernel<T>, blocks, dp_row_threads(classes), 32 * sizeof(double), s,
                      partials, (const T *)x, labels, rows, (int)classes, k);
        });
        DP_TRY(DP_CUDA(cudaGetLastError()));
    }
    return dp_add_rows(s, nullptr, count, partials, blocks, nullptr, keep);
}
