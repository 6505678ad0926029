/*
 * optimizer_lars.c - gradient descent with momentum, where each tensor has a rate of its own.
 *
 * Source: You, Gitman and Ginsburg, "Large batch training of convolutional networks",
 * arXiv:1708.03888. As in apex's LARC and timm's Lars the learning rate stays outside of the
 * momentum; in the paper it is inside, which differs only while it changes.
 */
#include "runtime/optim/optimizer.h"

struct lars {
    double momentum, weight_decay, trust_coefficient, eps;
    bool nesterov;
    unsigned no_decay;
};

static const struct dp_option lars_options[] = {
    DP_DOUBLE(struct lars, momentum, "0.9", 0, 1, "part of the last update that is added again"),
    DP_SWITCH(struct lars, nesterov, "false", "Nesterov's momentum"),
    DP_DOUBLE(struct lars, weight_decay, "0", 0, 1000, "added to the gradient"),
    DP_DOUBLE(struct lars, trust_coefficient, "0.001", 0, 1000,
              "step of a tensor, as a part of its norm, at learning rate 1"),
    DP_DOUBLE(struct lars, eps, "1e-8", 0, 1, "added to the denominator"),
    DP_WORDS(struct lars, no_decay, "bias,norm", DP_NO_DECAY_WORDS,
             "parameters without weight decay, at the plain learning rate: bias, norm"),
    {0},
};

static const char *lars_refuse(const void *options, const char **key)
{
    const struct lars *o = options;

    *key = "nesterov";
    return o->nesterov && o->momentum == 0.0 ? "nesterov needs a momentum above 0" : NULL;
}

static dp_status lars_measure(const void *options, struct dp_stream *stream, float *squares,
                              const struct dp_update *u)
{
    (void)options;
    return stream->ops->block_squares(stream, squares, u->grad, u->count);
}

static struct dp_trust lars_trust(const void *options)
{
    const struct lars *o = options;

    return (struct dp_trust){.coefficient = (float)o->trust_coefficient,
                             .decay = (float)o->weight_decay,
                             .eps = (float)o->eps,
                             .of_gradient = true};
}

static dp_status lars_update(const void *options, struct dp_stream *stream,
                             const struct dp_update *u)
{
    const struct lars *o = options;

    return stream->ops->sgd(stream, u, (float)o->momentum, o->nesterov, (float)o->weight_decay);
}

const struct dp_optimizer dp_optimizer_lars = {
    .plugin = {.name = "lars",
               .help = "gradient descent for large batches: a rate for each tensor",
               .options = lars_options,
               .state_bytes = sizeof(struct lars),
               .refuse = lars_refuse},
    .slots = {"momentum", NULL},
    .update = lars_update,
    .measure = lars_measure,
    .trust = lars_trust,
};
