#include "collectives/strategies/strategy.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/device.h"

#define DP_STRATEGY(name) extern const struct dp_strategy dp_strategy_##name;
#include "collectives/strategies/strategies.def"
#undef DP_STRATEGY

static const struct dp_plugin *const registry[] = {
#define DP_STRATEGY(name) &dp_strategy_##name.plugin,
#include "collectives/strategies/strategies.def"
#undef DP_STRATEGY
};

struct dp_plugin_family dp_strategies = {
    .noun = "strategy", .rows = registry, .count = sizeof(registry) / sizeof(registry[0])};

const char *dp_strategy_not_here(const struct dp_strategy *strategy)
{
    const struct dp_plugin *cuda = dp_plugin_find(&dp_devices, "cuda", strlen("cuda"));
    const char *why_not = NULL;

    if (!strategy->gpus) {
        return NULL;
    }
    if (cuda == NULL) {
        return "built without device cuda";
    }
    return ((const struct dp_device *)cuda)->available(&why_not) ? NULL : why_not;
}

const char *dp_strategy_choose(const struct dp_group *group, const char **reason)
{
    if (dp_group_one_node(group) && !group->unshared) {
        *reason = "all ranks share one node's memory";
        return "shm";
    }
    *reason =
        dp_group_one_node(group) ? "no room for shared memory" : "ranks live on several nodes";
    return group->ordered ? "direct" : "ring";
}

dp_status dp_strategy_check_option(const char *owner, const char *option, const char *text,
                                   char *problem, size_t problem_size)
{
    const struct dp_plugin *plugin;
    const struct dp_strategy *strategy;
    char detail[256];
    dp_status status;
    void *state;

    if (strcmp(text, "auto") == 0) {
        return DP_OK;
    }
    status = dp_plugin_create(&dp_strategies, text, &plugin, &state, detail, sizeof(detail));
    if (status != DP_OK) {
        (void)snprintf(problem, problem_size, "%s: %s: %s", owner, option, detail);
        return status;
    }
    strategy = (const struct dp_strategy *)plugin;
    if (strategy->gpus || strategy->sum == NULL || strcmp(plugin->name, owner) == 0) {
        (void)snprintf(problem, problem_size, "%s: %s cannot be %s", owner, option, text);
        status = DP_ERR_CONFIG;
    } else if (strategy->check != NULL) {
        status = strategy->check(state, problem, problem_size);
    }
    dp_free(state);
    return status;
}

bool dp_strategy_keeps_order(const struct dp_strategy *strategy, const void *state,
                             const struct dp_group *group)
{
    const bool depends = strategy->keeps_order != NULL && group != NULL;

    return strategy->ordered && strategy->sum != NULL &&
           (!depends || strategy->keeps_order(state, group));
}

/* The strategy that a text names, with its options in a state that is not opened; NULL: none. */
static const struct dp_strategy *read_text(const char *text, const struct dp_group *group,
                                           void **state)
{
    const struct dp_plugin *plugin;
    const char *reason;
    char problem[256];

    if (strcmp(text, "auto") == 0) {
        text = dp_strategy_choose(group, &reason);
    }
    return dp_plugin_create(&dp_strategies, text, &plugin, state, problem, sizeof(problem)) == DP_OK
               ? (const struct dp_strategy *)plugin
               : NULL;
}

bool dp_strategy_ordered(const char *text, const struct dp_group *group)
{
    void *state;
    const struct dp_strategy *strategy = read_text(text, group, &state);
    bool ordered;

    if (strategy == NULL) {
        return false;
    }
    ordered = dp_strategy_keeps_order(strategy, state, group);
    dp_free(state);
    return ordered;
}

double dp_strategy_cost(const char *text, const struct dp_cost *cost, const struct dp_group *group,
                        size_t bytes)
{
    void *state;
    const struct dp_strategy *strategy = read_text(text, group, &state);
    double seconds = (double)NAN;

    if (strategy == NULL) {
        return seconds;
    }
    if (strategy->cost != NULL) {
        seconds = strategy->cost(state, cost, group, bytes);
    }
    dp_free(state);
    return seconds;
}
