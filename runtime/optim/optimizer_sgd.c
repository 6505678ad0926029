/*
 * optimizer_sgd.c - stochastic gradient descent with momentum, as torch.optim.SGD.
 */
#include "runtime/optim/optimizer.h"

struct sgd {
    float momentum, decay;
    bool nesterov;
};

static dp_status sgd_open(void *state, const struct dp_optimizer_config *config)
{
    struct sgd *o = state;

    if (config->nesterov && config->momentum == 0.0) {
        return DP_FAIL(DP_ERR_CONFIG, "optimizer.nesterov needs a momentum above 0");
    }
    o->momentum = (float)config->momentum;
    o->decay = (float)config->weight_decay;
    o->nesterov = config->nesterov;
    return DP_OK;
}

static dp_status sgd_update(const void *state, struct dp_stream *stream, const struct dp_update *u)
{
    const struct sgd *o = state;

    return stream->ops->sgd(stream, u, o->momentum, o->nesterov, o->decay);
}

const struct dp_optimizer dp_optimizer_sgd = {
    .plugin = {.name = "sgd",
               .help = "gradient descent; momentum, nesterov, weight_decay",
               .state_bytes = sizeof(struct sgd)},
    .slots = {"momentum", NULL},
    .open = sgd_open,
    .update = sgd_update,
};
