/*
 * optimizer_adamw.c - Adam with decoupled weight decay, as torch.optim.AdamW.
 */
#include "runtime/optim/optimizer.h"

struct adamw {
    double beta1, beta2;
    float eps, decay;
};

static dp_status adamw_open(void *state, const struct dp_optimizer_config *config)
{
    struct adamw *o = state;

    if (config->betas.count != 2) {
        return DP_FAIL(DP_ERR_CONFIG, "optimizer.betas: two numbers are wanted, such as "
                                      "[0.9, 0.999]");
    }
    o->beta1 = config->betas.value[0];
    o->beta2 = config->betas.value[1];
    o->eps = (float)config->eps;
    o->decay = (float)config->weight_decay;
    return DP_OK;
}

static dp_status adamw_update(const void *state, struct dp_stream *stream,
                              const struct dp_update *u)
{
    const struct adamw *o = state;

    return stream->ops->adamw(stream, u, o->beta1, o->beta2, o->eps, o->decay);
}

const struct dp_optimizer dp_optimizer_adamw = {
    .plugin = {.name = "adamw",
               .help = "Adam with decoupled weight decay; betas, eps, weight_decay",
               .state_bytes = sizeof(struct adamw)},
    .slots = {"exp_avg", "exp_avg_sq"},
    .open = adamw_open,
    .update = adamw_update,
};
