/*
 * optimizer.cu - SGD and AdamW, one launch for a whole range: see kernels/ops.h for the contracts.
 *
 * One pass over memory that also writes the weights in the compute type. Bytes per parameter with a
 * compute type of e bytes: sgd 12, with momentum 20; adamw 28; and e more where master and weights
 * are two arrays. Bound by memory: time should be count * bytes / bandwidth.
 */
#include "kernels/cuda/launch.h"

/* dp_update with its types. */
template <typename T> struct update {
    float *master;
    T *weights; /* NULL: master itself */
    const float *grad;
    float *slots[2];
    size_t count;
    const struct dp_step_params *step_params;
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
    __device__ float step(const state &k, float w, float grad, float &v, float &unused) const
    {
        const float g = __fmaf_rn(decay, w, grad * k.factor);
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
    __device__ float step(const state &k, float w, float grad, float &m, float &v) const
    {
        const float g = grad * k.factor;
        m = __fmaf_rn(k.b1, m, k.c1 * g);
        v = __fmaf_rn(k.b2, v, k.c2 * g * g);
        return w * k.shrink - k.rate * m / (sqrtf(v) * k.root + eps);
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
#pragma unroll
        for (int p = 0; p < P; p++) {
            w[p] = optimizer.step(k, w[p], g[p], a[p], b[p]);
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
            given->count, given->step_params
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
