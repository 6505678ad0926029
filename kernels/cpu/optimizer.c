/*
 * optimizer.c - SGD and AdamW, one pass over memory: see kernels/ops.h for the contract.
 *
 * Bytes moved per element: SGD 12, with momentum 20, AdamW 28; 4 or 2 more where the weights are
 * not the master weights. Results do not depend on the number of threads or the instruction set.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/publish.h"
#include "kernels/device.h"

enum { PIECE = 2048 }; /* copied to the weights while in the first-level cache */

struct sgd {
    struct dp_stream *stream;
    const struct dp_update *update;
    float lr, factor, momentum, decay;
    bool nesterov;
};

DP_HOT static void sgd_plain(const struct sgd *o, float *restrict w, const float *restrict grad,
                             size_t count)
{
    const float lr = o->lr, factor = o->factor, decay = o->decay;

    for (size_t i = 0; i < count; i++) {
        w[i] -= lr * (grad[i] * factor + decay * w[i]);
    }
}

DP_HOT static void sgd_momentum(const struct sgd *o, float *restrict w, float *restrict v,
                                const float *restrict grad, size_t count)
{
    const float lr = o->lr, factor = o->factor, momentum = o->momentum, decay = o->decay;

    for (size_t i = 0; i < count; i++) {
        const float g = grad[i] * factor + decay * w[i];
        v[i] = momentum * v[i] + g;
        w[i] -= lr * v[i];
    }
}

DP_HOT static void sgd_nesterov(const struct sgd *o, float *restrict w, float *restrict v,
                                const float *restrict grad, size_t count)
{
    const float lr = o->lr, factor = o->factor, momentum = o->momentum, decay = o->decay;

    for (size_t i = 0; i < count; i++) {
        const float g = grad[i] * factor + decay * w[i];
        v[i] = momentum * v[i] + g;
        w[i] -= lr * (g + momentum * v[i]);
    }
}

/* Of blocks with factors of their own; the block is too short for the loops above to be worth one
 * each. v: NULL without momentum. */
DP_HOT static void sgd_block(const struct sgd *o, float rate, float *restrict w, float *restrict v,
                             const float *restrict grad, size_t count)
{
    const float lr = o->lr, factor = o->factor, momentum = o->momentum, decay = o->decay;

    if (v == NULL) {
        for (size_t i = 0; i < count; i++) {
            w[i] -= lr * (rate * (grad[i] * factor + decay * w[i]));
        }
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const float g = rate * (grad[i] * factor + decay * w[i]);
        v[i] = momentum * v[i] + g;
        w[i] -= lr * (o->nesterov ? g + momentum * v[i] : v[i]);
    }
}

static void sgd_blocks(const struct sgd *o, size_t begin, size_t count)
{
    const struct dp_update *u = o->update;
    struct sgd own = *o;

    for (size_t i = begin; i < begin + count; i += DP_BLOCK) {
        const size_t rest = begin + count - i;
        const float rate = u->rates == NULL ? 1 : u->rates[i / DP_BLOCK];
        own.decay = o->decay * (u->decays == NULL ? 1 : u->decays[i / DP_BLOCK]);
        sgd_block(&own, rate, u->master + i, o->momentum == 0 ? NULL : u->slots[0] + i, u->grad + i,
                  rest < DP_BLOCK ? rest : DP_BLOCK);
    }
}

void dp_cpu_publish(struct dp_stream *s, const struct dp_update *u, size_t begin, size_t count)
{
    const float *master = u->master + begin;

    if (s->type != DP_TYPE_F32) {
        const dp_status status =
            dp_cpu_narrow(s, (uint16_t *)u->weights + begin, master, count, s->type);
        assert(status == DP_OK);
        (void)status;
    } else if (u->weights != u->master) {
        memcpy((float *)u->weights + begin, master, count * sizeof(*master));
    }
}

static void sgd_part(void *arg, size_t begin, size_t end)
{
    const struct sgd *o = arg;
    const struct dp_update *u = o->update;

    for (size_t i = begin; i < end; i += PIECE) {
        const size_t count = end - i < PIECE ? end - i : PIECE;
        if (u->decays != NULL || u->rates != NULL) {
            sgd_blocks(o, i, count);
        } else if (o->momentum == 0) {
            sgd_plain(o, u->master + i, u->grad + i, count);
        } else if (o->nesterov) {
            sgd_nesterov(o, u->master + i, u->slots[0] + i, u->grad + i, count);
        } else {
            sgd_momentum(o, u->master + i, u->slots[0] + i, u->grad + i, count);
        }
        dp_cpu_publish(o->stream, u, i, count);
    }
}

dp_status dp_cpu_sgd(struct dp_stream *s, const struct dp_update *u, float momentum, bool nesterov,
                     float decay)
{
    struct sgd o = {s, u, u->step_params->lr, u->step_params->factor, momentum, decay, nesterov};

    if (u->step_params->skip == 0) {
        dp_parallel(s->threads, u->count, DP_BLOCK, sgd_part, &o);
    }
    return DP_OK;
}

struct adamw {
    struct dp_stream *stream;
    const struct dp_update *update;
    float factor, beta1, beta2, rest1, rest2; /* rest = 1 - beta */
    float shrink, step, root, eps;            /* 1 - lr decay; lr / (1 - beta1^t); see below */
    double lr, decay;
};

/* w -= step m / (sqrt(v) root + eps) with root = 1 / sqrt(1 - beta2^t). */
DP_HOT static void adamw_piece(const struct adamw *o, float *restrict w, float *restrict m,
                               float *restrict v, const float *restrict grad, size_t count)
{
    const float factor = o->factor, beta1 = o->beta1, beta2 = o->beta2, rest1 = o->rest1;
    const float rest2 = o->rest2, shrink = o->shrink, step = o->step, root = o->root, eps = o->eps;

    for (size_t i = 0; i < count; i++) {
        const float g = grad[i] * factor;
        m[i] = beta1 * m[i] + rest1 * g;
        v[i] = beta2 * v[i] + rest2 * (g * g);
        w[i] = w[i] * shrink - step * (m[i] / (sqrtf(v[i]) * root + eps));
    }
}

static void adamw_blocks(const struct adamw *o, size_t begin, size_t count)
{
    const struct dp_update *u = o->update;
    struct adamw own = *o;

    for (size_t i = begin; i < begin + count; i += DP_BLOCK) {
        const size_t rest = begin + count - i;
        own.shrink = (float)(1 - o->lr * o->decay * (double)u->decays[i / DP_BLOCK]);
        adamw_piece(&own, u->master + i, u->slots[0] + i, u->slots[1] + i, u->grad + i,
                    rest < DP_BLOCK ? rest : DP_BLOCK);
    }
}

static void adamw_part(void *arg, size_t begin, size_t end)
{
    const struct adamw *o = arg;
    const struct dp_update *u = o->update;

    for (size_t i = begin; i < end; i += PIECE) {
        const size_t count = end - i < PIECE ? end - i : PIECE;
        if (u->decays != NULL) {
            adamw_blocks(o, i, count);
        } else {
            adamw_piece(o, u->master + i, u->slots[0] + i, u->slots[1] + i, u->grad + i, count);
        }
        dp_cpu_publish(o->stream, u, i, count);
    }
}

dp_status dp_cpu_adamw(struct dp_stream *s, const struct dp_update *u, double beta1, double beta2,
                       float eps, float decay)
{
    const double lr = (double)u->step_params->lr, t = (double)u->step_params->applied + 1;
    struct adamw o = {.stream = s,
                      .update = u,
                      .factor = u->step_params->factor,
                      .beta1 = (float)beta1,
                      .beta2 = (float)beta2,
                      .rest1 = (float)(1 - beta1),
                      .rest2 = (float)(1 - beta2),
                      .shrink = (float)(1 - lr * (double)decay),
                      .step = (float)(lr / (1 - pow(beta1, t))),
                      .root = (float)(1 / sqrt(1 - pow(beta2, t))),
                      .eps = eps,
                      .lr = lr,
                      .decay = (double)decay};

    if (u->step_params->skip == 0) {
        dp_parallel(s->threads, u->count, DP_BLOCK, adamw_part, &o);
    }
    return DP_OK;
}
