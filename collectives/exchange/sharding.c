#include "collectives/exchange/sharding.h"

#include <string.h>

#define DP_SHARING(name) extern const struct dp_sharding dp_sharding_##name;
#include "collectives/exchange/shardings.def"
#undef DP_SHARING

static const struct dp_plugin *const registry[] = {
#define DP_SHARING(name) &dp_sharding_##name.plugin,
#include "collectives/exchange/shardings.def"
#undef DP_SHARING
};

struct dp_plugin_family dp_shardings = {
    .noun = "sharding", .rows = registry, .count = sizeof(registry) / sizeof(registry[0])};

bool dp_sharding_is_plain(const struct dp_sharding *sharding)
{
    return &sharding->plugin == registry[0];
}

dp_status dp_sharding_create(const char *text, const struct dp_sharding **sharding, void **state,
                             const char **strategy, char *problem, size_t problem_size)
{
    const bool named = dp_plugin_find(&dp_shardings, text, strcspn(text, ":")) != NULL;
    const struct dp_plugin *plugin;

    DP_TRY(dp_plugin_create(&dp_shardings, named ? text : registry[0]->name, &plugin, state,
                            problem, problem_size));
    *sharding = (const struct dp_sharding *)plugin;
    *strategy = named ? (*sharding)->over(*state) : text;
    return DP_OK;
}
