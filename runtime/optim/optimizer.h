/*
 * optimizer.h - the ways to update weights from a gradient.
 *
 * To add one: write optimizer_<name>.c and add one line to optimizers.def. The
 * conformance test (test_optimizers) then covers it.
 */
#ifndef DP_RUNTIME_OPTIM_OPTIMIZER_H
#define DP_RUNTIME_OPTIM_OPTIMIZER_H

#include "base/plugin.h"
#include "kernels/device.h"
#include "kernels/flat.h"
#include "runtime/config/config.h"

struct dp_optimizer {
    struct dp_plugin plugin;
    const char *slots[2]; /* PyTorch's names of its state arrays; NULL: fewer */

    /* Takes what it needs from the configuration. Errors: DP_ERR_CONFIG. */
    dp_status (*open)(void *state, const struct dp_optimizer_config *config);

    /* Queues the update of one range of weights. */
    dp_status (*update)(const void *state, struct dp_stream *stream, const struct dp_update *u);
};

extern struct dp_plugin_family dp_optimizers;

#endif
