/*
 * conv.cu - what is left to do after a convolution of cuDNN: see conv_cuda.h.
 *
 * One pass over memory, 16 bytes a thread and access where addresses allow. Bytes moved: bias_act
 * 2 e an element of type size e; keep_grad 4 + e a weight, and 4 more with keep.
 */
extern "C" {
#include "kernels/cuda/layers/conv_cuda.h"
}
#include "kernels/cuda/stream/launch.h"

/* P neighbouring channels a thread; `count` packs, counted by an I. A NaN stays a NaN. */
template <typename T, int P, typename I>
static __global__ void bias_act_kernel(T *y, const T *bias, uint32_t packs, bool relu, I count)
{
    for (I i = (I)dp_thread(); i < count; i += (I)dp_threads()) {
        float values[P], biases[P] = {};
        dp_read<P>(values, y + (size_t)i * P);
        if (bias != nullptr) {
            dp_read<P>(biases, bias + (size_t)(i % packs) * P);
        }
#pragma unroll
        for (int p = 0; p < P; p++) {
            values[p] += biases[p];
            values[p] = relu && values[p] < 0 ? 0 : values[p];
        }
        dp_write<P>(y + (size_t)i * P, values);
    }
}

/* `count` packs of P, of which `packs` make a pixel. */
template <typename T, int P>
static void bias_act(struct dp_stream *s, T *y, const T *bias, size_t packs, bool relu,
                     size_t count)
{
    if (dp_is_small(count, 0)) {
        DP_LAUNCH((bias_act_kernel<T, P, uint32_t>), dp_blocks(s, count), DP_THREADS, 0, s, y, bias,
                  (uint32_t)packs, relu, (uint32_t)count);
    } else {
        DP_LAUNCH((bias_act_kernel<T, P, uint64_t>), dp_blocks(s, count), DP_THREADS, 0, s, y, bias,
                  (uint32_t)packs, relu, (uint64_t)count);
    }
}

extern "C" dp_status dp_cuda_bias_act(struct dp_stream *s, void *y, const void *bias, size_t pixels,
                                      size_t channels, enum dp_activation act)
{
    const size_t count = pixels * channels;
    const bool relu = act == DP_ACT_RELU;

    if (count == 0) {
        return DP_OK;
    }
    DP_BY_TYPE(s->type, T, {
        constexpr int P = dp_pack_of<T>();
        if (channels % P == 0 && dp_aligned(y) && dp_aligned(bias)) {
            bias_act<T, P>(s, (T *)y, (const T *)bias, channels / P, relu, count / P);
        } else {
            bias_act<T, 1>(s, (T *)y, (const T *)bias, channels, relu, count);
        }
    });
    return DP_CUDA(cudaGetLastError());
}

template <typename T, int P>
static __global__ void keep_grad_kernel(float *dw, const T *x, float keep, size_t count)
{
    for (size_t i = dp_thread(); i < count; i += dp_threads()) {
        float values[P], kept[P] = {};
        dp_read<P>(values, x + i * P);
        if (keep != 0) {
            dp_read<P>(kept, dw + i * P);
        }
#pragma unroll
        for (int p = 0; p < P; p++) {
            values[p] += kept[p];
        }
        dp_write<P>(dw + i * P, values);
    }
}

extern "C" dp_status dp_cuda_keep_grad(struct dp_stream *s, float *dw, const void *x,
                                       enum dp_type type, size_t count, float keep)
{
    if (count == 0) {
        return DP_OK;
    }
    DP_BY_TYPE(type, T, {
        if (count % 4 == 0 && dp_aligned(dw) && dp_aligned(x)) {
            DP_LAUNCH((keep_grad_kernel<T, 4>), dp_blocks(s, count / 4), DP_THREADS, 0, s, dw,
                      (const T *)x, keep, count / 4);
        } else {
            DP_LAUNCH((keep_grad_kernel<T, 1>), dp_blocks(s, count), DP_THREADS, 0, s, dw,
                      (const T *)x, keep, count);
        }
    });
    return DP_CUDA(cudaGetLastError());
}
