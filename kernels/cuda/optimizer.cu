/*
 * optimizer.cu - SGD, AdamW, and LAMB in two halves, one launch for a whole range: see
 * kernels/ops.h for the contracts.
 *
 * One pass over memory that also writes the weights in the compute type. Bytes per parameter with a
 * compute type of e bytes: sgd 12, with momentum 20; adamw 28; and e more where master and weights
 * are two arrays. Bound by memory: time should be count * bytes / bandwidth.
 */
#include "kernels/cuda/stream/launch.h"

/* dp_update with its types. */
template <typename T> struct update {
    float *master;
    T *weights; /* NULL: master itself */
    const float *grad;
    float *slots[2];
    size_t count;
    const struct dp_step_params *step_params;
    const float *decays, *rates; /* NULL: 1 */
};

/* What a block of DP_BLOCK elements has of its own. */
struct factors {
    float decay, rate;
};

struct sgd {
    float momentum, decay;
    bool nesterov;
    struct state {
        float lr, factor;
    };
    __device__ state load(const struct dp_step_params *step_params) const
    {
        return {step_params->lr, step_params->factor};
    }
    __device__ float step(const state &k, factors own, float w, float grad, float &v,
                          float &unused) const
    {
        const float g = own.rate * __fmaf_rn(decay * own.decay, w, grad * k.factor);
        (void)unused;
        if (momentum == 0) {
            return __fmaf_rn(-k.lr, g, w);
        }
        v = __fmaf_rn(momentum, v, g);
        return __fmaf_rn(-k.lr, nesterov ? __fmaf_rn(momentum, v, g) : v, w);
    }
};

struct adamw {
    double beta1, beta2;
    float eps, decay;
    struct state {
        float shrink, rate, factor, b1, b2, c1, c2, root; /* c = 1 - b; root = 1 / sqrt(1 - b2^t) */
    };
    __device__ state load(const struct dp_step_params *step_params) const
    {
        const double t = (double)step_params->applied + 1, lr = (double)step_params->lr;
        state k;
        k.shrink = (float)(1 - lr * (double)decay);
        k.rate = (float)(lr / (1 - pow(beta1, t)));
        k.factor = step_params->factor;
        k.b1 = (float)beta1;
        k.b2 = (float)beta2;
        k.c1 = (float)(1 - beta1);
        k.c2 = (float)(1 - beta2);
        k.root = (float)(1 / sqrt(1 - pow(beta2, t)));
        return k;
    }
    __device__ float step(const state &k, factors own, float w, float grad, float &m,
                          float &v) const
    {
        const float g = grad * k.factor;
        m = __fmaf_rn(k.b1, m, k.c1 * g);
        v = __fmaf_rn(k.b2, v, k.c2 * g * g);
        const float shrink = own.decay == 0 ? 1 : k.shrink; /* a decay is 0 or 1 */
        return w * shrink - k.rate * m / (sqrtf(v) * k.root + eps);
    }
};

/* The second half of LAMB; the moments stay as they are. */
struct lamb {
    double beta1, beta2;
    float eps, decay;
    struct state {
        float lr, factor, b1, b2, c1, c2, scale, root; /* as above; scale = 1 / (1 - b1^t) */
    };
    __device__ state load(const struct dp_step_params *step_params) const
    {
        const double t = (double)step_params->applied + 1;
        state k;
        k.lr = step_params->lr;
        k.factor = step_params->factor;
        k.b1 = (float)beta1;
        k.b2 = (float)beta2;
        k.c1 = (float)(1 - beta1);
        k.c2 = (float)(1 - beta2);
        k.scale = (float)(1 / (1 - pow(beta1, t)));
        k.root = (float)(1 / sqrt(1 - pow(beta2, t)));
        return k;
    }
    __device__ float direction(const state &k, float decayed, float w, float m, float v) const
    {
        return __fmaf_rn(decayed, w, m * k.scale / (sqrtf(v) * k.root + eps));
    }
    __device__ float step(const state &k, factors own, float w, float grad, float &m,
                          float &v) const
    {
        (void)grad;
        return __fmaf_rn(-k.lr * own.rate, direction(k, decay * own.decay, w, m, v), w);
    }
};

template <typename T, int P, typename O>
static __global__ void update_kernel(struct update<T> u, O optimizer)
{
    DP_SHARED(typename O::state, shared);
    const size_t packs = u.count / P;

    if (u.step_params->skip != 0) {
        return; /* all threads alike */
    }
    if (threadIdx.x == 0) {
        *shared = optimizer.load(u.step_params);
    }
    __syncthreads();
    const typename O::state k = *shared;
    for (size_t i = dp_thread(); i < packs; i += dp_threads()) {
        float w[P], g[P], a[P] = {}, b[P] = {};
        dp_read<P>(w, u.master + i * P);
        dp_read<P>(g, u.grad + i * P);
        if (u.slots[0] != nullptr) {
            dp_read<P>(a, u.slots[0] + i * P);
        }
        if (u.slots[1] != nullptr) {
            dp_read<P>(b, u.slots[1] + i * P);
        }
        const factors own = {u.decays == nullptr ? 1 : u.decays[i * P / DP_BLOCK],
                             u.rates == nullptr ? 1 : u.rates[i * P / DP_BLOCK]};
#pragma unroll
        for (int p = 0; p < P; p++) {
            w[p] = optimizer.step(k, own, w[p], g[p], a[p], b[p]);
        }
        dp_write<P>(u.master + i * P, w);
        if (u.weights != nullptr) {
            dp_write<P>(u.weights + i * P, w);
        }
        if (u.slots[0] != nullptr) {
            dp_write<P>(u.slots[0] + i * P, a);
        }
        if (u.slots[1] != nullptr) {
            dp_write<P>(u.slots[1] + i * P, b);
        }
    }
}

/* Ranges begin and end at multiples of DP_BLOCK in a run; others are updated one by one. */
template <typename T, typename O>
static dp_status launch(struct dp_stream *s, const struct dp_update *given, O optimizer, int slots)
{
    struct update<T> u = {
        given->master,
            (void *)given->master == given->weights ? nullptr : (T *)given->weights, given->grad,
            {slots > 0 ? given->slots[0] : nullptr, slots > 1 ? given->slots[1] : nullptr},
            given->count, given->step_params, given->decays, given->rates
    };

    if (u.count % 4 == 0 && dp_aligned(u.master) && dp_aligned(u.weights) && dp_aligned(u.grad) &&
        dp_aligned(u.slots[0]) && dp_aligned(u.slots[1])) {
        DP_LAUNCH((update_kernel<T, 4, O>), dp_blocks(s, u.count / 4), DP_THREADS,
                  sizeof(typename O::state), s, u, optimizer);
    } else {
        DP_LAUNCH((update_kernel<T, 1, O>), dp_blocks(s, u.count), DP_THREADS,
                  sizeof(typename O::state), s, u, optimizer);
    }
    return DP_CUDA(cudaGetLastError());
}

extern "C" dp_status dp_cuda_sgd(struct dp_stream *s, const struct dp_update *u, float momentum,
                                 bool nesterov, float decay)
{
    if (u->count == 0) {
        return DP_OK;
    }
    DP_BY_TYPE(s->type, T, {
        return launch<T>(s, u, sgd{momentum, decay, nesterov}, momentum != 0 ? 1 : 0);
    });
}

extern "C" dp_status dp_cuda_adamw(struct dp_stream *s, const struct dp_update *u, double beta1,
                                   double beta2, float eps, float decay)
{
    if (u->count == 0) {
        return DP_OK;
    }
    DP_BY_TYPE(s->type, T, { return launch<T>(s, u, adamw{beta1, beta2, eps, decay}, 2); });
}

/* A warp takes a block of DP_BLOCK elements, so that the order of its sum depends on nothing
 * else. */
static __global__ void moments_kernel(struct update<float> u, struct lamb optimizer, float *squares)
{
    DP_SHARED(lamb::state, shared);
    const size_t lane = dp_thread() % (size_t)warpSize, warps = dp_threads() / (size_t)warpSize;

    if (u.step_params->skip != 0) {
        return; /* all threads alike */
    }
    if (threadIdx.x == 0) {
        *shared = optimizer.load(u.step_params);
    }
    __syncthreads();
    const lamb::state k = *shared;
    for (size_t block = dp_thread() / (size_t)warpSize; block * DP_BLOCK < u.count;
         block += warps) {
        const size_t begin = block * DP_BLOCK, end = dp_least(begin + DP_BLOCK, u.count);
        const float decay = optimizer.decay * (u.decays == nullptr ? 1 : u.decays[block]);
        float sum = 0;
        for (size_t i = begin + lane; i < end; i += (size_t)warpSize) {
            const float g = u.grad[i] * k.factor;
            const float m = __fmaf_rn(k.b1, u.slots[0][i], k.c1 * g);
            const float v = __fmaf_rn(k.b2, u.slots[1][i], k.c2 * g * g);
            const float r = optimizer.direction(k, decay, u.master[i], m, v);
            u.slots[0][i] = m;
            u.slots[1][i] = v;
            sum = __fmaf_rn(r, r, sum);
        }
        sum = dp_warp_sum(sum);
        if (lane == 0) {
            squares[block] = sum;
        }
    }
}

extern "C" dp_status dp_cuda_lamb_moments(struct dp_stream *s, float *squares,
                                          const struct dp_update *u, double beta1, double beta2,
                                          float eps, float decay)
{
    const struct update<float> given = {
        u->master, nullptr, u->grad, {u->slots[0], u->slots[1]}, u->count, u->step_params,
            u->decays, nullptr
    };

    if (u->count == 0) {
        return DP_OK;
    }
    DP_LAUNCH(moments_kernel, dp_blocks(s, (u->count + 1) / 2), DP_THREADS, sizeof(lamb::state), s,
              given, lamb{beta1, beta2, eps, decay}, squares);
    return DP_CUDA(cudaGetLastError());
}

extern "C" dp_status dp_cuda_lamb(struct dp_stream *s, const struct dp_update *u, double beta1,
                                  double beta2, float eps, float decay)
{
    if (u->count == 0) {
        return DP_OK;
    }
    DP_BY_TYPE(s->type, T, { return launch<T>(s, u, lamb{beta1, beta2, eps, decay}, 2); });
}

/* A block of threads takes a tensor. */
static __global__ void ratios_kernel(float *rates, const float *squares, size_t blocks,
                                     const struct dp_tensor_blocks *tensors, int n,
                                     struct dp_trust how, const struct dp_step_params *step_params)
{
    DP_SHARED(double, shared);

    for (int k = (int)blockIdx.x; k < n; k += (int)gridDim.x) {
        const struct dp_tensor_blocks tensor = tensors[k];
        double w = 0, r = 0;
        for (size_t i = threadIdx.x; i < tensor.count; i += blockDim.x) {
            w += (double)squares[tensor.begin + i];
            r += (double)squares[blocks + tensor.begin + i];
        }
        w = sqrt(dp_block_sum(w, shared));
        r = sqrt(dp_block_sum(r, shared)) * (how.of_gradient ? (double)step_params->factor : 1.0);
        const double below = r + (double)how.decay * w + (double)how.eps;
        const bool one = tensor.fixed != 0 || !(w > 0) || !(r > 0);
        const float rate = one ? 1.0f : (float)((double)how.coefficient * w / below);
        for (size_t i = threadIdx.x; i < tensor.count; i += blockDim.x) {
            rates[tensor.begin + i] = rate;
        }
    }
}

/* NOLINTNEXTLINE(readability-function-size): the parameters are the contract's. */
extern "C" dp_status dp_cuda_trust_ratios(struct dp_stream *s, float *rates, const float *squares,
                                          size_t blocks, const struct dp_tensor_blocks *tensors,
                                          int n, const struct dp_trust *how,
                                          const struct dp_step_params *step_params)
{
    if (n == 0) {
        return DP_OK;
    }
    DP_LAUNCH(ratios_kernel, (size_t)n, DP_THREADS, DP_THREADS / 32 * sizeof(double), s, rates,
              squares, blocks, tensors, n, *how, step_params);
    return DP_CUDA(cudaGetLastError());
}
