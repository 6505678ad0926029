#include "collectives/strategy.h"

#define DP_STRATEGY(name) extern const struct dp_strategy dp_strategy_##name;
#include "collectives/strategies.def"
#undef DP_STRATEGY

static const struct dp_plugin *const registry[] = {
#define DP_STRATEGY(name) &dp_strategy_##name.plugin,
#include "collectives/strategies.def"
#undef DP_STRATEGY
};

struct dp_plugin_family dp_strategies = {
    .noun = "strategy", .rows = registry, .count = sizeof(registry) / sizeof(registry[0])};

const char *dp_strategy_choose(const struct dp_group *group, const char **reason)
{
    if (dp_group_one_node(group) && !group->apart) {
        *reason = "all ranks share one node's memory";
        return "shm";
    }
    *reason = group->apart ? "no room for shared memory" : "ranks live on several nodes";
    return "ring";
}
