#include "collectives/exchange/sharding.h"

#define DP_SHARING(name) extern const struct dp_sharding dp_sharding_##name;
#include "collectives/exchange/shardings.def"
#undef DP_SHARING

static const struct dp_plugin *const registry[] = {
#define DP_SHARING(name) &dp_sharding_##name.plugin,
#include "collectives/exchange/shardings.def"
#undef DP_SHARING
};

struct dp_plugin_family dp_shardings = {
    .noun = "sharing", .rows = registry, .count = sizeof(registry) / sizeof(registry[0])};
