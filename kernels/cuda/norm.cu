/*
 * norm.cu - batch normalisation, with its rectifier: see kernels/ops.h for the contracts.
 *
 * Bytes moved per element of type size e: moments e, apply 2 e (3 e where it adds a residual's
 * other branch), backward_sums 2 e, backward_apply 3 e; so forward 3 e and backward 5 e. All are
 * bound by memory. What has a value for each channel is small, and read once by every thread, whose
 * channels stay the same while it goes down the rows.
 */
#include "kernels/cuda/columns.cuh"

/* What is needed of P channels. */
template <int P> struct channels_of {
    float mean[P], scale[P], beta[P]; /* scale = gamma / sqrt(var + eps) */
};

struct statistics {
    const float *mean, *var, *gamma, *beta; /* [channels] */
    float eps;
};

static __device__ __forceinline__ double deviation(float var, float eps)
{
    return sqrt((double)var + (double)eps);
}

template <int P>
static __device__ __forceinline__ channels_of<P> load_channels(const struct statistics &t,
                                                               size_t channel)
{
    channels_of<P> c;

#pragma unroll
    for (int p = 0; p < P; p++) {
        const size_t i = channel + (size_t)p;
        c.mean[p] = t.mean[i];
        c.scale[p] = (float)((double)t.gamma[i] / deviation(t.var[i], t.eps));
        c.beta[p] = t.beta[i];
    }
    return c;
}

/* Forward and backward use this one function, so that the mask is equal to the bit. */
static __device__ __forceinline__ float normalised(float x, float mean, float scale, float beta)
{
    return __fmaf_rn(x - mean, scale, beta);
}

/* ---- statistics ---- */

/* Sums of x - pivot and its square, where the pivot is the channel's first element. Few rows are
 * summed in float32 about the first of them, so that nothing cancels there when x drifts away from
 * the pivot; folding moves them to the pivot, in double. */
template <typename T, int P> struct moment_adder {
    enum { AHEAD = DP_FEW_ROWS };
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

/* ---- the layer itself ---- */

/* y = f(x, other) of P channels at a time; other is dy, or what is added, or null. Blocks go over
 * tiles of channels and chunks of rows as in columns.cuh. */
template <typename T, int P, typename F>
static __global__ void rows_kernel(T *y, const T *x, const T *other, F f, size_t rows,
                                   size_t channels, size_t chunks)
{
    const size_t packs = channels / P;
    const unsigned width = packs < blockDim.x ? (unsigned)packs : blockDim.x;
    const unsigned depth = blockDim.x / width;
    const size_t tiles = (packs + width - 1) / width;

    for (size_t item = blockIdx.x; item < tiles * chunks; item += gridDim.x) {
        const size_t pack = item % tiles * width + threadIdx.x % width, chunk = item / tiles;
        const size_t end = rows * (chunk + 1) / chunks;
        size_t row = rows * chunk / chunks + threadIdx.x / width;
        if (threadIdx.x / width >= depth || pack >= packs) {
            continue;
        }
        const typename F::template state<P> state = f.template load<P>(pack * P);
        for (; row < end; row += depth) {
            const size_t at = row * channels + pack * P;
            float values[P], others[P] = {};
            dp_read<P>(values, x + at);
            if (other != nullptr) {
                dp_read<P>(others, other + at);
            }
#pragma unroll
            for (int p = 0; p < P; p++) {
                values[p] = f.template value<P>(state, p, values[p], others[p]);
            }
            dp_write<P>(y + at, values);
        }
    }
}

template <typename T, int P, typename F>
static dp_status launch_rows(struct dp_stream *s, T *y, const T *x, const T *other, F f,
                             const struct dp_norm *norm)
{
    const size_t packs = norm->channels / P, width = dp_least(packs, DP_THREADS);
    const size_t tiles = (packs + width - 1) / width;
    const size_t useful = norm->count / (DP_THREADS / width * 4) + 1;
    const size_t chunks = dp_least(useful, (size_t)dp_cuda_of(s)->blocks / tiles + 1);

    if (norm->count == 0) {
        return DP_OK;
    }
    DP_LAUNCH((rows_kernel<T, P, F>), dp_blocks(s, tiles * chunks * DP_THREADS), DP_THREADS, 0, s,
              y, x, other, f, norm->count, norm->channels, chunks);
    return DP_CUDA(cudaGetLastError());
}

template <typename F>
static dp_status apply(struct dp_stream *s, void *y, const void *x, const void *other, F f,
                       const struct dp_norm *norm)
{
    DP_BY_TYPE(s->type, T, {
        constexpr int P = dp_pack_of<T>();
        if (norm->channels % P == 0 && dp_aligned(x) && dp_aligned(y) && dp_aligned(other)) {
            return launch_rows<T, P>(s, (T *)y, (const T *)x, (const T *)other, f, norm);
        }
        return launch_rows<T, 1>(s, (T *)y, (const T *)x, (const T *)other, f, norm);
    });
}

struct forward {
    template <int P> using state = channels_of<P>;
    struct statistics statistics;
    bool adds, relu;
    template <int P> __device__ channels_of<P> load(size_t channel) const
    {
        return load_channels<P>(statistics, channel);
    }
    template <int P>
    __device__ float value(const channels_of<P> &c, int p, float x, float other) const
    {
        const float own = normalised(x, c.mean[p], c.scale[p], c.beta[p]);
        const float y = adds ? own + other : own;
        return relu && y < 0 ? 0 : y; /* a NaN stays a NaN */
    }
};

extern "C" dp_status dp_cuda_norm_apply(struct dp_stream *s, void *y, const void *x,
                                        const void *add, const float *mean, const float *var,
                                        const float *gamma, const float *beta,
                                        const struct dp_norm *norm)
{
    const forward f = {
        {mean, var, gamma, beta, norm->eps}, add != nullptr, norm->act == DP_ACT_RELU};

    return apply(s, y, x, add, f, norm);
}

/* ---- backward ---- */

template <typename T, int P> struct gradient_adder : dp_plain_fold {
    enum { AHEAD = sizeof(T) == 2 ? DP_FEW_ROWS : 2 };
    typedef channels_of<P> state;
    const T *x, *dy;
    size_t channels;
    struct statistics statistics;
    bool relu;
    gradient_adder(const T *values, const T *gradients, const struct statistics &given,
                   const struct dp_norm *norm)
        : x(values), dy(gradients), channels(norm->channels), statistics(given),
          relu(norm->act == DP_ACT_RELU)
    {
    }
    __device__ void begin(const state &unused, size_t row, size_t col) const
    {
        (void)unused;
        (void)row;
        (void)col;
    }
    __device__ state load(size_t col) const
    {
        return load_channels<P>(statistics, col);
    }
    __device__ void add(float (&sums)[2][P], const state &c, size_t row, size_t col) const
    {
        float values[P], gradients[P];
        dp_read<P>(values, x + row * channels + col);
        dp_read<P>(gradients, dy + row * channels + col);
#pragma unroll
        for (int p = 0; p < P; p++) {
            const float y = normalised(values[p], c.mean[p], c.scale[p], c.beta[p]);
            const float g = !relu || y > 0 ? gradients[p] : 0.0f;
            sums[0][p] += g;
            sums[1][p] = __fmaf_rn(g, values[p] - c.mean[p], sums[1][p]);
        }
    }
};

struct gradients_done {
    double *sums;
    const float *var;
    size_t channels;
    float eps, keep;
    __device__ void done(size_t c, const double *found) const
    {
        const double hat = found[1] / deviation(var[c], eps);
        sums[c] = keep != 0 ? sums[c] + found[0] : found[0];
        sums[channels + c] = keep != 0 ? sums[channels + c] + hat : hat;
    }
};

/* NOLINTNEXTLINE(readability-function-size): the parameters are the contract's. */
extern "C" dp_status dp_cuda_norm_backward_sums(struct dp_stream *s, double *sums, const void *dy,
                                                const void *x, const float *mean, const float *var,
                                                const float *gamma, const float *beta,
                                                const struct dp_norm *norm, float keep)
{
    const struct statistics t = {mean, var, gamma, beta, norm->eps};
    const gradients_done done = {sums, var, norm->channels, norm->eps, keep};

    DP_BY_TYPE(s->type, T, {
        constexpr int P = DP_COLUMN_PACK;
        const T *xs = (const T *)x;
        const T *dys = (const T *)dy;
        if (norm->channels % P == 0 && dp_aligned(x) && dp_aligned(dy)) {
            return dp_columns_sum<2, P>(s, norm->count, norm->channels,
                                        gradient_adder<T, P>(xs, dys, t, norm), done);
        }
        return dp_columns_sum<2, 1>(s, norm->count, norm->channels,
                                    gradient_adder<T, 1>(xs, dys, t, norm), done);
    });
}

/* dx = scale (g - center - (x - mean) slope). */
template <int P> struct backward_state {
    channels_of<P> c;
    float center[P], slope[P];
};

struct backward {
    template <int P> using state = backward_state<P>;
    struct statistics statistics;
    const double *sums;
    double total;
    size_t channels;
    bool relu;
    template <int P> __device__ backward_state<P> load(size_t channel) const
    {
        backward_state<P> b;
        b.c = load_channels<P>(statistics, channel);
#pragma unroll
        for (int p = 0; p < P; p++) {
            const size_t i = channel + (size_t)p;
            b.center[p] = (float)(sums[i] / total);
            b.slope[p] =
                (float)(sums[channels + i] / deviation(statistics.var[i], statistics.eps) / total);
        }
        return b;
    }
    template <int P>
    __device__ float value(const backward_state<P> &b, int p, float x, float dy) const
    {
        const float mean = b.c.mean[p], scale = b.c.scale[p];
        const float g = !relu || normalised(x, mean, scale, b.c.beta[p]) > 0 ? dy : 0.0f;
        return scale * (g - b.center[p] - (x - mean) * b.slope[p]);
    }
};

/* NOLINTNEXTLINE(readability-function-size): the parameters are the contract's. */
extern "C" dp_status dp_cuda_norm_backward_apply(struct dp_stream *s, void *dx, const void *dy,
                                                 const void *x, const float *mean, const float *var,
                                                 const float *gamma, const float *beta,
                                                 const double *sums, double total,
                                                 const struct dp_norm *norm)
{
    const backward f = {
        {mean, var, gamma, beta, norm->eps}, sums, total, norm->channels, norm->act == DP_ACT_RELU};

    return apply(s, dx, x, dy, f, norm);
}

/* The first `channels` sums are the shift's gradient, the others the scale's. */
static __global__ void grads_kernel(float *dgamma, float *dbeta, float *shared, const double *sums,
                                    size_t channels, float keep)
{
    for (size_t i = dp_thread(); i < 2 * channels; i += dp_threads()) {
        float *grad = i < channels ? &dbeta[i] : &dgamma[i - channels];
        shared[i] = (float)sums[i];
        *grad = (keep != 0 ? *grad : 0.0f) + shared[i];
    }
}

extern "C" dp_status dp_cuda_norm_grads(struct dp_stream *s, float *dgamma, float *dbeta,
                                        float *shared, const double *sums, size_t channels,
                                        float keep)
{
    DP_LAUNCH(grads_kernel, dp_blocks(s, 2 * channels), DP_THREADS, 0, s, dgamma, dbeta, shared,
              sums, channels, keep);
    return DP_CUDA(cudaGetLastError());
}

static __global__ void widen_kernel(double *y, const float *x, size_t count)
{
    for (size_t i = dp_thread(); i < count; i += dp_threads()) {
        y[i] = (double)x[i];
    }
}

extern "C" dp_status dp_cuda_norm_widen(struct dp_stream *s, double *y, const float *x,
                                        size_t count)
{
    DP_LAUNCH(widen_kernel, dp_blocks(s, count), DP_THREADS, 0, s, y, x, count);
    return DP_CUDA(cudaGetLastError());
}
