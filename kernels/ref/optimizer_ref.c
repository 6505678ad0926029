/*
 * optimizer_ref.c - SGD, AdamW, and the halves of LARS and LAMB: the formulas of kernels/ops.h, in
 * double.
 */
#include <math.h>

#include "kernels/ref/element.h"
#include "kernels/ref/ops_ref.h"

static void store(const struct dp_stream *s, const struct dp_update *u, size_t i, double w)
{
    u->master[i] = (float)w;
    dp_ref_put(s, u->weights, i, (float)w);
}

/* The factor of the block of element i; 1 where there are none. */
static double of_block(const float *factors, size_t i)
{
    return factors == NULL ? 1.0 : (double)factors[i / DP_BLOCK];
}

dp_status dp_ref_sgd(struct dp_stream *s, const struct dp_update *u, float momentum, bool nesterov,
                     float decay)
{
    const double lr = (double)u->step_params->lr, factor = (double)u->step_params->factor;

    for (size_t i = 0; i < u->count && u->step_params->skip == 0; i++) {
        const double w = (double)u->master[i];
        const double decayed =
            (double)u->grad[i] * factor + (double)decay * of_block(u->decays, i) * w;
        const double g = decayed * of_block(u->rates, i);
        double v = g;
        if (momentum != 0) {
            v = (double)momentum * (double)u->slots[0][i] + g;
            u->slots[0][i] = (float)v;
            v = nesterov ? g + (double)momentum * v : v;
        }
        store(s, u, i, w - lr * v);
    }
    return DP_OK;
}

dp_status dp_ref_adamw(struct dp_stream *s, const struct dp_update *u, double beta1, double beta2,
                       float eps, float decay)
{
    const double lr = (double)u->step_params->lr, factor = (double)u->step_params->factor;
    const double t = (double)u->step_params->applied + 1, b1 = beta1, b2 = beta2;

    for (size_t i = 0; i < u->count && u->step_params->skip == 0; i++) {
        const double g = (double)u->grad[i] * factor;
        const double m = b1 * (double)u->slots[0][i] + (1 - b1) * g;
        const double v = b2 * (double)u->slots[1][i] + (1 - b2) * g * g;
        const double w = (double)u->master[i] * (1 - lr * (double)decay * of_block(u->decays, i));
        const double mhat = m / (1 - pow(b1, t)), vhat = v / (1 - pow(b2, t));
        u->slots[0][i] = (float)m;
        u->slots[1][i] = (float)v;
        store(s, u, i, w - lr * mhat / (sqrt(vhat) + (double)eps));
    }
    return DP_OK;
}

/* r of element i, from its moments. */
static double lamb_direction(const struct dp_update *u, size_t i, double beta1, double beta2,
                             float eps, float decay)
{
    const double t = (double)u->step_params->applied + 1;
    const double mhat = (double)u->slots[0][i] / (1 - pow(beta1, t));
    const double vhat = (double)u->slots[1][i] / (1 - pow(beta2, t));

    return mhat / (sqrt(vhat) + (double)eps) +
           (double)decay * of_block(u->decays, i) * (double)u->master[i];
}

dp_status dp_ref_lamb_moments(struct dp_stream *s, float *squares, const struct dp_update *u,
                              double beta1, double beta2, float eps, float decay)
{
    const double factor = (double)u->step_params->factor;
    double sum = 0;
    (void)s;

    for (size_t i = 0; i < u->count && u->step_params->skip == 0; i++) {
        const double g = (double)u->grad[i] * factor;
        u->slots[0][i] = (float)(beta1 * (double)u->slots[0][i] + (1 - beta1) * g);
        u->slots[1][i] = (float)(beta2 * (double)u->slots[1][i] + (1 - beta2) * g * g);
        const double r = lamb_direction(u, i, beta1, beta2, eps, decay);
        sum = i % DP_BLOCK == 0 ? r * r : sum + r * r;
        squares[i / DP_BLOCK] = (float)sum;
    }
    return DP_OK;
}

dp_status dp_ref_lamb(struct dp_stream *s, const struct dp_update *u, double beta1, double beta2,
                      float eps, float decay)
{
    const double lr = (double)u->step_params->lr;

    for (size_t i = 0; i < u->count && u->step_params->skip == 0; i++) {
        const double r = lamb_direction(u, i, beta1, beta2, eps, decay);
        store(s, u, i, (double)u->master[i] - lr * of_block(u->rates, i) * r);
    }
    return DP_OK;
}

static double norm_of(const float *squares, const struct dp_tensor_blocks *tensor)
{
    double sum = 0;

    for (size_t i = 0; i < tensor->count; i++) {
        sum += (double)squares[tensor->begin + i];
    }
    return sqrt(sum);
}

dp_status dp_ref_trust_ratios(struct dp_stream *s, float *rates, const float *squares,
                              size_t blocks, const struct dp_tensor_blocks *tensors, int n,
                              const struct dp_trust *how, const struct dp_step_params *step_params)
{
    const double factor = how->of_gradient ? (double)step_params->factor : 1.0;
    (void)s;

    for (int k = 0; k < n; k++) {
        const struct dp_tensor_blocks *tensor = &tensors[k];
        const double w = norm_of(squares, tensor), r = norm_of(squares + blocks, tensor) * factor;
        const double below = r + (double)how->decay * w + (double)how->eps;
        const bool one = tensor->fixed != 0 || !(w > 0) || !(r > 0);
        for (size_t i = 0; i < tensor->count; i++) {
            rates[tensor->begin + i] = one ? 1.0f : (float)((double)how->coefficient * w / below);
        }
    }
    return DP_OK;
}
