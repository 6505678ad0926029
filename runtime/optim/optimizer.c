#include "runtime/optim/optimizer.h"

#define DP_OPTIMIZER(name) extern const struct dp_optimizer dp_optimizer_##name;
#include "runtime/optim/optimizers.def"
#undef DP_OPTIMIZER

static const struct dp_plugin *const registry[] = {
#define DP_OPTIMIZER(name) &dp_optimizer_##name.plugin,
#include "runtime/optim/optimizers.def"
#undef DP_OPTIMIZER
};

struct dp_plugin_family dp_optimizers = {
    .noun = "optimizer", .rows = registry, .count = sizeof(registry) / sizeof(registry[0])};
