/*
 * pool.cu - maximum and average over windows: see kernels/ops.h for the contracts.
 *
 * Bytes moved: forward reads x once where windows do not overlap (the cache serves what overlaps)
 * and writes y and, for a maximum, one byte each; backward reads dy and these bytes and writes dx.
 * Neighbouring threads take neighbouring channels, 16 bytes of them where they can. Indices are 32
 * bits wide where they fit, since dividing 64-bit numbers would take longer than the memory does.
 */
extern "C" {
#include "kernels/ref/window.h"
}
#include "kernels/cuda/launch.h"

/* The window on the device: all numbers as wide as the index, channels in packs. */
template <typename I> struct pool {
    I in_h, in_w, packs, out_h, out_w, kernel_h, kernel_w, stride, padding;
};

template <typename I, int P> static pool<I> pool_of(const struct dp_window *w)
{
    return {(I)w->in_h,     (I)w->in_w,     (I)(w->in_c / P), (I)w->out_h,  (I)w->out_w,
            (I)w->kernel_h, (I)w->kernel_w, (I)w->stride,     (I)w->padding};
}

/* Kernel positions [begin, end) of output position `at` that lie inside of the image. */
template <typename I>
static __device__ __forceinline__ void inside(I at, I in, I kernel, I stride, I padding, I *begin,
                                              I *end)
{
    const I from = at * stride, last = in + padding;

    *begin = from < padding ? padding - from : 0;
    *end = last - from < kernel ? last - from : kernel;
}

/* The first maximum; a NaN counts as larger than any number, so it is not lost. */
template <typename T, int P, typename I>
static __global__ void max_kernel(T *y, uint8_t *which, const T *x, pool<I> w, I count)
{
    for (I i = (I)dp_thread(); i < count; i += (I)dp_threads()) {
        const I pixel = i / w.packs, ox = pixel % w.out_w, oy = pixel / w.out_w % w.out_h;
        const I image = pixel / w.out_w / w.out_h;
        I y0, y1, x0, x1;
        inside(oy, w.in_h, w.kernel_h, w.stride, w.padding, &y0, &y1);
        inside(ox, w.in_w, w.kernel_w, w.stride, w.padding, &x0, &x1);
        float best[P];
        dp_pack<uint8_t, P> places;
        for (int p = 0; p < P; p++) {
            best[p] = -INFINITY;
            places.at[p] = (uint8_t)(y0 * w.kernel_w + x0);
        }
        for (I ky = y0; ky < y1; ky++) {
            const I row = (image * w.in_h + oy * w.stride + ky - w.padding) * w.in_w;
            for (I kx = x0; kx < x1; kx++) {
                const I at = (row + ox * w.stride + kx - w.padding) * w.packs + i % w.packs;
                float values[P];
                dp_read<P>(values, x + (size_t)at * P);
#pragma unroll
                for (int p = 0; p < P; p++) {
                    const bool larger = values[p] > best[p] || isnan(values[p]);
                    best[p] = larger ? values[p] : best[p];
                    places.at[p] = larger ? (uint8_t)(ky * w.kernel_w + kx) : places.at[p];
                }
            }
        }
        dp_write<P>(y + (size_t)i * P, best);
        if (which != nullptr) {
            *reinterpret_cast<dp_pack<uint8_t, P> *>(which + (size_t)i * P) = places;
        }
    }
}

template <typename T, int P, typename I>
static __global__ void average_kernel(T *y, const T *x, pool<I> w, I count)
{
    const float each = 1.0f / (float)(w.kernel_h * w.kernel_w);

    for (I i = (I)dp_thread(); i < count; i += (I)dp_threads()) {
        const I pixel = i / w.packs, ox = pixel % w.out_w, oy = pixel / w.out_w % w.out_h;
        const I image = pixel / w.out_w / w.out_h;
        I y0, y1, x0, x1;
        inside(oy, w.in_h, w.kernel_h, w.stride, w.padding, &y0, &y1);
        inside(ox, w.in_w, w.kernel_w, w.stride, w.padding, &x0, &x1);
        float sums[P] = {};
        for (I ky = y0; ky < y1; ky++) {
            const I row = (image * w.in_h + oy * w.stride + ky - w.padding) * w.in_w;
            for (I kx = x0; kx < x1; kx++) {
                const I at = (row + ox * w.stride + kx - w.padding) * w.packs + i % w.packs;
                float values[P];
                dp_read<P>(values, x + (size_t)at * P);
#pragma unroll
                for (int p = 0; p < P; p++) {
                    sums[p] += values[p];
                }
            }
        }
#pragma unroll
        for (int p = 0; p < P; p++) {
            sums[p] *= each;
        }
        dp_write<P>(y + (size_t)i * P, sums);
    }
}

/* The output positions [begin, end) whose windows read input position `at`. */
template <typename I>
static __device__ __forceinline__ void readers(I at, I outs, I kernel, I stride, I padding,
                                               I *begin, I *end)
{
    const I padded = at + padding, last = padded / stride + 1;

    *begin = padded < kernel ? 0 : (padded - kernel) / stride + 1;
    *end = last < outs ? last : outs;
}

/* sums += what comes from the window at pack `at` of dy, in which this input is element `place`. */
template <typename T, int P>
static __device__ __forceinline__ void add_window(float (&sums)[P], const T *dy,
                                                  const uint8_t *which, size_t at, unsigned place,
                                                  float each)
{
    float gradients[P];

    dp_read<P>(gradients, dy + at * P);
    if (which == nullptr) {
#pragma unroll
        for (int p = 0; p < P; p++) {
            sums[p] += gradients[p] * each;
        }
        return;
    }
    const auto places = *reinterpret_cast<const dp_pack<uint8_t, P> *>(which + at * P);
#pragma unroll
    for (int p = 0; p < P; p++) {
        sums[p] = places.at[p] == place ? sums[p] + gradients[p] : sums[p];
    }
}

/* Every input adds what comes from the windows that read it, so no two threads write the same. */
template <typename T, int P, typename I>
static __global__ void gradient_kernel(T *dx, const T *dy, const uint8_t *which, pool<I> w, I count)
{
    const float each = 1.0f / (float)(w.kernel_h * w.kernel_w);

    for (I i = (I)dp_thread(); i < count; i += (I)dp_threads()) {
        const I pixel = i / w.packs, ix = pixel % w.in_w, iy = pixel / w.in_w % w.in_h;
        const I image = pixel / w.in_w / w.in_h;
        I y0, y1, x0, x1;
        readers(iy, w.out_h, w.kernel_h, w.stride, w.padding, &y0, &y1);
        readers(ix, w.out_w, w.kernel_w, w.stride, w.padding, &x0, &x1);
        float sums[P] = {};
        for (I oy = y0; oy < y1; oy++) {
            for (I ox = x0; ox < x1; ox++) {
                const I ky = iy + w.padding - oy * w.stride, kx = ix + w.padding - ox * w.stride;
                const I at = ((image * w.out_h + oy) * w.out_w + ox) * w.packs + i % w.packs;
                add_window<T, P>(sums, dy, which, at, (unsigned)(ky * w.kernel_w + kx), each);
            }
        }
        dp_write<P>(dx + (size_t)i * P, sums);
    }
}

extern "C" dp_status dp_cuda_pool_prepare(struct dp_stream *s, const struct dp_window *w,
                                          size_t rows, enum dp_pool_kind kind, bool training)
{
    (void)s;
    (void)rows;
    (void)training;
    return dp_window_check_pool(w, kind);
}

/* Runs the statements with P and I for arrays of type T: whole packs where the channels and all
 * addresses allow, else one element; indices of 32 bits where they fit. */
#define BY_PACK(T, P, I, packed, small, ...)   \
    do {                                       \
        if ((packed) && (small)) {             \
            constexpr int P = dp_pack_of<T>(); \
            typedef uint32_t I;                \
            __VA_ARGS__                        \
        } else if (packed) {                   \
            constexpr int P = dp_pack_of<T>(); \
            typedef uint64_t I;                \
            __VA_ARGS__                        \
        } else if (small) {                    \
            constexpr int P = 1;               \
            typedef uint32_t I;                \
            __VA_ARGS__                        \
        } else {                               \
            constexpr int P = 1;               \
            typedef uint64_t I;                \
            __VA_ARGS__                        \
        }                                      \
    } while (0)

template <typename T>
static bool is_packed(const struct dp_window *w, const void *x, const void *y, const uint8_t *which)
{
    constexpr int P = dp_pack_of<T>();

    return w->in_c % P == 0 && dp_aligned(x) && dp_aligned(y) && (uintptr_t)which % P == 0;
}

extern "C" dp_status dp_cuda_pool_forward(struct dp_stream *s, void *y, uint8_t *which,
                                          const void *x, const struct dp_window *w, size_t rows,
                                          enum dp_pool_kind kind)
{
    const size_t count = rows * dp_window_out(w);
    const bool small = dp_is_small(count, rows * dp_window_in(w));

    if (count == 0) {
        return DP_OK;
    }
    DP_BY_TYPE(s->type, T, {
        BY_PACK(T, P, I, is_packed<T>(w, x, y, which), small, {
            const size_t blocks = dp_blocks(s, count / P);
            if (kind == DP_POOL_MAX) {
                DP_LAUNCH((max_kernel<T, P, I>), blocks, DP_THREADS, 0, s, (T *)y, which,
                          (const T *)x, (pool_of<I, P>(w)), (I)(count / P));
            } else {
                DP_LAUNCH((average_kernel<T, P, I>), blocks, DP_THREADS, 0, s, (T *)y, (const T *)x,
                          (pool_of<I, P>(w)), (I)(count / P));
            }
        });
    });
    return DP_CUDA(cudaGetLastError());
}

extern "C" dp_status dp_cuda_pool_backward(struct dp_stream *s, void *dx, const void *dy,
                                           const uint8_t *which, const struct dp_window *w,
                                           size_t rows, enum dp_pool_kind kind)
{
    const size_t count = rows * dp_window_in(w);
    const bool small = dp_is_small(count, rows * dp_window_out(w));
    const uint8_t *places = kind == DP_POOL_MAX ? which : nullptr;

    if (kind == DP_POOL_MAX && which == nullptr && rows > 0) {
        return DP_FAIL(DP_ERR_ARG, "gradient of a maximum without what forward kept");
    }
    if (count == 0) {
        return DP_OK;
    }
    DP_BY_TYPE(s->type, T, {
        BY_PACK(T, P, I, is_packed<T>(w, dx, dy, places), small, {
            DP_LAUNCH((gradient_kernel<T, P, I>), dp_blocks(s, count / P), DP_THREADS, 0, s,
                      (T *)dx, (const T *)dy, places, (pool_of<I, P>(w)), (I)(count / P));
        });
    });
    return DP_CUDA(cudaGetLastError());
}
