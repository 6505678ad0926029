/*
 * norm.cuh - what forward and backward of a batch normalisation have in common: factors of
 * channels, and passes over rows in which a thread stays with its channels.
 */
#ifndef DP_KERNELS_CUDA_LAYERS_NORM_CUH
#define DP_KERNELS_CUDA_LAYERS_NORM_CUH

#include "kernels/cuda/columns.cuh"

/* At least, on a processor at a time. Three, with two rows under way instead of four, were 3 %
 * slower in backward on an H100. */
enum { DP_NORM_BLOCKS = 2 };

/* What is needed of P channels. */
template <int P> struct dp_channels {
    float mean[P], scale[P], beta[P]; /* scale = gamma / sqrt(var + eps) */
};

struct dp_norm_given {
    const float *mean, *var, *gamma, *beta; /* [channels] */
    const float *scale;                     /* [channels], or NULL: to be computed */
    float eps;
    bool wide; /* 16 bytes of each can be read at once */
};

static inline dp_norm_given dp_given(const float *mean, const float *var, const float *gamma,
                                     const float *beta, const struct dp_norm *norm)
{
    const bool wide = dp_aligned(mean) && dp_aligned(var) && dp_aligned(gamma) &&
                      dp_aligned(beta) && dp_aligned(norm->scale) && dp_aligned(norm->slopes) &&
                      norm->channels % 4 == 0;

    return {mean, var, gamma, beta, norm->scale, norm->eps, wide};
}

static __device__ __forceinline__ double dp_deviation(float var, float eps)
{
    return sqrt((double)var + (double)eps);
}

static __device__ __forceinline__ float dp_scale_of(float gamma, float var, float eps)
{
    return (float)((double)gamma / dp_deviation(var, eps));
}

/* Of the sums of a gradient, and of it and x normalised, over all: what dx is made with. */
static __device__ __forceinline__ float dp_center_of(double sum, double total)
{
    return (float)(sum / total);
}

static __device__ __forceinline__ float dp_slope_of(double sum, float var, float eps, double total)
{
    return (float)(sum / dp_deviation(var, eps) / total);
}

/* P neighbours of an array of which all threads of a block read the same few. */
template <int P>
static __device__ __forceinline__ void dp_read_factors(float *to, const float *__restrict__ from,
                                                       bool wide)
{
    if (P % 4 == 0 && wide) {
#pragma unroll
        for (int p = 0; p + 4 <= P; p += 4) {
            dp_read<4>(to + p, from + p);
        }
    } else {
#pragma unroll
        for (int p = 0; p < P; p++) {
            to[p] = from[p];
        }
    }
}

template <int P>
static __device__ __forceinline__ dp_channels<P> dp_load_channels(const dp_norm_given &t,
                                                                  size_t channel)
{
    dp_channels<P> c;

    dp_read_factors<P>(c.mean, t.mean + channel, t.wide);
    dp_read_factors<P>(c.beta, t.beta + channel, t.wide);
    if (t.scale != nullptr) {
        dp_read_factors<P>(c.scale, t.scale + channel, t.wide);
        return c;
    }
#pragma unroll
    for (int p = 0; p < P; p++) {
        const size_t i = channel + (size_t)p;
        c.scale[p] = dp_scale_of(t.gamma[i], t.var[i], t.eps);
    }
    return c;
}

/* Forward and backward use this one function, so that the mask is equal to the bit. */
static __device__ __forceinline__ float dp_normalised(float x, float mean, float scale, float beta)
{
    return __fmaf_rn(x - mean, scale, beta);
}

enum { DP_BYTE_SIGNS = 8 }; /* of a byte: struct dp_norm */

/* Of values as they are when they have been rounded. */
template <typename T>
static __device__ __forceinline__ uint8_t dp_signs_of(const float (&values)[DP_BYTE_SIGNS])
{
    unsigned signs = 0;

#pragma unroll
    for (int k = 0; k < DP_BYTE_SIGNS; k++) {
        T rounded;
        dp_narrow(&rounded, values[k]);
        signs |= dp_wide(rounded) > 0 ? 1u << k : 0u;
    }
    return (uint8_t)signs;
}

/* ---- passes over rows ---- */

/* R rows, `step` elements apart: all are read before any is written, since y may be x or other.
 * `at` is the first element. */
template <int R, typename T, int P, typename F, typename S>
static __device__ __forceinline__ void dp_norm_rows(T *y, const T *x, const T *other, const F &f,
                                                    const S &state, size_t step, size_t at)
{
    float values[R][P], others[R][P] = {};

#pragma unroll
    for (int r = 0; r < R; r++) {
        dp_read<P>(values[r], x + (size_t)r * step);
    }
    if (other != nullptr) {
#pragma unroll
        for (int r = 0; r < R; r++) {
            dp_read<P>(others[r], other + (size_t)r * step);
        }
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
#pragma unroll
        for (int p = 0; p < P; p++) {
            values[r][p] = f.template value<P>(state, p, values[r][p], others[r][p]);
        }
        dp_write<P>(y + (size_t)r * step, values[r]);
        f.template mark<T>(values[r], at + (size_t)r * step);
    }
}

/* y = f(x, other) of P channels at a time; other is dy, or what is added, or null. Blocks go over
 * tiles of channels and chunks of rows as in columns.cuh. */
template <typename T, int P, typename F>
static __global__ void __launch_bounds__(DP_THREADS, DP_NORM_BLOCKS)
    dp_norm_kernel(T *y, const T *x, const T *other, F f, size_t rows, size_t channels,
                   size_t chunks)
{
    const size_t packs = channels / P;
    const unsigned width = packs < blockDim.x ? (unsigned)packs : blockDim.x;
    const unsigned depth = blockDim.x / width;
    const size_t tiles = (packs + width - 1) / width, step = depth * channels;
    constexpr int R = 4; /* rows under way: 64 KB of two arrays on a processor of two blocks */

    for (size_t item = blockIdx.x; item < tiles * chunks; item += gridDim.x) {
        const size_t pack = item % tiles * width + threadIdx.x % width, chunk = item / tiles;
        const size_t end = rows * (chunk + 1) / chunks;
        size_t row = rows * chunk / chunks + threadIdx.x / width;
        if (threadIdx.x / width >= depth || pack >= packs) {
            continue;
        }
        const typename F::template state<P> state = f.template load<P>(pack * P);
        size_t at = row * channels + pack * P;
        for (; row + (R - 1) * depth < end; row += R * depth, at += R * step) {
            dp_norm_rows<R, T, P>(y + at, x + at, other != nullptr ? other + at : nullptr, f, state,
                                  step, at);
        }
        for (; row < end; row += depth, at += step) {
            dp_norm_rows<1, T, P>(y + at, x + at, other != nullptr ? other + at : nullptr, f, state,
                                  step, at);
        }
    }
}

template <typename T, int P, typename F>
static dp_status dp_norm_launch(struct dp_stream *s, T *y, const T *x, const T *other, F f,
                                const struct dp_norm *norm)
{
    const size_t packs = norm->channels / P, width = dp_least(packs, DP_THREADS);
    const size_t tiles = (packs + width - 1) / width;
    const size_t useful = norm->count / (DP_THREADS / width * 4) + 1;
    const size_t resident = dp_resident(s, dp_norm_kernel<T, P, F>, DP_THREADS, 0);
    const size_t chunks = dp_least(useful, resident > tiles ? resident / tiles : 1);

    if (norm->count == 0) {
        return DP_OK;
    }
    DP_LAUNCH((dp_norm_kernel<T, P, F>), dp_blocks(s, tiles * chunks * DP_THREADS), DP_THREADS, 0,
              s, y, x, other, f, norm->count, norm->channels, chunks);
    return DP_CUDA(cudaGetLastError());
}

template <typename F>
static dp_status dp_norm_pass(struct dp_stream *s, void *y, const void *x, const void *other, F f,
                              const struct dp_norm *norm)
{
    DP_BY_TYPE(s->type, T, {
        constexpr int P = dp_pack_of<T>();
        if (norm->channels % P == 0 && dp_aligned(x) && dp_aligned(y) && dp_aligned(other)) {
            return dp_norm_launch<T, P>(s, (T *)y, (const T *)x, (const T *)other, f, norm);
        }
        return dp_norm_launch<T, 1>(s, (T *)y, (const T *)x, (const T *)other, f, norm);
    });
}

#endif
