/*
 * optimizer_adamw.c - Adam with decoupled weight decay, as torch.optim.AdamW.
 */
#include "runtime/optim/optimizer.h"

struct adamw {
    struct dp_numbers betas; /* two */
    double eps, weight_decay;
    unsigned no_decay;
};

static const struct dp_option adamw_options[] = {
    DP_NUMBERS(struct adamw, betas, "0.9,0.999", 0, 0.999999999,
               "decay rates of the averages of gradients and of their squares"),
    DP_DOUBLE(struct adamw, eps, "1e-8", 0, 1, "added to the denominator"),
    DP_DOUBLE(struct adamw, weight_decay, "0", 0, 1000, "apart from the gradient"),
    DP_WORDS(struct adamw, no_decay, "", DP_NO_DECAY_WORDS,
             "parameters without weight decay: bias, norm (of normalisations)"),
    {0},
};

static const char *adamw_refuse(const void *options, const char **key)
{
    *key = "betas";
    return ((const struct adamw *)options)->betas.count != 2 ? "expected two numbers" : NULL;
}

static dp_status adamw_update(const void *options, struct dp_stream *stream,
                              const struct dp_update *u)
{
    const struct adamw *o = options;

    return stream->ops->adamw(stream, u, o->betas.value[0], o->betas.value[1], (float)o->eps,
                              (float)o->weight_decay);
}

const struct dp_optimizer dp_optimizer_adamw = {
    .plugin = {.name = "adamw",
               .help = "Adam with decoupled weight decay",
               .options = adamw_options,
               .state_bytes = sizeof(struct adamw),
               .refuse = adamw_refuse},
    .slots = {"exp_avg", "exp_avg_sq"},
    .update = adamw_update,
};
