/*
 * fold.cu - see fold.h.
 *
 * Bytes moved: of images, e an element of x (each is read once by few threads, through the cache)
 * and e an element of the folded images; weights and their gradient are small.
 */
extern "C" {
#include "kernels/cuda/cudnn/fold.h"
#include "kernels/ref/window.h"
}
#include "kernels/cuda/stream/launch.h"

enum { MOST_CHANNELS = 64, WIDTH = 2 /* bytes of a type */, PACK = 16 / WIDTH };
enum { PIECE_ROWS = 32 }; /* at least */

size_t dp_cuda_fold_bytes = DP_FOLD_BYTES;

extern "C" bool dp_cuda_folds(const struct dp_window *w, enum dp_type type)
{
    const bool gains = w->stride > 1 && w->in_c < PACK && w->kernel_h * w->kernel_w > 1;

    return type != DP_TYPE_F32 && gains && dp_window_groups(w) == 1 &&
           w->stride * w->stride * w->in_c <= MOST_CHANNELS;
}

extern "C" struct dp_window dp_cuda_folded(const struct dp_window *w)
{
    struct dp_window f = *w;

    f.kernel_h = (w->kernel_h + w->stride - 1) / w->stride;
    f.kernel_w = (w->kernel_w + w->stride - 1) / w->stride;
    f.in_h = w->out_h + f.kernel_h - 1;
    f.in_w = w->out_w + f.kernel_w - 1;
    f.in_c = dp_round_up(w->stride * w->stride * w->in_c, PACK);
    f.stride = 1;
    f.padding = 0;
    return f;
}

/* The fewest pieces that are small enough. Where none of that many rows is, the most pieces. */
extern "C" size_t dp_cuda_fold_rows(const struct dp_window *w, size_t rows)
{
    const struct dp_window f = dp_cuda_folded(w);
    const size_t image = dp_window_in(&f) * WIDTH;
    size_t found = rows;

    for (size_t n = 2; found * image > dp_cuda_fold_bytes && rows / n >= PIECE_ROWS; n++) {
        found = rows % n == 0 ? rows / n : found;
    }
    return found;
}

/* One pack of channels of a folded pixel a thread. `run`: elements of x that lie next to each other
 * in a row of a folded pixel. Offsets before an image wrap to very large ones. */
template <typename T, typename I>
static __global__ void images_kernel(T *to, const T *x, struct dp_window w, struct dp_window f,
                                     I count)
{
    const uint32_t packs = (uint32_t)(f.in_c / PACK), stride = (uint32_t)w.stride;
    const uint32_t run = stride * (uint32_t)w.in_c, row = (uint32_t)(w.in_w * w.in_c);
    const uint32_t before = (uint32_t)(w.padding * w.in_c);

    for (I i = (I)dp_thread(); i < count; i += (I)dp_threads()) {
        const I pixel = i / packs, line = pixel / (uint32_t)f.in_w;
        const uint32_t first = (uint32_t)(i % packs) * PACK;
        const uint32_t column = (uint32_t)(pixel % (uint32_t)f.in_w) * run - before;
        const uint32_t top = (uint32_t)(line % (uint32_t)f.in_h) * stride - (uint32_t)w.padding;
        const T *image = x + (size_t)(line / (uint32_t)f.in_h) * w.in_h * row;
        float values[PACK] = {};
#pragma unroll
        for (uint32_t p = 0; p < PACK; p++) {
            const uint32_t down = (first + p) / run, at = column + (first + p) % run;
            if (down < stride && top + down < (uint32_t)w.in_h && at < row) {
                dp_read<1>(values + p, image + (size_t)(top + down) * row + at);
            }
        }
        dp_write<PACK>(to + (size_t)i * PACK, values);
    }
}

extern "C" dp_status dp_cuda_fold_images(struct dp_stream *s, void *to, const void *x,
                                         const struct dp_window *w, size_t rows)
{
    const struct dp_window f = dp_cuda_folded(w);
    const size_t count = rows * dp_window_in(&f) / PACK;

    DP_BY_TYPE(s->type, T, {
        if (dp_is_small(count, 0)) {
            DP_LAUNCH((images_kernel<T, uint32_t>), dp_blocks(s, count), DP_THREADS, 0, s, (T *)to,
                      (const T *)x, *w, f, (uint32_t)count);
        } else {
            DP_LAUNCH((images_kernel<T, uint64_t>), dp_blocks(s, count), DP_THREADS, 0, s, (T *)to,
                      (const T *)x, *w, f, (uint64_t)count);
        }
    });
    return DP_CUDA(cudaGetLastError());
}

/* Where element `at` of weights is among the folded ones. */
static __device__ __forceinline__ size_t place_of(const struct dp_window &w,
                                                  const struct dp_window &f, size_t at)
{
    const size_t channel = at % w.in_c, tap = at / w.in_c;
    const size_t kx = tap % w.kernel_w, ky = tap / w.kernel_w % w.kernel_h;
    const size_t filter = tap / w.kernel_w / w.kernel_h;
    const size_t pixel = (filter * f.kernel_h + ky / w.stride) * f.kernel_w + kx / w.stride;

    return pixel * f.in_c + (ky % w.stride * w.stride + kx % w.stride) * w.in_c + channel;
}

template <typename T>
static __global__ void weights_kernel(T *to, const T *weights, struct dp_window w,
                                      struct dp_window f, size_t count)
{
    for (size_t i = dp_thread(); i < count; i += dp_threads()) {
        to[place_of(w, f, i)] = weights[i];
    }
}

extern "C" dp_status dp_cuda_fold_weights(struct dp_stream *s, void *to, const void *weights,
                                          const struct dp_window *w)
{
    const struct dp_window f = dp_cuda_folded(w);
    const size_t count = dp_window_weights(w);

    DP_TRY(dp_cuda_zero(s, to, dp_window_weights(&f) * dp_type_bytes(s->type)));
    DP_BY_TYPE(s->type, T, {
        DP_LAUNCH(weights_kernel<T>, dp_blocks(s, count), DP_THREADS, 0, s, (T *)to,
                  (const T *)weights, *w, f, count);
    });
    return DP_CUDA(cudaGetLastError());
}

template <typename T>
static __global__ void gradient_kernel(float *dw, const T *folded, size_t pieces,
                                       struct dp_window w, struct dp_window f, float keep,
                                       size_t count)
{
    const size_t piece = (size_t)w.out_c * f.kernel_h * f.kernel_w * f.in_c;

    for (size_t i = dp_thread(); i < count; i += dp_threads()) {
        const T *from = folded + place_of(w, f, i);
        float value = dp_wide(from[0]);
        for (size_t p = 1; p < pieces; p++) {
            value += dp_wide(from[p * piece]);
        }
        dw[i] = keep != 0 ? dw[i] + value : value;
    }
}

extern "C" dp_status dp_cuda_unfold_grad(struct dp_stream *s, float *dw, const void *folded,
                                         enum dp_type type, size_t pieces,
                                         const struct dp_window *w, float keep)
{
    const struct dp_window f = dp_cuda_folded(w);
    const size_t count = dp_window_weights(w);

    DP_BY_TYPE(type, T, {
        DP_LAUNCH(gradient_kernel<T>, dp_blocks(s, count), DP_THREADS, 0, s, dw, (const T *)folded,
                  pieces, *w, f, keep, count);
    });
    return DP_CUDA(cudaGetLastError());
}
