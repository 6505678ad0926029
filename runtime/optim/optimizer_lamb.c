/*
 * optimizer_lamb.c - Adam, where each tensor has a rate of its own.
 *
 * Source: You et al., "Large batch optimization for deep learning: training BERT in 76 minutes",
 * arXiv:1904.00962, algorithm 2, with corrected moments as in apex's FusedLAMB; its clipping of
 * the whole gradient is optimizer.clip_norm here.
 */
#include "runtime/optim/optimizer.h"

struct lamb {
    struct dp_numbers betas; /* two */
    double eps, weight_decay;
    unsigned no_decay;
};

static const struct dp_option lamb_options[] = {
    DP_NUMBERS(struct lamb, betas, "0.9,0.999", 0, 0.999999999,
               "decay rates of the averages of gradients and of their squares"),
    DP_DOUBLE(struct lamb, eps, "1e-6", 0, 1, "added to the denominator"),
    DP_DOUBLE(struct lamb, weight_decay, "0", 0, 1000, "apart from the gradient"),
    DP_WORDS(struct lamb, no_decay, "bias,norm", DP_NO_DECAY_WORDS,
             "parameters without weight decay, at the plain learning rate: bias, norm"),
    {0},
};

static const char *lamb_refuse(const void *options, const char **key)
{
    *key = "betas";
    return ((const struct lamb *)options)->betas.count != 2 ? "expected two numbers" : NULL;
}

static dp_status lamb_measure(const void *options, struct dp_stream *stream, float *squares,
                              const struct dp_update *u)
{
    const struct lamb *o = options;

    return stream->ops->lamb_moments(stream, squares, u, o->betas.value[0], o->betas.value[1],
                                     (float)o->eps, (float)o->weight_decay);
}

static struct dp_trust lamb_trust(const void *options)
{
    (void)options;
    return (struct dp_trust){.coefficient = 1};
}

static dp_status lamb_update(const void *options, struct dp_stream *stream,
                             const struct dp_update *u)
{
    const struct lamb *o = options;

    return stream->ops->lamb(stream, u, o->betas.value[0], o->betas.value[1], (float)o->eps,
                             (float)o->weight_decay);
}

const struct dp_optimizer dp_optimizer_lamb = {
    .plugin = {.name = "lamb",
               .help = "Adam for large batches: a rate for each tensor",
               .options = lamb_options,
               .state_bytes = sizeof(struct lamb),
               .refuse = lamb_refuse},
    .slots = {"exp_avg", "exp_avg_sq"},
    .update = lamb_update,
    .measure = lamb_measure,
    .trust = lamb_trust,
};
