/*
 * im2col.cu - image windows as rows of a matrix, so that a convolution is a product of matrices.
 *
 *   x [rows, in_h, in_w, in_c] -> columns [rows out_h out_w, kernel_h kernel_w in_c]
 *
 * im2col writes e bytes an element of the columns and reads x kernel_h kernel_w / stride^2 times,
 * mostly from the cache; col2im reads the columns once, 4 bytes an element, and writes dx.
 * conv_cublas.c calls them for a few images at a time, so that columns stay in the second-level
 * cache of a large GPU.
 */
extern "C" {
#include "kernels/ref/window.h"
}
#include "kernels/cuda/stream/launch.h"

/* P neighbouring channels a thread; `count` packs of the columns, counted by an I. */
template <typename T, int P, typename I>
static __global__ void im2col_kernel(T *columns, const T *x, struct dp_window w, I count)
{
    const uint32_t packs = (uint32_t)(w.in_c / P);
    const uint32_t kernel_w = (uint32_t)w.kernel_w, taps = (uint32_t)w.kernel_h * kernel_w;
    const uint32_t out_w = (uint32_t)w.out_w, out_h = (uint32_t)w.out_h;

    for (I i = (I)dp_thread(); i < count; i += (I)dp_threads()) {
        const I tap_at = i / packs, pixel = tap_at / taps, image = pixel / (out_w * out_h);
        const uint32_t tap = (uint32_t)(tap_at % taps), place = (uint32_t)(pixel % (out_w * out_h));
        const size_t iy = place / out_w * w.stride + tap / kernel_w - w.padding;
        const size_t ix = place % out_w * w.stride + tap % kernel_w - w.padding;
        float values[P] = {};
        if (iy < w.in_h && ix < w.in_w) { /* outside above or left wraps to very large */
            const size_t channel = (size_t)(i % packs) * P;
            dp_read<P>(values,
                       x + (((size_t)image * w.in_h + iy) * w.in_w + ix) * w.in_c + channel);
        }
        dp_write<P>(columns + (size_t)i * P, values);
    }
}

template <typename T, int P, typename I>
static __global__ void col2im_kernel(T *dx, const float *columns, struct dp_window w, I count)
{
    const uint32_t packs = (uint32_t)(w.in_c / P);
    const uint32_t in_w = (uint32_t)w.in_w, in_h = (uint32_t)w.in_h;
    const uint32_t out_w = (uint32_t)w.out_w, out_h = (uint32_t)w.out_h;
    const uint32_t kernel_w = (uint32_t)w.kernel_w, kernel_h = (uint32_t)w.kernel_h;
    const uint32_t stride = (uint32_t)w.stride, padding = (uint32_t)w.padding;
    const size_t taps = w.kernel_h * w.kernel_w;

    for (I i = (I)dp_thread(); i < count; i += (I)dp_threads()) {
        const I pixel = i / packs, image = pixel / (in_w * in_h);
        const uint32_t place = (uint32_t)(pixel % (in_w * in_h));
        const uint32_t padded_y = place / in_w + padding, padded_x = place % in_w + padding;
        const size_t channel = (size_t)(i % packs) * P;
        float sums[P] = {};
        for (uint32_t ky = padded_y % stride; ky < kernel_h && ky <= padded_y; ky += stride) {
            const uint32_t oy = (padded_y - ky) / stride;
            for (uint32_t kx = padded_x % stride; oy < out_h && kx < kernel_w && kx <= padded_x;
                 kx += stride) {
                const uint32_t ox = (padded_x - kx) / stride;
                const size_t at = ((size_t)image * out_h + oy) * out_w + ox;
                float values[P] = {};
                if (ox < out_w) {
                    dp_read<P>(values,
                               columns + (at * taps + ky * kernel_w + kx) * w.in_c + channel);
                }
#pragma unroll
                for (int p = 0; p < P; p++) {
                    sums[p] += values[p];
                }
            }
        }
        dp_write<P>(dx + (size_t)i * P, sums);
    }
}

template <typename T, int P>
static void im2col(struct dp_stream *s, T *columns, const T *x, const struct dp_window *w,
                   size_t count)
{
    if (dp_is_small(count, 0)) {
        DP_LAUNCH((im2col_kernel<T, P, uint32_t>), dp_blocks(s, count), DP_THREADS, 0, s, columns,
                  x, *w, (uint32_t)count);
    } else {
        DP_LAUNCH((im2col_kernel<T, P, uint64_t>), dp_blocks(s, count), DP_THREADS, 0, s, columns,
                  x, *w, (uint64_t)count);
    }
}

template <typename T, int P>
static void col2im(struct dp_stream *s, T *dx, const float *columns, const struct dp_window *w,
                   size_t count)
{
    if (dp_is_small(count, 0)) {
        DP_LAUNCH((col2im_kernel<T, P, uint32_t>), dp_blocks(s, count), DP_THREADS, 0, s, dx,
                  columns, *w, (uint32_t)count);
    } else {
        DP_LAUNCH((col2im_kernel<T, P, uint64_t>), dp_blocks(s, count), DP_THREADS, 0, s, dx,
                  columns, *w, (uint64_t)count);
    }
}

extern "C" dp_status dp_cuda_im2col(struct dp_stream *s, void *columns, const void *x,
                                    const struct dp_window *w, size_t rows)
{
    const size_t count = rows * w->out_h * w->out_w * w->kernel_h * w->kernel_w * w->in_c;

    if (count == 0) {
        return DP_OK;
    }
    DP_BY_TYPE(s->type, T, {
        constexpr int P = dp_pack_of<T>();
        if (w->in_c % P == 0 && dp_aligned(x) && dp_aligned(columns)) {
            im2col<T, P>(s, (T *)columns, (const T *)x, w, count / P);
        } else {
            im2col<T, 1>(s, (T *)columns, (const T *)x, w, count);
        }
    });
    return DP_CUDA(cudaGetLastError());
}

extern "C" dp_status dp_cuda_col2im(struct dp_stream *s, void *dx, const float *columns,
                                    const struct dp_window *w, size_t rows)
{
    const size_t count = rows * dp_window_in(w);

    if (count == 0) {
        return DP_OK;
    }
    DP_BY_TYPE(s->type, T, {
        constexpr int P = dp_pack_of<T>();
        if (w->in_c % P == 0 && dp_aligned(dx) && dp_aligned(columns)) {
            col2im<T, P>(s, (T *)dx, columns, w, count / P);
        } else {
            col2im<T, 1>(s, (T *)dx, columns, w, count);
        }
    });
    return DP_CUDA(cudaGetLastError());
}
