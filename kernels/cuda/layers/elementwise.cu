/*
 * elementwise.cu - operations on each element alone: see kernels/ops.h for the contracts.
 *
 * One pass over memory, 16 bytes a thread and access. Bytes moved per element of e bytes (4, or 2
 * in narrow types): relu, gelu, dropout and scale 2 e, everything with two inputs 3 e, bytes_load
 * 1 + e, floats_load 4 + e. Bound by memory: time should be count * bytes / bandwidth; gelu's erfc
 * costs as much again in float32 arithmetic where e is 2, and dropout's random numbers, 5 32-bit
 * products an element.
 */
#include "base/random.h"
#include "kernels/cuda/stream/launch.h"

/* y[i] = f(a[i], b[i], i); b is NULL where f has one operand. y may be a or b. */
template <typename T, int P, typename F>
static __global__ void map_kernel(T *y, const T *a, const T *b, size_t count, F f)
{
    const size_t packs = count / P;

    for (size_t i = dp_thread(); i < packs; i += dp_threads()) {
        float x[P], z[P] = {};
        dp_read<P>(x, a + i * P);
        if (b != nullptr) {
            dp_read<P>(z, b + i * P);
        }
#pragma unroll
        for (int p = 0; p < P; p++) {
            x[p] = f(x[p], z[p], i * P + (size_t)p);
        }
        dp_write<P>(y + i * P, x);
    }
    for (size_t i = packs * P + dp_thread(); i < count; i += dp_threads()) {
        dp_narrow(&y[i], f(dp_wide(a[i]), b != nullptr ? dp_wide(b[i]) : 0.0f, i));
    }
}

template <typename T, typename F>
static dp_status map(struct dp_stream *s, T *y, const T *a, const T *b, size_t count, F f)
{
    constexpr int P = dp_pack_of<T>();

    if (count == 0) {
        return DP_OK; /* a grid of zero blocks is a launch error */
    }
    if (dp_aligned(y) && dp_aligned(a) && dp_aligned(b)) {
        DP_LAUNCH((map_kernel<T, P, F>), dp_blocks(s, (count + P - 1) / P), DP_THREADS, 0, s, y, a,
                  b, count, f);
    } else {
        DP_LAUNCH((map_kernel<T, 1, F>), dp_blocks(s, count), DP_THREADS, 0, s, y, a, b, count, f);
    }
    return DP_CUDA(cudaGetLastError());
}

/* The same in the stream's compute type. */
template <typename F>
static dp_status map_typed(struct dp_stream *s, void *y, const void *a, const void *b, size_t count,
                           F f)
{
    DP_BY_TYPE(s->type, T, { return map(s, (T *)y, (const T *)a, (const T *)b, count, f); });
}

/* ---- float32 ---- */

struct sum {
    __device__ float operator()(float a, float b, size_t i) const
    {
        (void)i;
        return a + b;
    }
};

struct scaled {
    float factor;
    __device__ float operator()(float a, float b, size_t i) const
    {
        (void)b;
        (void)i;
        return factor * a;
    }
};

struct blended {
    float weight;
    __device__ float operator()(float a, float b, size_t i) const
    {
        (void)i;
        return (1.0f - weight) * a + weight * b;
    }
};

struct scaled_sum {
    float scale;
    __device__ float operator()(float a, float b, size_t i) const
    {
        (void)i;
        return scale * a + b;
    }
};

extern "C" dp_status dp_cuda_add(struct dp_stream *s, float *y, const float *x, size_t count)
{
    return map(s, y, (const float *)y, x, count, sum{});
}

extern "C" dp_status dp_cuda_scale(struct dp_stream *s, float *y, const float *x, float factor,
                                   size_t count)
{
    return map(s, y, x, (const float *)nullptr, count, scaled{factor});
}

extern "C" dp_status dp_cuda_blend(struct dp_stream *s, float *y, const float *x, float weight,
                                   size_t count)
{
    return map(s, y, (const float *)y, x, count, blended{weight});
}

extern "C" dp_status dp_cuda_scale_add(struct dp_stream *s, float *y, const float *x, float scale,
                                       size_t count)
{
    return map(s, y, (const float *)y, x, count, scaled_sum{scale});
}

/* ---- compute type; the rectifier is written so that a NaN stays a NaN ---- */

struct rectified {
    __device__ float operator()(float x, float b, size_t i) const
    {
        (void)b;
        (void)i;
        return x < 0 ? 0 : x;
    }
};

struct rectified_sum {
    __device__ float operator()(float a, float b, size_t i) const
    {
        (void)i;
        return a + b < 0 ? 0 : a + b;
    }
};

struct rectifier_slope {
    __device__ float operator()(float dy, float y, size_t i) const
    {
        (void)i;
        return y > 0 ? dy : 0;
    }
};

/* The normal distribution's function; erfc keeps its precision where 1 + erf would cancel. */
static __device__ __forceinline__ float below(float x)
{
    return 0.5f * erfcf(x * -0.70710678118654752440f);
}

struct gelu {
    __device__ float operator()(float x, float b, size_t i) const
    {
        (void)b;
        (void)i;
        return x * below(x);
    }
};

struct gelu_slope {
    __device__ float operator()(float dy, float x, size_t i) const
    {
        const float density = 0.39894228040143267794f * expf(-0.5f * x * x);
        (void)i;
        return dy * (below(x) + x * density);
    }
};

/* 1 / (1 + e^-x), which is 0 where e^-x is infinite. */
static __device__ __forceinline__ float logistic(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

struct silu {
    __device__ float operator()(float x, float b, size_t i) const
    {
        (void)b;
        (void)i;
        return x * logistic(x);
    }
};

struct silu_slope {
    __device__ float operator()(float dy, float x, size_t i) const
    {
        (void)i;
        return dy * (logistic(x) * __fmaf_rn(x, logistic(-x), 1));
    }
};

struct leaky {
    float slope;
    __device__ float operator()(float x, float b, size_t i) const
    {
        (void)b;
        (void)i;
        return x > 0 ? x : slope * x;
    }
};

struct leaky_slope {
    float slope;
    __device__ float operator()(float dy, float x, size_t i) const
    {
        (void)i;
        return x > 0 ? dy : slope * dy;
    }
};

extern "C" dp_status dp_cuda_relu_forward(struct dp_stream *s, void *y, const void *x, size_t count)
{
    return map_typed(s, y, x, nullptr, count, rectified{});
}

extern "C" dp_status dp_cuda_relu_backward(struct dp_stream *s, void *dx, const void *dy,
                                           const void *y, size_t count)
{
    return map_typed(s, dx, dy, y, count, rectifier_slope{});
}

extern "C" dp_status dp_cuda_gelu_forward(struct dp_stream *s, void *y, const void *x, size_t count)
{
    return map_typed(s, y, x, nullptr, count, gelu{});
}

extern "C" dp_status dp_cuda_gelu_backward(struct dp_stream *s, void *dx, const void *dy,
                                           const void *x, size_t count)
{
    return map_typed(s, dx, dy, x, count, gelu_slope{});
}

extern "C" dp_status dp_cuda_silu_forward(struct dp_stream *s, void *y, const void *x, size_t count)
{
    return map_typed(s, y, x, nullptr, count, silu{});
}

extern "C" dp_status dp_cuda_silu_backward(struct dp_stream *s, void *dx, const void *dy,
                                           const void *x, size_t count)
{
    return map_typed(s, dx, dy, x, count, silu_slope{});
}

extern "C" dp_status dp_cuda_leaky_forward(struct dp_stream *s, void *y, const void *x, float slope,
                                           size_t count)
{
    return map_typed(s, y, x, nullptr, count, leaky{slope});
}

extern "C" dp_status dp_cuda_leaky_backward(struct dp_stream *s, void *dx, const void *dy,
                                            const void *x, float slope, size_t count)
{
    return map_typed(s, dx, dy, x, count, leaky_slope{slope});
}

extern "C" dp_status dp_cuda_add_forward(struct dp_stream *s, void *y, const void *a, const void *b,
                                         size_t count, enum dp_activation act)
{
    return act == DP_ACT_RELU ? map_typed(s, y, a, b, count, rectified_sum{})
                              : map_typed(s, y, a, b, count, sum{});
}

extern "C" dp_status dp_cuda_accumulate(struct dp_stream *s, void *dx, const void *dy, size_t count)
{
    return map_typed(s, dx, dx, dy, count, sum{});
}

struct dropped {
    struct dp_dropout drop;
    uint64_t first;
    const struct dp_step_params *step_params;
    float scale;
    __device__ float kept(float x, uint32_t bits) const
    {
        return dp_random_unit(bits) >= drop.rate ? x * scale : 0;
    }
    __device__ float operator()(float x, float b, size_t i) const
    {
        (void)b;
        return kept(x, dp_random_u32(drop.seed, drop.what, step_params->step, first + i));
    }
};

/* Four neighbours share a block of random numbers, which takes longer to make than memory takes to
 * bring them. `first` is a multiple of 4. */
template <typename T, int P>
static __global__ void dropout_kernel(T *y, const T *x, size_t count, dropped f)
{
    const size_t packs = count / P;
    const uint32_t step = f.step_params->step;

    for (size_t i = dp_thread(); i < packs; i += dp_threads()) {
        float values[P];
        uint32_t bits[P];
        dp_read<P>(values, x + i * P);
#pragma unroll
        for (int p = 0; p < P; p += 4) {
            dp_random_block(f.drop.seed, f.drop.what, step, (f.first + i * P + (size_t)p) / 4,
                            bits + p);
        }
#pragma unroll
        for (int p = 0; p < P; p++) {
            values[p] = f.kept(values[p], bits[p]);
        }
        dp_write<P>(y + i * P, values);
    }
    for (size_t i = packs * P + dp_thread(); i < count; i += dp_threads()) {
        dp_narrow(&y[i], f(dp_wide(x[i]), 0, i));
    }
}

extern "C" dp_status dp_cuda_dropout(struct dp_stream *s, void *y, const void *x, size_t count,
                                     const struct dp_dropout *dropout, uint64_t first,
                                     const struct dp_step_params *step_params)
{
    const dropped f = {*dropout, first, step_params, 1.0f / (1.0f - dropout->rate)};

    if (first % 4 != 0 || !dp_aligned(y) || !dp_aligned(x) || count == 0) {
        return map_typed(s, y, x, nullptr, count, f);
    }
    DP_BY_TYPE(s->type, T, {
        constexpr int P = dp_pack_of<T>();
        DP_LAUNCH((dropout_kernel<T, P>), dp_blocks(s, (count + P - 1) / P), DP_THREADS, 0, s,
                  (T *)y, (const T *)x, count, f);
    });
    return DP_CUDA(cudaGetLastError());
}

/* ---- samples to numbers ---- */

/* P neighbours a thread; `count` is a multiple of P. X: uint8_t or float. */
template <typename T, typename X, int P>
static __global__ void load_kernel(T *y, const X *x, const float *scale, const float *shift,
                                   size_t channels, size_t count)
{
    for (size_t i = dp_thread(); i < count / P; i += dp_threads()) {
        const dp_pack<X, P> numbers = *reinterpret_cast<const dp_pack<X, P> *>(x + i * P);
        /* Counts of numbers are small as a rule, and 64-bit divisions take longer than the memory.
         */
        size_t channel = channels == 1             ? 0
                         : count < (size_t)1 << 32 ? (uint32_t)(i * P) % (uint32_t)channels
                                                   : i * P % channels;
        float values[P];
#pragma unroll
        for (int p = 0; p < P; p++) {
            values[p] = (float)numbers.at[p] * scale[channel] + shift[channel];
            channel = channel + 1 < channels ? channel + 1 : 0;
        }
        dp_write<P>(y + i * P, values);
    }
}

template <typename X>
static dp_status load(struct dp_stream *s, void *y, const X *x, const float *scale,
                      const float *shift, size_t channels, size_t count)
{
    if (count == 0) {
        return DP_OK;
    }
    DP_BY_TYPE(s->type, T, {
        /* No access of more than 16 bytes. */
        constexpr int most = 16 / (int)sizeof(X), pack = dp_pack_of<T>();
        constexpr int P = pack < most ? pack : most;
        if (count % P == 0 && dp_aligned(y) && dp_aligned(x)) {
            DP_LAUNCH((load_kernel<T, X, P>), dp_blocks(s, count / P), DP_THREADS, 0, s, (T *)y, x,
                      scale, shift, channels, count);
        } else {
            DP_LAUNCH((load_kernel<T, X, 1>), dp_blocks(s, count), DP_THREADS, 0, s, (T *)y, x,
                      scale, shift, channels, count);
        }
    });
    return DP_CUDA(cudaGetLastError());
}

extern "C" dp_status dp_cuda_bytes_load(struct dp_stream *s, void *y, const uint8_t *x,
                                        const float *scale, const float *shift, size_t channels,
                                        size_t count)
{
    return load(s, y, x, scale, shift, channels, count);
}

extern "C" dp_status dp_cuda_floats_load(struct dp_stream *s, void *y, const float *x,
                                         const float *scale, const float *shift, size_t channels,
                                         size_t count)
{
    return load(s, y, x, scale, shift, channels, count);
}
