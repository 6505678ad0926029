/*
 * optimizer.h - the ways to update weights from a gradient.
 *
 * To add one: write optimizer_<name>.c defining `const struct dp_optimizer dp_optimizer_<name>`,
 * and add one line to optimizers.def. The conformance test (test_optimizers) then covers all but
 * its formula, which needs a golden.
 */
#ifndef DP_RUNTIME_OPTIM_OPTIMIZER_H
#define DP_RUNTIME_OPTIM_OPTIMIZER_H

#include "base/plugin.h"
#include "kernels/device.h"
#include "kernels/flat.h"
#include "runtime/optim/schedule.h"

/* Which parameters can be left out of the weight decay, and of layer-wise rates: the words of the
 * option no_decay, which an optimizer may have. */
#define DP_NO_DECAY_WORDS "bias|norm"
enum { DP_NO_DECAY_BIAS = 1, DP_NO_DECAY_NORM = 2 };

/* The state of a plug-in is its options, which are constant. */
struct dp_optimizer {
    struct dp_plugin plugin;
    const char *slots[2]; /* PyTorch's names of its state arrays; NULL: fewer */

    /* Queues the update of one range of weights. */
    dp_status (*update)(const void *options, struct dp_stream *stream, const struct dp_update *u);

    /*
     * Of one whose steps have a size for each tensor (layer-wise rates); else both are NULL.
     * measure() is called for all ranges before any update(): it queues the sums of squares, block
     * by block, of what the update will be made of. trust() says how a tensor's rate is made of
     * its two norms.
     */
    dp_status (*measure)(const void *options, struct dp_stream *stream, float *squares,
                         const struct dp_update *u);
    struct dp_trust (*trust)(const void *options);
};

extern struct dp_plugin_family dp_optimizers;

/* How the learning rate follows the size of a batch. */
enum { DP_SCALE_LR_NONE, DP_SCALE_LR_LINEAR, DP_SCALE_LR_SQRT };

/* The section `optimizer` of a configuration. */
struct dp_optimizer_config {
    const char *name;
    double lr, clip_norm;
    int scale_lr;                   /* DP_SCALE_LR_... */
    int base_batch, global_batch;   /* of which lr is; train.global_batch */
    struct dp_plugin_choice chosen; /* one of dp_optimizers */
    struct dp_schedule_config schedule;
};

/* The value of its option no_decay; 0: it has none. */
unsigned dp_optimizer_no_decay(const struct dp_optimizer *optimizer, const void *options);

/* The optimizer that a configuration names. */
static inline const struct dp_optimizer *dp_optimizer_of(const struct dp_optimizer_config *config)
{
    return (const struct dp_optimizer *)config->chosen.plugin;
}

/* What scale_lr multiplies lr by: 1, the batch as a multiple of base_batch, or its square root.
 * Sources: Goyal et al., arXiv:1706.02677, section 2.1; Krizhevsky, arXiv:1404.5997, section 5. */
double dp_optimizer_lr_factor(const struct dp_optimizer_config *config);

/*
 * Learning rate of step `step` (from 0) of a run whose configured length is `steps`. With lr scaled
 * to the batch: lr (s+1)/W in the first W steps, then the schedule over the other steps, as
 * PyTorch's StepLR, CosineAnnealingLR and LinearLR (to eta_min), in steps. After the last step it
 * stays constant.
 */
double dp_optimizer_lr(const struct dp_optimizer_config *config, uint64_t step, uint64_t steps);

#endif
