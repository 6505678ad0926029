/*
 * norm_backward.cu - batch normalisation, backward: see kernels/ops.h for the contracts.
 *
 * Bytes moved per element of type size e: sums 2 e (5 e where a residual's branches join, in place
 * of 8 e for adding, rectifying and sums), apply 3 e. All are bound by memory.
 */
#include "kernels/cuda/layers/norm.cuh"

/* ---- sums ---- */

/* Of g and of g (x - mean), where g is the gradient after the activation. */
template <typename T, int P> struct gradient_adder : dp_plain_fold {
    enum { AHEAD = sizeof(T) == 2 ? DP_ROWS_AHEAD : 2 };
    typedef dp_channels<P> state;
    const T *x, *dy;
    size_t channels;
    dp_norm_given given;
    bool relu;
    gradient_adder(const void *values, const void *gradients, const dp_norm_given &t,
                   const struct dp_norm *norm)
        : x((const T *)values), dy((const T *)gradients), channels(norm->channels), given(t),
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
        return dp_load_channels<P>(given, col);
    }
    __device__ void add(float (&sums)[2][P], const state &c, size_t row, size_t col) const
    {
        float values[P], gradients[P];
        dp_read<P>(values, x + row * channels + col);
        dp_read<P>(gradients, dy + row * channels + col);
#pragma unroll
        for (int p = 0; p < P; p++) {
            const float y = dp_normalised(values[p], c.mean[p], c.scale[p], c.beta[p]);
            const float g = !relu || y > 0 ? gradients[p] : 0.0f;
            sums[0][p] += g;
            sums[1][p] = __fmaf_rn(g, values[p] - c.mean[p], sums[1][p]);
        }
    }
};

/* The same where branches join: g is made here, and written for both. */
template <typename T, int P> struct join_adder : dp_plain_fold {
    enum { AHEAD = 2 };
    struct state {
        float mean[P];
    };
    const T *x, *dy, *dy2, *y;
    const uint8_t *signs; /* of y, or NULL */
    T *g;
    size_t channels;
    const float *mean;
    bool wide;
    join_adder(const struct dp_norm_backward &b, const dp_norm_given &t, const struct dp_norm *norm)
        : x((const T *)b.x), dy((const T *)b.dy), dy2((const T *)b.dy2), y((const T *)b.y),
          signs(b.y != nullptr ? norm->signs : nullptr), g((T *)b.g), channels(norm->channels),
          mean(b.mean), wide(t.wide)
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
        state c;
        dp_read_factors<P>(c.mean, mean + col, wide);
        return c;
    }
    /* A bit for each element that is handed on. */
    __device__ unsigned positives(size_t at) const
    {
        float outs[P];
        unsigned bits = 0;
        if (signs != nullptr) {
            return (unsigned)signs[at / DP_BYTE_SIGNS] >> at % DP_BYTE_SIGNS;
        }
        if (y == nullptr) {
            return ~0u;
        }
        dp_read_ahead<P>(outs, y + at);
#pragma unroll
        for (int p = 0; p < P; p++) {
            bits |= outs[p] > 0 ? 1u << p : 0u;
        }
        return bits;
    }
    __device__ void add(float (&sums)[2][P], const state &c, size_t row, size_t col) const
    {
        const size_t at = row * channels + col;
        float values[P], gradients[P], others[P] = {};
        dp_read_ahead<P>(values, x + at);
        dp_read_ahead<P>(gradients, dy + at);
        if (dy2 != nullptr) {
            dp_read_ahead<P>(others, dy2 + at);
        }
        const unsigned positive = positives(at);
#pragma unroll
        for (int p = 0; p < P; p++) {
            T sum;
            dp_narrow(&sum, dy2 != nullptr ? gradients[p] + others[p] : gradients[p]);
            gradients[p] = (positive >> p & 1u) != 0 ? dp_wide(sum) : 0.0f;
            sums[0][p] += gradients[p];
            sums[1][p] = __fmaf_rn(gradients[p], values[p] - c.mean[p], sums[1][p]);
        }
        dp_write<P>(g + at, gradients);
    }
};

struct gradients_done {
    double *sums;
    const float *var;
    size_t channels;
    float eps, keep;
    __device__ void done(size_t c, const double *found) const
    {
        const double hat = found[1] / dp_deviation(var[c], eps);
        sums[c] = keep != 0 ? sums[c] + found[0] : found[0];
        sums[channels + c] = keep != 0 ? sums[channels + c] + hat : hat;
    }
};

/* All that is made of the sums, which nobody else wants to see. */
struct backward_done {
    float *dgamma, *dbeta, *slopes;
    const float *var;
    size_t channels;
    double total;
    float eps, keep;
    __device__ void done(size_t c, const double *found) const
    {
        const double hat = found[1] / dp_deviation(var[c], eps);
        dbeta[c] = (keep != 0 ? dbeta[c] : 0.0f) + (float)found[0];
        dgamma[c] = (keep != 0 ? dgamma[c] : 0.0f) + (float)hat;
        slopes[c] = dp_center_of(found[0], total);
        slopes[channels + c] = dp_slope_of(hat, var[c], eps, total);
    }
};

/* NOLINTNEXTLINE(readability-function-size): the parameters are the contract's. */
extern "C" dp_status dp_cuda_norm_backward_sums(struct dp_stream *s, double *sums, const void *dy,
                                                const void *x, const float *mean, const float *var,
                                                const float *gamma, const float *beta,
                                                const struct dp_norm *norm, float keep)
{
    const dp_norm_given t = dp_given(mean, var, gamma, beta, norm);
    const gradients_done done = {sums, var, norm->channels, norm->eps, keep};

    DP_BY_TYPE(s->type, T, {
        constexpr int P = DP_COLUMN_PACK;
        if (norm->channels % P == 0 && dp_aligned(x) && dp_aligned(dy)) {
            return dp_columns_sum<2, P>(s, norm->count, norm->channels,
                                        gradient_adder<T, P>(x, dy, t, norm), done);
        }
        return dp_columns_sum<2, 1>(s, norm->count, norm->channels,
                                    gradient_adder<T, 1>(x, dy, t, norm), done);
    });
}

template <typename T, int P>
static dp_status sum_whole(struct dp_stream *s, const struct dp_norm_backward &b,
                           const struct dp_norm *norm)
{
    const dp_norm_given t = dp_given(b.mean, b.var, b.gamma, b.beta, norm);
    const backward_done done = {b.dgamma,       b.dbeta, b.slopes,  b.var,
                                norm->channels, b.total, norm->eps, b.keep};

    if (b.g != nullptr) {
        return dp_columns_sum<2, P>(s, norm->count, norm->channels, join_adder<T, P>(b, t, norm),
                                    done);
    }
    return dp_columns_sum<2, P>(s, norm->count, norm->channels,
                                gradient_adder<T, P>(b.x, b.dy, t, norm), done);
}

extern "C" dp_status dp_cuda_norm_backward(struct dp_stream *s, const struct dp_norm_backward *b,
                                           const struct dp_norm *norm)
{
    const bool wide = norm->channels % DP_COLUMN_PACK == 0 && dp_aligned(b->x) &&
                      dp_aligned(b->dy) && dp_aligned(b->dy2) && dp_aligned(b->y) &&
                      dp_aligned(b->g);

    DP_BY_TYPE(s->type, T, {
        return wide ? sum_whole<T, DP_COLUMN_PACK>(s, *b, norm) : sum_whole<T, 1>(s, *b, norm);
    });
}

/* ---- the gradient of x ---- */

/* dx = scale (g - center - (x - mean) slope). */
template <int P> struct backward_state {
    dp_channels<P> c;
    float center[P], slope[P];
};

struct backward {
    template <int P> using state = backward_state<P>;
    dp_norm_given given;
    const double *sums;  /* or */
    const float *slopes; /* what is made of them */
    double total;
    size_t channels;
    bool relu;
    template <int P> __device__ backward_state<P> load(size_t channel) const
    {
        backward_state<P> b;
        b.c = dp_load_channels<P>(given, channel);
        if (slopes != nullptr) {
            dp_read_factors<P>(b.center, slopes + channel, given.wide);
            dp_read_factors<P>(b.slope, slopes + channels + channel, given.wide);
            return b;
        }
#pragma unroll
        for (int p = 0; p < P; p++) {
            const size_t i = channel + (size_t)p;
            b.center[p] = dp_center_of(sums[i], total);
            b.slope[p] = dp_slope_of(sums[channels + i], given.var[i], given.eps, total);
        }
        return b;
    }
    template <int P>
    __device__ float value(const backward_state<P> &b, int p, float x, float dy) const
    {
        const float mean = b.c.mean[p], scale = b.c.scale[p];
        const float g = !relu || dp_normalised(x, mean, scale, b.c.beta[p]) > 0 ? dy : 0.0f;
        return scale * (g - b.center[p] - (x - mean) * b.slope[p]);
    }
    template <typename T, int P> __device__ void mark(const float (&unused)[P], size_t at) const
    {
        (void)unused;
        (void)at;
    }
};

/* NOLINTNEXTLINE(readability-function-size): the parameters are the contract's. */
extern "C" dp_status dp_cuda_norm_backward_apply(struct dp_stream *s, void *dx, const void *dy,
                                                 const void *x, const float *mean, const float *var,
                                                 const float *gamma, const float *beta,
                                                 const double *sums, double total,
                                                 const struct dp_norm *norm)
{
    const backward f = {dp_given(mean, var, gamma, beta, norm),
                        sums,
                        norm->slopes,
                        total,
                        norm->channels,
                        norm->act == DP_ACT_RELU};

    return dp_norm_pass(s, dx, x, dy, f, norm);
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
