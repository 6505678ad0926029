/*
 * group_norm.cu - normalisation of groups: see kernels/ops.h for the contracts.
 *
 * A block takes a group of a sample at a time, in passes over it of which the cache serves all but
 * the first; then, for the gradients of scale and shift, a channel at a time. Sums are double.
 * Bytes moved per element of e bytes: forward 2 e, backward 5 e.
 */
#include "kernels/cuda/stream/launch.h"

/* One group of one sample. */
struct group {
    size_t begin, width, channels, first, count; /* first: its first channel */
    __device__ size_t channel(size_t i) const
    {
        return first + i % width;
    }
    __device__ size_t at(size_t i) const
    {
        return begin + i / width * channels + channel(i);
    }
};

static __device__ group group_at(const struct dp_group_norm &n, size_t k)
{
    const size_t width = n.channels / n.groups;

    return {k / n.groups * n.places * n.channels, width, n.channels, k % n.groups * width,
            n.places * width};
}

template <typename T>
static __global__ void forward_kernel(T *y, float *saved, const T *x, const T *gamma, const T *beta,
                                      struct dp_group_norm n)
{
    DP_SHARED(double, shared);

    for (size_t k = blockIdx.x; k < n.rows * n.groups; k += gridDim.x) {
        const group g = group_at(n, k);
        double sum = 0, squares = 0;
        for (size_t i = threadIdx.x; i < g.count; i += blockDim.x) {
            sum += (double)dp_wide(x[g.at(i)]);
        }
        const float mean = (float)(dp_block_sum(sum, shared) / (double)g.count);
        for (size_t i = threadIdx.x; i < g.count; i += blockDim.x) {
            const double from = (double)dp_wide(x[g.at(i)]) - (double)mean;
            squares += from * from;
        }
        const double var = dp_block_sum(squares, shared) / (double)g.count;
        const float rate = (float)(1 / sqrt(var + (double)n.eps));
        for (size_t i = threadIdx.x; i < g.count; i += blockDim.x) {
            const float hat = (dp_wide(x[g.at(i)]) - mean) * rate;
            const size_t c = g.channel(i);
            dp_narrow(&y[g.at(i)], __fmaf_rn(hat, dp_wide(gamma[c]), dp_wide(beta[c])));
        }
        if (threadIdx.x == 0 && saved != nullptr) {
            saved[2 * k] = mean;
            saved[2 * k + 1] = rate;
        }
    }
}

/* dx may be dy: a thread writes only what it has read itself. */
template <typename T>
static __global__ void backward_kernel(T *dx, const T *dy, const T *x, const T *gamma,
                                       const float *saved, struct dp_group_norm n)
{
    DP_SHARED(double, shared);

    for (size_t k = blockIdx.x; k < n.rows * n.groups; k += gridDim.x) {
        const group g = group_at(n, k);
        const float mean = saved[2 * k], rate = saved[2 * k + 1];
        double sum = 0, slope = 0;
        for (size_t i = threadIdx.x; i < g.count; i += blockDim.x) {
            const double own = (double)(dp_wide(dy[g.at(i)]) * dp_wide(gamma[g.channel(i)]));
            sum += own;
            slope += own * (double)((dp_wide(x[g.at(i)]) - mean) * rate);
        }
        const float sums = (float)(dp_block_sum(sum, shared) / (double)g.count);
        const float slopes = (float)(dp_block_sum(slope, shared) / (double)g.count);
        for (size_t i = threadIdx.x; i < g.count; i += blockDim.x) {
            const float own = dp_wide(dy[g.at(i)]) * dp_wide(gamma[g.channel(i)]);
            const float hat = (dp_wide(x[g.at(i)]) - mean) * rate;
            dp_narrow(&dx[g.at(i)], (own - sums - hat * slopes) * rate);
        }
    }
}

template <typename T>
static __global__ void affine_kernel(float *dgamma, float *dbeta, const T *dy, const T *x,
                                     const float *saved, struct dp_group_norm n, float keep)
{
    DP_SHARED(double, shared);
    const size_t width = n.channels / n.groups;

    for (size_t c = blockIdx.x; c < n.channels; c += gridDim.x) {
        double scale = 0, shift = 0;
        for (size_t i = threadIdx.x; i < n.rows * n.places; i += blockDim.x) {
            const float *own = saved + 2 * (i / n.places * n.groups + c / width);
            const float g = dp_wide(dy[i * n.channels + c]);
            scale += (double)(g * ((dp_wide(x[i * n.channels + c]) - own[0]) * own[1]));
            shift += (double)g;
        }
        scale = dp_block_sum(scale, shared);
        shift = dp_block_sum(shift, shared);
        if (threadIdx.x == 0) {
            dgamma[c] = (float)((keep != 0 ? (double)dgamma[c] : 0) + scale);
            dbeta[c] = (float)((keep != 0 ? (double)dbeta[c] : 0) + shift);
        }
    }
}

enum { SHARED_BYTES = 32 * sizeof(double) /* a value of each warp */ };

extern "C" dp_status dp_cuda_group_norm_forward(struct dp_stream *s, void *y, float *saved,
                                                const void *x, const void *gamma, const void *beta,
                                                const struct dp_group_norm *n)
{
    if (n->rows == 0) {
        return DP_OK;
    }
    DP_BY_TYPE(s->type, T, {
        DP_LAUNCH(forward_kernel<T>, n->rows * n->groups, DP_THREADS, SHARED_BYTES, s, (T *)y,
                  saved, (const T *)x, (const T *)gamma, (const T *)beta, *n);
    });
    return DP_CUDA(cudaGetLastError());
}

/* NOLINTNEXTLINE(readability-function-size): the parameters are the contract's. */
extern "C" dp_status dp_cuda_group_norm_backward(struct dp_stream *s, void *dx, float *dgamma,
                                                 float *dbeta, const void *dy, const void *x,
                                                 const void *gamma, const float *saved,
                                                 const struct dp_group_norm *n, float keep)
{
    DP_BY_TYPE(s->type, T, {
        DP_LAUNCH(affine_kernel<T>, n->channels, DP_THREADS, SHARED_BYTES, s, dgamma, dbeta,
                  (const T *)dy, (const T *)x, saved, *n, keep);
        if (dx != nullptr && n->rows > 0) {
            DP_LAUNCH(backward_kernel<T>, n->rows * n->groups, DP_THREADS, SHARED_BYTES, s, (T *)dx,
                      (const T *)dy, (const T *)x, (const T *)gamma, saved, *n);
        }
    });
    return DP_CUDA(cudaGetLastError());
}
