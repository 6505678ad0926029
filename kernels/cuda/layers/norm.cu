/*
 * norm.cu - batch normalisation, forward, with its rectifier: see kernels/ops.h for the contracts.
 *
 * Bytes moved per element of type size e: moments e, apply 2 e (3 e where it adds a residual's
 * other branch); so forward 3 e. All are bound by memory. What has a value for each channel is
 * small: a warp makes it from the sums of its channel, and each thread, whose channels stay the
 * same while it goes down the rows, reads it once.
 */
#include "kernels/cuda/layers/norm.cuh"

/* ---- statistics ---- */

/* Sums of x - pivot and its square, where the pivot is the channel's first element. Few rows are
 * summed in float32 about the first of them, so that nothing cancels there when x drifts away from
 * the pivot; folding moves them to the pivot, in double. */
template <typename T, int P> struct moment_adder {
    enum { AHEAD = DP_ROWS_AHEAD };
    struct state {
        float pivot[P], near[P];
    };
    const T *x;
    size_t channels;
    __device__ state load(size_t col) const
    {
        state first;
        dp_read<P>(first.pivot, x + col);
        return first;
    }
    __device__ void begin(state &first, size_t row, size_t col) const
    {
        dp_read<P>(first.near, x + row * channels + col);
    }
    __device__ void add(float (&sums)[2][P], const state &first, size_t row, size_t col) const
    {
        float values[P];
        dp_read<P>(values, x + row * channels + col);
#pragma unroll
        for (int p = 0; p < P; p++) {
            const float off = values[p] - first.near[p];
            sums[0][p] += off;
            sums[1][p] = __fmaf_rn(off, off, sums[1][p]);
        }
    }
    __device__ void fold(double (&sums)[2][P], const float (&few)[2][P], const state &first,
                         int rows) const
    {
#pragma unroll
        for (int p = 0; p < P; p++) {
            const double moved = (double)first.near[p] - (double)first.pivot[p];
            sums[0][p] += (double)few[0][p] + rows * moved;
            sums[1][p] += (double)few[1][p] + moved * (2 * (double)few[0][p] + rows * moved);
        }
    }
};

/* Merges with what was there: Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm
 * for computing sample variances", 1979, formula 2.1. */
template <typename T> struct moments_done {
    double *moments;
    const T *x;
    size_t channels;
    double before, fresh;
    __device__ void done(size_t c, const double *sums) const
    {
        double *mean = &moments[c], *squares = &moments[channels + c];
        const double off = fresh > 0 ? sums[0] / fresh : 0;
        const double center = fresh > 0 ? (double)dp_wide(x[c]) + off : 0;
        const double spread = sums[1] - off * sums[0];
        const double own = spread < 0 ? 0 : spread; /* a NaN stays a NaN */
        if (before == 0) {
            *mean = center;
            *squares = own;
        } else if (fresh > 0) {
            const double delta = center - *mean;
            *mean += delta * fresh / (before + fresh);
            *squares += own + delta * delta * before * fresh / (before + fresh);
        }
    }
};

extern "C" dp_status dp_cuda_norm_moments(struct dp_stream *s, double *moments, size_t before,
                                          const void *x, const struct dp_norm *norm)
{
    const size_t channels = norm->channels;

    DP_BY_TYPE(s->type, T, {
        constexpr int P = DP_COLUMN_PACK;
        const T *typed = (const T *)x;
        const moments_done<T> done = {moments, typed, channels, (double)before,
                                      (double)norm->count};
        if (channels % P == 0 && dp_aligned(x)) {
            return dp_columns_sum<2, P>(s, norm->count, channels,
                                        moment_adder<T, P>{typed, channels}, done);
        }
        return dp_columns_sum<2, 1>(s, norm->count, channels, moment_adder<T, 1>{typed, channels},
                                    done);
    });
}

static __global__ void mean_kernel(float *mean, const double *moments, double weight, size_t count)
{
    for (size_t i = dp_thread(); i < count; i += dp_threads()) {
        mean[i] = (float)(weight * moments[i]);
    }
}

extern "C" dp_status dp_cuda_norm_mean(struct dp_stream *s, float *mean, const double *moments,
                                       double weight, size_t channels)
{
    DP_LAUNCH(mean_kernel, dp_blocks(s, channels), DP_THREADS, 0, s, mean, moments, weight,
              channels);
    return DP_CUDA(cudaGetLastError());
}

static __global__ void variance_kernel(float *var, const double *moments, const float *mean,
                                       double n, double each, size_t count)
{
    for (size_t i = dp_thread(); i < count; i += dp_threads()) {
        const double off = moments[i] - (double)mean[i];
        var[i] = (float)(each * (moments[count + i] + n * off * off));
    }
}

extern "C" dp_status dp_cuda_norm_variance(struct dp_stream *s, float *var, const double *moments,
                                           const float *mean, double n, double each,
                                           size_t channels)
{
    DP_LAUNCH(variance_kernel, dp_blocks(s, channels), DP_THREADS, 0, s, var, moments, mean, n,
              each, channels);
    return DP_CUDA(cudaGetLastError());
}

static __global__ void share_kernel(float *y, const float *x, float rows, float factor,
                                    const struct dp_step_params *step_params, size_t count,
                                    float keep)
{
    const float share = rows * step_params->per_sample;

    for (size_t i = dp_thread(); i < count; i += dp_threads()) {
        y[i] = (keep != 0 ? y[i] : 0.0f) + share * (factor * x[i]);
    }
}

extern "C" dp_status dp_cuda_norm_share(struct dp_stream *s, float *y, const float *x, size_t rows,
                                        float factor, const struct dp_step_params *step_params,
                                        size_t count, float keep)
{
    DP_LAUNCH(share_kernel, dp_blocks(s, count), DP_THREADS, 0, s, y, x, (float)rows, factor,
              step_params, count, keep);
    return DP_CUDA(cudaGetLastError());
}

/* What a training step needs of the moments of elements that are normalised alone. */
template <typename T> struct statistics_done {
    struct dp_norm_statistics to;
    const T *x;
    size_t channels;
    double n, each, weight; /* 1 / n, and their product as it is rounded */
    float eps, rows;
    __device__ void done(size_t c, const double *sums) const
    {
        const double off = n > 0 ? sums[0] / n : 0;
        const double center = n > 0 ? (double)dp_wide(x[c]) + off : 0;
        const double spread = sums[1] - off * sums[0];
        const double squares = spread < 0 ? 0 : spread; /* a NaN stays a NaN */
        const float mean = (float)(weight * center);
        const double beside = center - (double)mean;
        const float var = (float)(each * (squares + n * beside * beside));
        const float gamma = dp_wide(((const T *)to.weights[0])[c]);
        to.mean[c] = mean;
        to.var[c] = var;
        to.scale[c] = dp_scale_of(gamma, var, eps);
        if (to.wide[0] != nullptr) {
            to.wide[0][c] = gamma;
            to.wide[1][c] = dp_wide(((const T *)to.weights[1])[c]);
        }
        add_share(c, mean, 1.0f);
        add_share(channels + c, var, to.unbiased);
    }
    __device__ void add_share(size_t i, float value, float factor) const
    {
        const float share = rows * to.step_params->per_sample;
        to.shares[i] = (to.keep != 0 ? to.shares[i] : 0.0f) + share * (factor * value);
    }
};

extern "C" dp_status dp_cuda_norm_statistics(struct dp_stream *s,
                                             const struct dp_norm_statistics *to, const void *x,
                                             const struct dp_norm *norm)
{
    const size_t channels = norm->channels;
    const double n = (double)norm->count, each = n > 0 ? 1.0 / n : 0.0;

    DP_BY_TYPE(s->type, T, {
        constexpr int P = DP_COLUMN_PACK;
        const T *typed = (const T *)x;
        const statistics_done<T> done = {*to,  typed,    channels,  n,
                                         each, n * each, norm->eps, (float)to->rows};
        if (channels % P == 0 && dp_aligned(x)) {
            return dp_columns_sum<2, P>(s, norm->count, channels,
                                        moment_adder<T, P>{typed, channels}, done);
        }
        return dp_columns_sum<2, 1>(s, norm->count, channels, moment_adder<T, 1>{typed, channels},
                                    done);
    });
}

/* ---- the layer itself ---- */

struct forward {
    template <int P> using state = dp_channels<P>;
    dp_norm_given given;
    bool adds, relu;
    uint8_t *signs; /* NULL, or written where 8 channels are in hand */
    template <int P> __device__ dp_channels<P> load(size_t channel) const
    {
        return dp_load_channels<P>(given, channel);
    }
    template <int P>
    __device__ float value(const dp_channels<P> &c, int p, float x, float other) const
    {
        const float own = dp_normalised(x, c.mean[p], c.scale[p], c.beta[p]);
        const float y = adds ? own + other : own;
        return relu && y < 0 ? 0 : y; /* a NaN stays a NaN */
    }
    template <typename T, int P> __device__ void mark(const float (&values)[P], size_t at) const
    {
        if constexpr (P == DP_BYTE_SIGNS) {
            if (signs != nullptr) {
                signs[at / DP_BYTE_SIGNS] = dp_signs_of<T>(values);
            }
        } else {
            (void)values;
            (void)at;
        }
    }
};

/* A byte a thread, of a y that was not written 8 channels at a time. */
template <typename T> static __global__ void signs_kernel(uint8_t *signs, const T *y, size_t bytes)
{
    for (size_t i = dp_thread(); i < bytes; i += dp_threads()) {
        float values[DP_BYTE_SIGNS];
        for (int k = 0; k < DP_BYTE_SIGNS; k++) {
            dp_read<1>(values + k, y + i * DP_BYTE_SIGNS + k);
        }
        signs[i] = dp_signs_of<T>(values);
    }
}

extern "C" dp_status dp_cuda_norm_apply(struct dp_stream *s, void *y, const void *x,
                                        const void *add, const float *mean, const float *var,
                                        const float *gamma, const float *beta,
                                        const struct dp_norm *norm)
{
    const bool wide = dp_aligned(x) && dp_aligned(y) && dp_aligned(add);
    const size_t bytes = norm->count * norm->channels / DP_BYTE_SIGNS;
    const forward f = {dp_given(mean, var, gamma, beta, norm), add != nullptr,
                       norm->act == DP_ACT_RELU, norm->signs};

    DP_TRY(dp_norm_pass(s, y, x, add, f, norm));
    if (norm->signs == nullptr || wide || bytes == 0) {
        return DP_OK;
    }
    DP_BY_TYPE(s->type, T, {
        DP_LAUNCH(signs_kernel<T>, dp_blocks(s, bytes), DP_THREADS, 0, s, norm->signs, (const T *)y,
                  bytes);
    });
    return DP_CUDA(cudaGetLastError());
}
