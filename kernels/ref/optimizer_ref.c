/*
 * optimizer_ref.c - SGD and AdamW: the formulas of kernels/ops.h, in double.
 */
#include <math.h>

#include "kernels/ref/element.h"
#include "kernels/ref/ops_ref.h"

static void store(const struct dp_stream *s, const struct dp_update *u, size_t i, double w)
{
    u->master[i] = (float)w;
    dp_ref_put(s, u->weights, i, (float)w);
}

dp_status dp_ref_sgd(struct dp_stream *s, const struct dp_update *u, float momentum, bool nesterov,
                     float decay)
{
    const double lr = (double)u->step_params->lr, factor = (double)u->step_params->factor;

    for (size_t i = 0; i < u->count && u->step_params->skip == 0; i++) {
        const double w = (double)u->master[i];
        const double g = (double)u->grad[i] * factor + (double)decay * w;
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
        const double w = (double)u->master[i] * (1 - lr * (double)decay);
        const double mhat = m / (1 - pow(b1, t)), vhat = v / (1 - pow(b2, t));
        u->slots[0][i] = (float)m;
        u->slots[1][i] = (float)v;
        store(s, u, i, w - lr * mhat / (sqrt(vhat) + (double)eps));
    }
    return DP_OK;
}
