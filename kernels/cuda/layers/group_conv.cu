/*
 * group_conv.cu - convolutions of several groups, where cuDNN does not compute them: see
 * kernels/ops.h.
 *
 * 2 pixels kernel_h kernel_w fan out_c FLOPs each, where pixels = rows out_h out_w, and fan = in_c
 * / groups channels are too few for products of matrices. Forward and backward to data take an
 * element a thread; neighbouring threads have neighbouring channels, so that of depthwise ones all
 * reads of images are of neighbours, mostly from the cache. Gradients of weights are sums over
 * pixels, in slices: a block sums one tap of as many output channels as a warp has threads, its
 * warps side by side over the pixels of a slice. Partial sums lie in dp_cuda.partials. All sums are
 * float32, in an order that depends on the shape alone.
 */
extern "C" {
#include "kernels/cuda/layers/conv_cuda.h"
#include "kernels/op_path.h"
#include "kernels/ref/window.h"
}
#include "kernels/cuda/stream/launch.h"

/* What loops need of a window, as 32 bits where that is enough. */
struct shape {
    uint32_t in_h, in_w, in_c, out_h, out_w, out_c, kernel_w, taps, stride, padding, fan, outs;
};

static shape shape_of(const struct dp_window *w)
{
    const size_t groups = dp_window_groups(w);

    return {(uint32_t)w->in_h,
            (uint32_t)w->in_w,
            (uint32_t)w->in_c,
            (uint32_t)w->out_h,
            (uint32_t)w->out_w,
            (uint32_t)w->out_c,
            (uint32_t)w->kernel_w,
            (uint32_t)(w->kernel_h * w->kernel_w),
            (uint32_t)w->stride,
            (uint32_t)w->padding,
            (uint32_t)(w->in_c / groups),
            (uint32_t)(w->out_c / groups)};
}

/* The first channel of the input pixel that a tap of an output pixel reads; false: padding. */
static __device__ __forceinline__ bool source_of(const shape &w, size_t pixel, uint32_t tap,
                                                 size_t *at)
{
    const uint32_t place = (uint32_t)(pixel % (w.out_h * w.out_w));
    const uint32_t iy = place / w.out_w * w.stride + tap / w.kernel_w - w.padding;
    const uint32_t ix = place % w.out_w * w.stride + tap % w.kernel_w - w.padding;

    *at = ((pixel / (w.out_h * w.out_w) * w.in_h + iy) * w.in_w + ix) * w.in_c;
    return iy < w.in_h && ix < w.in_w; /* outside above or left wraps to very large */
}

template <typename T>
static __global__ void forward_kernel(T *y, const T *x, const T *weights, const T *bias, shape w,
                                      bool relu, size_t count)
{
    for (size_t i = dp_thread(); i < count; i += dp_threads()) {
        const uint32_t channel = (uint32_t)(i % w.out_c), first = channel / w.outs * w.fan;
        const T *kernel = weights + (size_t)channel * w.taps * w.fan;
        float sum = bias != nullptr ? dp_wide(bias[channel]) : 0;
        for (uint32_t tap = 0; tap < w.taps; tap++) {
            size_t at;
            if (!source_of(w, i / w.out_c, tap, &at)) {
                continue;
            }
            for (uint32_t c = 0; c < w.fan; c++) {
                sum = __fmaf_rn(dp_wide(x[at + first + c]), dp_wide(kernel[tap * w.fan + c]), sum);
            }
        }
        dp_narrow(&y[i], relu && sum < 0 ? 0 : sum);
    }
}

template <typename T>
static __global__ void data_kernel(T *dx, const T *dy, const T *weights, shape w, size_t count)
{
    for (size_t i = dp_thread(); i < count; i += dp_threads()) {
        const uint32_t channel = (uint32_t)(i % w.in_c), first = channel / w.fan * w.outs;
        const size_t pixel = i / w.in_c, image = pixel / (w.in_h * w.in_w);
        const uint32_t place = (uint32_t)(pixel % (w.in_h * w.in_w));
        float sum = 0;
        for (uint32_t tap = 0; tap < w.taps; tap++) {
            const uint32_t oy = place / w.in_w + w.padding - tap / w.kernel_w;
            const uint32_t ox = place % w.in_w + w.padding - tap % w.kernel_w;
            if (oy % w.stride != 0 || ox % w.stride != 0 || oy / w.stride >= w.out_h ||
                ox / w.stride >= w.out_w) { /* what wrapped is very large */
                continue;
            }
            const T *from =
                dy + ((image * w.out_h + oy / w.stride) * w.out_w + ox / w.stride) * w.out_c;
            for (uint32_t c = first; c < first + w.outs; c++) {
                const size_t at = ((size_t)c * w.taps + tap) * w.fan + channel % w.fan;
                sum = __fmaf_rn(dp_wide(from[c]), dp_wide(weights[at]), sum);
            }
        }
        dp_narrow(&dx[i], sum);
    }
}

/* A block's items: slices of taps (and the channel of the group that they are of) of a warp's
 * output channels. */
template <typename T>
static __global__ void weights_kernel(float *sums, const T *dy, const T *x, shape w, size_t pixels,
                                      size_t slices, float keep)
{
    DP_SHARED(float, shared);
    const uint32_t lanes = (uint32_t)warpSize, lane = threadIdx.x % lanes;
    const uint32_t warp = threadIdx.x / lanes, warps = blockDim.x / lanes;
    const uint32_t each = w.taps * w.fan;
    const size_t tiles = (w.out_c + lanes - 1) / lanes;

    for (size_t item = blockIdx.x; item < slices * tiles * each; item += gridDim.x) {
        const size_t slice = item / (tiles * each);
        const uint32_t k = (uint32_t)(item % each);
        const uint32_t channel = (uint32_t)(item / each % tiles) * lanes + lane;
        const size_t end = (slice + 1) * pixels / slices;
        const uint32_t from = channel / w.outs * w.fan + k % w.fan;
        float sum = 0;
        for (size_t p = slice * pixels / slices + warp; p < end; p += warps) {
            size_t at;
            if (source_of(w, p, k / w.fan, &at) && channel < w.out_c) {
                sum = __fmaf_rn(dp_wide(dy[p * w.out_c + channel]), dp_wide(x[at + from]), sum);
            }
        }
        shared[threadIdx.x] = sum;
        __syncthreads();
        if (warp == 0 && channel < w.out_c) {
            const size_t to = (slice * w.out_c + channel) * each + k;
            for (uint32_t i = 1; i < warps; i++) {
                sum += shared[i * lanes + lane];
            }
            sums[to] = sum + (keep != 0 ? sums[to] : 0);
        }
        __syncthreads();
    }
}

static __global__ void slices_kernel(float *dw, const float *sums, size_t slices, size_t count,
                                     float keep)
{
    for (size_t i = dp_thread(); i < count; i += dp_threads()) {
        float sum = keep != 0 ? dw[i] : 0;
        for (size_t k = 0; k < slices; k++) {
            sum += sums[k * count + i];
        }
        dw[i] = sum;
    }
}

extern "C" dp_status dp_cuda_group_conv_forward(struct dp_stream *s, void *y, const void *x,
                                                const void *weights, const void *bias,
                                                const struct dp_window *w, size_t rows,
                                                enum dp_activation act)
{
    const size_t count = rows * dp_window_out(w);

    if (count == 0) {
        return DP_OK;
    }
    dp_op_path_note(s, "cuda", "group_conv");
    DP_BY_TYPE(s->type, T, {
        DP_LAUNCH((forward_kernel<T>), dp_blocks(s, count), DP_THREADS, 0, s, (T *)y, (const T *)x,
                  (const T *)weights, (const T *)bias, shape_of(w), act == DP_ACT_RELU, count);
    });
    return DP_CUDA(cudaGetLastError());
}

extern "C" dp_status dp_cuda_group_conv_backward_data(struct dp_stream *s, void *dx, const void *dy,
                                                      const void *weights,
                                                      const struct dp_window *w, size_t rows)
{
    const size_t count = rows * dp_window_in(w);

    if (count == 0) {
        return DP_OK;
    }
    dp_op_path_note(s, "cuda", "group_conv");
    DP_BY_TYPE(s->type, T, {
        DP_LAUNCH((data_kernel<T>), dp_blocks(s, count), DP_THREADS, 0, s, (T *)dx, (const T *)dy,
                  (const T *)weights, shape_of(w), count);
    });
    return DP_CUDA(cudaGetLastError());
}

/* Items of a slice, of a GPU whose warps have 32 threads. */
static size_t items_of(const struct dp_window *w)
{
    enum { LANES = 32 };

    return dp_window_weights(w) / w->out_c * ((w->out_c + LANES - 1) / LANES);
}

/* Enough slices that a large GPU has work, of some hundred pixels at least, and whose sums fit into
 * dp_cuda.partials. */
static size_t slices_of(const struct dp_window *w, size_t pixels)
{
    enum { ITEMS = 2048, PIXELS = 256 };
    const size_t room = DP_CUDA_PARTIALS * sizeof(double) / sizeof(float) / dp_window_weights(w);
    const size_t items = items_of(w);
    const size_t wanted = dp_least(dp_least((ITEMS + items - 1) / items, pixels / PIXELS), room);

    return wanted == 0 ? 1 : wanted;
}

extern "C" dp_status dp_cuda_group_conv_backward_weights(struct dp_stream *s, float *dw,
                                                         const void *dy, const void *x,
                                                         const struct dp_window *w, size_t rows,
                                                         float keep)
{
    const size_t count = dp_window_weights(w), pixels = rows * w->out_h * w->out_w;
    const size_t slices = slices_of(w, pixels), items = slices * items_of(w);
    float *sums = slices == 1 ? dw : (float *)dp_cuda_of(s)->partials;

    dp_op_path_note(s, "cuda", "group_conv");
    DP_BY_TYPE(s->type, T, {
        DP_LAUNCH((weights_kernel<T>), items, DP_THREADS, DP_THREADS * sizeof(float), s, sums,
                  (const T *)dy, (const T *)x, shape_of(w), pixels, slices,
                  slices == 1 ? keep : 0.0f);
    });
    if (slices > 1) {
        DP_LAUNCH(slices_kernel, dp_blocks(s, count), DP_THREADS, 0, s, dw, sums, slices, count,
                  keep);
    }
    return DP_CUDA(cudaGetLastError());
}
