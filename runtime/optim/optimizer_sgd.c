/*
 * optimizer_sgd.c - stochastic gradient descent with momentum, as torch.optim.SGD.
 */
#include "runtime/optim/optimizer.h"

struct sgd {
    double momentum, weight_decay;
    bool nesterov;
    unsigned no_decay;
};

static const struct dp_option sgd_options[] = {
    DP_DOUBLE(struct sgd, momentum, "0.9", 0, 1, "part of the last update that is added again"),
    DP_SWITCH(struct sgd, nesterov, "false", "Nesterov's momentum"),
    DP_DOUBLE(struct sgd, weight_decay, "0", 0, 1000, "added to the gradient"),
    DP_WORDS(struct sgd, no_decay, "", DP_NO_DECAY_WORDS,
             "parameters without weight decay: bias, norm (of normalisations)"),
    {0},
};

static const char *sgd_refuse(const void *options, const char **key)
{
    const struct sgd *o = options;

    *key = "nesterov";
    return o->nesterov && o->momentum == 0.0 ? "nesterov needs a momentum above 0" : NULL;
}

static dp_status sgd_update(const void *options, struct dp_stream *stream,
                            const struct dp_update *u)
{
    const struct sgd *o = options;

    return stream->ops->sgd(stream, u, (float)o->momentum, o->nesterov, (float)o->weight_decay);
}

const struct dp_optimizer dp_optimizer_sgd = {
    .plugin = {.name = "sgd",
               .help = "gradient descent with momentum",
               .options = sgd_options,
               .state_bytes = sizeof(struct sgd),
               .refuse = sgd_refuse},
    .slots = {"momentum", NULL},
    .update = sgd_update,
};
