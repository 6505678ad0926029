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
#include "kernels/cuda/stream/launch.h"

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

/* ---- stride 2: a thread has 2 x 2 inputs, all of which are read by the same four windows ---- */

/* Inputs whose numbers, with padding, are 2 group and 2 group + 1 are read by no windows but those
 * of number group - 1 and group, as long as windows are 4 wide at most. */
enum { WIDEST = 4 };

template <typename I> static I groups_of(size_t in, size_t padding)
{
    return (I)((padding + in - 1) / 2 - padding / 2 + 1);
}

template <int P> struct pool_windows {
    float gradients[4][P];
    dp_pack<uint8_t, P> places[4];
};

/* Windows (gy - 1, gx - 1), (gy - 1, gx), (gy, gx - 1) and (gy, gx). */
template <typename T, int P, typename I>
static __device__ __forceinline__ void read_windows(pool_windows<P> *found, const T *dy,
                                                    const uint8_t *which, const pool<I> &w, I row,
                                                    I gy, I gx, I pack)
{
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const I oy = gy - 1 + (I)(k / 2), ox = gx - 1 + (I)(k % 2); /* before the first: large */
        const size_t at = (size_t)(((row + oy) * w.out_w + ox) * w.packs + pack) * P;
        if (oy < w.out_h && ox < w.out_w) {
            dp_read<P>(found->gradients[k], dy + at);
            if (which != nullptr) {
                found->places[k] = *reinterpret_cast<const dp_pack<uint8_t, P> *>(which + at);
            }
        }
    }
}

/* The same sums, in the same order, as gradient_kernel's; each window is read once, not 2.25 times
 * as by 3 x 3 windows. */
template <typename T, int P, typename I>
static __global__ void pairs_kernel(T *dx, const T *dy, const uint8_t *which, pool<I> w, I high,
                                    I wide, I count)
{
    const float each = which != nullptr ? 1.0f : 1.0f / (float)(w.kernel_h * w.kernel_w);

    for (I i = (I)dp_thread(); i < count; i += (I)dp_threads()) {
        const I group = i / w.packs, pack = i % w.packs, image = group / wide / high;
        const I gy = group / wide % high + w.padding / 2, gx = group % wide + w.padding / 2;
        pool_windows<P> found = {};
        read_windows<T, P>(&found, dy, which, w, image * w.out_h, gy, gx, pack);
#pragma unroll
        for (unsigned k = 0; k < 4; k++) {
            const I iy = 2 * gy + k / 2 - w.padding, ix = 2 * gx + k % 2 - w.padding;
            float sums[P] = {};
            if (iy >= w.in_h || ix >= w.in_w) {
                continue;
            }
#pragma unroll
            for (unsigned n = 0; n < 4; n++) {
                const unsigned ky = k / 2 + 2 - n / 2 * 2, kx = k % 2 + 2 - n % 2 * 2;
                const unsigned place = ky * (unsigned)w.kernel_w + kx;
                if (ky >= w.kernel_h || kx >= w.kernel_w) {
                    continue;
                }
#pragma unroll
                for (int p = 0; p < P; p++) {
                    const bool counts = which == nullptr || found.places[n].at[p] == place;
                    const float part = found.gradients[n][p] * each;
                    sums[p] = counts ? sums[p] + part : sums[p];
                }
            }
            dp_write<P>(dx + (size_t)(((image * w.in_h + iy) * w.in_w + ix) * w.packs + pack) * P,
                        sums);
        }
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
            if (w->stride == 2 && w->kernel_h <= WIDEST && w->kernel_w <= WIDEST) {
                const I high = groups_of<I>(w->in_h, w->padding);
                const I wide = groups_of<I>(w->in_w, w->padding);
                const size_t groups = rows * high * wide * (w->in_c / P);
                DP_LAUNCH((pairs_kernel<T, P, I>), dp_blocks(s, groups), DP_THREADS, 0, s, (T *)dx,
                          (const T *)dy, places, (pool_of<I, P>(w)), high, wide, (I)groups);
            } else {
                DP_LAUNCH((gradient_kernel<T, P, I>), dp_blocks(s, count / P), DP_THREADS, 0, s,
                          (T *)dx, (const T *)dy, places, (pool_of<I, P>(w)), (I)(count / P));
            }
        });
    });
    return DP_CUDA(cudaGetLastError());
}
