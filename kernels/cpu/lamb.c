/*
 * lamb.c - the two halves of LAMB: see kernels/ops.h for the contract.
 *
 * Bytes moved per element: the first half 20, the second 16, and 4 or 2 more where the weights are
 * not the master weights. Results do not depend on the number of threads.
 */
#include <math.h>

#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/publish.h"
#include "kernels/device.h"

struct lamb {
    struct dp_stream *stream;
    const struct dp_update *update;
    float *squares;                                /* of the first half */
    float factor, beta1, beta2, rest1, rest2, eps; /* rest = 1 - beta */
    float scale, root, lr;                         /* 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
    float decay;
};

static struct lamb lamb_of(struct dp_stream *s, const struct dp_update *u, double beta1,
                           double beta2, float eps, float decay)
{
    const double t = (double)u->step_params->applied + 1;

    return (struct lamb){.stream = s,
                         .update = u,
                         .factor = u->step_params->factor,
                         .beta1 = (float)beta1,
                         .beta2 = (float)beta2,
                         .rest1 = (float)(1 - beta1),
                         .rest2 = (float)(1 - beta2),
                         .eps = eps,
                         .scale = (float)(1 / (1 - pow(beta1, t))),
                         .root = (float)(1 / sqrt(1 - pow(beta2, t))),
                         .lr = u->step_params->lr,
                         .decay = decay};
}

/* New moments of a block; its directions r go to `to`. */
DP_HOT static void new_moments(const struct lamb *o, float decay, const float *restrict w,
                               float *restrict m, float *restrict v, const float *restrict grad,
                               float *restrict to, size_t count)
{
    const float factor = o->factor, beta1 = o->beta1, beta2 = o->beta2, rest1 = o->rest1;
    const float rest2 = o->rest2, scale = o->scale, root = o->root, eps = o->eps;

    for (size_t i = 0; i < count; i++) {
        const float g = grad[i] * factor;
        m[i] = beta1 * m[i] + rest1 * g;
        v[i] = beta2 * v[i] + rest2 * (g * g);
        to[i] = m[i] * scale / (sqrtf(v[i]) * root + eps) + decay * w[i];
    }
}

/* Moves a block of weights by `step` r. */
DP_HOT static void move(const struct lamb *o, float step, float decay, float *restrict w,
                        const float *restrict m, const float *restrict v, size_t count)
{
    const float scale = o->scale, root = o->root, eps = o->eps;

    for (size_t i = 0; i < count; i++) {
        const float r = m[i] * scale / (sqrtf(v[i]) * root + eps) + decay * w[i];
        w[i] -= step * r;
    }
}

static float factor_of(const float *factors, size_t at)
{
    return factors == NULL ? 1 : factors[at / DP_BLOCK];
}

static void moments_part(void *arg, size_t begin, size_t end)
{
    const struct lamb *o = arg;
    const struct dp_update *u = o->update;

    for (size_t i = begin; i < end; i += DP_BLOCK) {
        const size_t count = end - i < DP_BLOCK ? end - i : DP_BLOCK;
        float r[DP_BLOCK];
        new_moments(o, o->decay * factor_of(u->decays, i), u->master + i, u->slots[0] + i,
                    u->slots[1] + i, u->grad + i, r, count);
        const dp_status status =
            dp_cpu_block_squares(o->stream, o->squares + i / DP_BLOCK, r, count);
        (void)status; /* of a block it cannot fail */
    }
}

static void move_part(void *arg, size_t begin, size_t end)
{
    const struct lamb *o = arg;
    const struct dp_update *u = o->update;

    for (size_t i = begin; i < end; i += DP_BLOCK) {
        const size_t count = end - i < DP_BLOCK ? end - i : DP_BLOCK;
        move(o, o->lr * factor_of(u->rates, i), o->decay * factor_of(u->decays, i), u->master + i,
             u->slots[0] + i, u->slots[1] + i, count);
        dp_cpu_publish(o->stream, u, i, count);
    }
}

dp_status dp_cpu_lamb_moments(struct dp_stream *s, float *squares, const struct dp_update *u,
                              double beta1, double beta2, float eps, float decay)
{
    struct lamb o = lamb_of(s, u, beta1, beta2, eps, decay);

    o.squares = squares;
    if (u->step_params->skip == 0) {
        dp_parallel(s->threads, u->count, DP_BLOCK, moments_part, &o);
    }
    return DP_OK;
}

dp_status dp_cpu_lamb(struct dp_stream *s, const struct dp_update *u, double beta1, double beta2,
                      float eps, float decay)
{
    struct lamb o = lamb_of(s, u, beta1, beta2, eps, decay);

    if (u->step_params->skip == 0) {
        dp_parallel(s->threads, u->count, DP_BLOCK, move_part, &o);
    }
    return DP_OK;
}
