/*
 * pool.cu - maximum and average over windows: see kernels/ops.h for the contracts.
 *
 * Bytes moved: forward reads x once where windows do not overlap (the cache serves what overlaps)
 * and writes y and, for a maximum, one byte each; backward reads dy and these bytes and writes dx.
 * Neighbouring threads take neighbouring channels. Indices are 32 bits wide where they fit, since
 * dividing 64-bit numbers would take longer than the memory does.
 */
extern "C" {
#include "kernels/ref/window.h"
}
#include "kernels/cuda/launch.h"

/* The window on the device: all numbers as wide as the index. */
template <typename I> struct pool {
    I in_h, in_w, channels, out_h, out_w, kernel_h, kernel_w, stride, padding;
};

template <typename I> static pool<I> pool_of(const struct dp_window *w)
{
    return {(I)w->in_h,     (I)w->in_w,     (I)w->in_c,   (I)w->out_h,  (I)w->out_w,
            (I)w->kernel_h, (I)w->kernel_w, (I)w->stride, (I)w->padding};
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
template <typename T, typename I>
static __global__ void max_kernel(T *y, uint8_t *which, const T *x, pool<I> w, I count)
{
    for (I i = (I)dp_thread(); i < count; i += (I)dp_threads()) {
        const I pixel = i / w.channels, ox = pixel % w.out_w, oy = pixel / w.out_w % w.out_h;
        const I image = pixel / w.out_w / w.out_h;
        I y0, y1, x0, x1;
        inside(oy, w.in_h, w.kernel_h, w.stride, w.padding, &y0, &y1);
        inside(ox, w.in_w, w.kernel_w, w.stride, w.padding, &x0, &x1);
        float best = -INFINITY;
        I place = y0 * w.kernel_w + x0;
        for (I ky = y0; ky < y1; ky++) {
            const I row = (image * w.in_h + oy * w.stride + ky - w.padding) * w.in_w;
            for (I kx = x0; kx < x1; kx++) {
                const I at = row + ox * w.stride + kx - w.padding;
                const float value = dp_wide(x[(size_t)at * w.channels + i % w.channels]);
                const bool larger = value > best || isnan(value);
                best = larger ? value : best;
                place = larger ? ky * w.kernel_w + kx : place;
            }
        }
        dp_narrow(&y[i], best);
        if (which != nullptr) {
            which[i] = (uint8_t)place;
        }
    }
}

template <typename T, typename I>
static __global__ void average_kernel(T *y, const T *x, pool<I> w, I count)
{
    const float each = 1.0f / (float)(w.kernel_h * w.kernel_w);

    for (I i = (I)dp_thread(); i < count; i += (I)dp_threads()) {
        const I pixel = i / w.channels, ox = pixel % w.out_w, oy = pixel / w.out_w % w.out_h;
        const I image = pixel / w.out_w / w.out_h;
        I y0, y1, x0, x1;
        inside(oy, w.in_h, w.kernel_h, w.stride, w.padding, &y0, &y1);
        inside(ox, w.in_w, w.kernel_w, w.stride, w.padding, &x0, &x1);
        float sum = 0;
        for (I ky = y0; ky < y1; ky++) {
            const I row = (image * w.in_h + oy * w.stride + ky - w.padding) * w.in_w;
            for (I kx = x0; kx < x1; kx++) {
                const I at = row + ox * w.stride + kx - w.padding;
                sum += dp_wide(x[(size_t)at * w.channels + i % w.channels]);
            }
        }
        dp_narrow(&y[i], sum * each);
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

/* Every input adds what comes from the windows that read it, so no two threads write the same. */
template <typename T, typename I>
static __global__ void gradient_kernel(T *dx, const T *dy, const uint8_t *which, pool<I> w, I count)
{
    const float each = 1.0f / (float)(w.kernel_h * w.kernel_w);

    for (I i = (I)dp_thread(); i < count; i += (I)dp_threads()) {
        const I pixel = i / w.channels, ix = pixel % w.in_w, iy = pixel / w.in_w % w.in_h;
        const I image = pixel / w.in_w / w.in_h;
        I y0, y1, x0, x1;
        readers(iy, w.out_h, w.kernel_h, w.stride, w.padding, &y0, &y1);
        readers(ix, w.out_w, w.kernel_w, w.stride, w.padding, &x0, &x1);
        float sum = 0;
        for (I oy = y0; oy < y1; oy++) {
            for (I ox = x0; ox < x1; ox++) {
                const I ky = iy + w.padding - oy * w.stride, kx = ix + w.padding - ox * w.stride;
                const size_t at =
                    (size_t)((image * w.out_h + oy) * w.out_w + ox) * w.channels + i % w.channels;
                if (which == nullptr) {
                    sum += dp_wide(dy[at]) * each;
                } else if (which[at] == ky * w.kernel_w + kx) {
                    sum += dp_wide(dy[at]);
                }
            }
        }
        dp_narrow(&dx[i], sum);
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

template <typename T, typename I>
static dp_status forward(struct dp_stream *s, T *y, uint8_t *which, const T *x,
                         const struct dp_window *w, size_t count, enum dp_pool_kind kind)
{
    if (kind == DP_POOL_MAX) {
        DP_LAUNCH((max_kernel<T, I>), dp_blocks(s, count), DP_THREADS, 0, s, y, which, x,
                  pool_of<I>(w), (I)count);
    } else {
        DP_LAUNCH((average_kernel<T, I>), dp_blocks(s, count), DP_THREADS, 0, s, y, x,
                  pool_of<I>(w), (I)count);
    }
    return DP_CUDA(cudaGetLastError());
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
        return small ? forward<T, uint32_t>(s, (T *)y, which, (const T *)x, w, count, kind)
                     : forward<T, uint64_t>(s, (T *)y, which, (const T *)x, w, count, kind);
    });
}

extern "C" dp_status dp_cuda_pool_backward(struct dp_stream *s, void *dx, const void *dy,
                                           const uint8_t *which, const struct dp_window *w,
                                           size_t rows, enum dp_pool_kind kind)
{
    const size_t count = rows * dp_window_in(w), blocks = dp_blocks(s, count);
    const uint8_t *places = kind == DP_POOL_MAX ? which : nullptr;

    if (kind == DP_POOL_MAX && which == nullptr && rows > 0) {
        return DP_FAIL(DP_ERR_ARG, "gradient of a maximum without what forward kept");
    }
    if (count == 0) {
        return DP_OK;
    }
    DP_BY_TYPE(s->type, T, {
        if (dp_is_small(count, rows * dp_window_out(w))) {
            DP_LAUNCH((gradient_kernel<T, uint32_t>), blocks, DP_THREADS, 0, s, (T *)dx,
                      (const T *)dy, places, pool_of<uint32_t>(w), (uint32_t)count);
        } else {
            DP_LAUNCH((gradient_kernel<T, uint64_t>), blocks, DP_THREADS, 0, s, (T *)dx,
                      (const T *)dy, places, pool_of<uint64_t>(w), (uint64_t)count);
        }
    });
    return DP_CUDA(cudaGetLastError());
}
