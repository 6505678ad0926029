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

/* The state of a plug-in is its options, which are constant. */
struct dp_optimizer {
    struct dp_plugin plugin;
    const char *slots[2]; /* PyTorch's names of its state arrays; NULL: fewer */

    /* Queues the update of one range of weights. */
    dp_status (*update)(const void *options, struct dp_stream *stream, const struct dp_update *u);
};

extern struct dp_plugin_family dp_optimizers;

/* The section `optimizer` of a configuration. */
struct dp_optimizer_config {
    const char *name;
    double lr, clip_norm;
    struct dp_plugin_choice chosen; /* one of dp_optimizers */
    struct dp_schedule_config schedule;
};

/* The optimizer that a configuration names. */
static inline const struct dp_optimizer *dp_optimizer_of(const struct dp_optimizer_config *config)
{
    return (const struct dp_optimizer *)config->chosen.plugin;
}

/*
 * Learning rate of step `step` (from 0) of a run whose configured length is `steps`: lr (s+1)/W in
 * the first W steps, then the schedule over the other steps, as PyTorch's StepLR, CosineAnnealingLR
 * and LinearLR (to eta_min), in steps. After the last step it stays constant.
 */
double dp_optimizer_lr(const struct dp_optimizer_config *config, uint64_t step, uint64_t steps);

#endif
