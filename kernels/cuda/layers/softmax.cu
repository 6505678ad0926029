/*
 * softmax.cu - softmax cross-entropy and its gradient: see kernels/ops.h for the contract.
 *
 * A block takes a row at a time, in three passes over it, of which the cache serves two: 2 e bytes
 * an element of type size e. The sums of the blocks are added by one block, in their order.
 */
#include "kernels/cuda/pairs.cuh"
#include "kernels/cuda/row_sums.cuh"

/* One row: its loss on every thread; writes the gradient where dx is wanted (dx may be x). */
template <typename T>
static __device__ float row_loss(T *dx, const T *x, dp_pair pair, int classes, float smoothing,
                                 float scale, void *shared, int *place)
{
    const float spread = smoothing / (float)classes;
    dp_best mine = {-INFINITY, INT32_MAX};
    float sum = 0, all = 0;

    for (int c = (int)threadIdx.x; c < classes; c += (int)blockDim.x) {
        mine = dp_better(mine, dp_best{dp_wide(x[c]), c});
    }
    const dp_best top = dp_block_best(mine, static_cast<dp_best *>(shared));
    const float largest = top.at == INT32_MAX ? dp_wide(x[0]) : top.value; /* all NaN */
    for (int c = (int)threadIdx.x; c < classes; c += (int)blockDim.x) {
        sum += c != top.at ? expf(dp_wide(x[c]) - largest) : 0.0f;
        all += dp_wide(x[c]) - largest;
    }
    sum = dp_block_sum(sum, static_cast<float *>(shared));
    if (smoothing > 0.0f) {
        all = dp_block_sum(all, static_cast<float *>(shared));
    }
    /* log1p keeps what exp(largest) = 1 would drown; the term of the largest is that 1. */
    const float rest = log1pf(sum), total = 1.0f + sum;
    float wanted = dp_wide(x[pair.first]) - largest;
    if (pair.other >= 0) { /* a share of 0 takes no part */
        const float left = 1.0f - pair.share;
        wanted = (pair.share > 0.0f ? pair.share * wanted : 0.0f) +
                 (left > 0.0f ? left * (dp_wide(x[pair.other]) - largest) : 0.0f);
    }
    if (smoothing > 0.0f) {
        wanted = (1.0f - smoothing) * wanted + spread * all;
    }
    *place = top.at == INT32_MAX ? 0 : top.at;
    __syncthreads(); /* all have read x, which dx may be */
    for (int c = (int)threadIdx.x; dx != nullptr && c < classes; c += (int)blockDim.x) {
        const float p = expf(dp_wide(x[c]) - largest) / total;
        const float target = (1.0f - smoothing) * dp_pair_target(pair, c) + spread;
        dp_narrow(&dx[c], (p - target) * scale);
    }
    return rest - wanted;
}

template <typename T>
static __global__ void softmax_kernel(double *partials, T *dx, const T *x, const void *labels,
                                      dp_output_loss how, const float *scale)
{
    DP_SHARED(double, shared);
    double loss = 0, correct = 0;

    for (size_t row = blockIdx.x; row < how.rows; row += gridDim.x) {
        const dp_pair pair = dp_pair_at(labels, row, how.targets == DP_TARGET_PAIRS);
        int place;
        loss += (double)row_loss(dx != nullptr ? dx + row * how.outputs : nullptr,
                                 x + row * how.outputs, pair, (int)how.outputs, how.smoothing,
                                 *scale, shared, &place);
        correct += (double)dp_pair_target(pair, place);
    }
    dp_leave_sums(partials, loss, correct);
}

extern "C" dp_status dp_cuda_softmax_pairs(struct dp_stream *s, const struct dp_output_loss *how,
                                           void *dx, float *loss, float *score, const void *x,
                                           const void *labels, const float *scale, float keep)
{
    const size_t blocks = dp_least(how->rows, DP_ROW_BLOCKS);
    double *partials = dp_cuda_of(s)->partials;

    if (how->outputs > INT32_MAX) {
        return DP_FAIL(DP_ERR_ARG, "%zu classes", how->outputs);
    }
    DP_TRY(dp_cuda_zero(s, partials, 2 * blocks * sizeof(double)));
    if (how->rows > 0) {
        DP_BY_TYPE(s->type, T, {
            DP_LAUNCH(softmax_kernel<T>, blocks, dp_row_threads(how->outputs), 32 * sizeof(double),
                      s, partials, (T *)dx, (const T *)x, labels, *how, scale);
        });
        DP_TRY(DP_CUDA(cudaGetLastError()));
    }
    return dp_add_rows(s, loss, score, partials, blocks, scale, keep);
}

extern "C" dp_status dp_cuda_softmax_loss(struct dp_stream *s, void *dx, float *loss,
                                          float *correct, const void *x, const int32_t *labels,
                                          size_t rows, size_t classes, const float *scale,
                                          float keep)
{
    const struct dp_output_loss how = {DP_LOSS_SOFTMAX, rows, classes, DP_TARGET_CLASSES, 0};

    return dp_cuda_softmax_pairs(s, &how, dx, loss, correct, x, labels, scale, keep);
}
