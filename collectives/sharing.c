#include "collectives/sharing.h"

#define DP_SHARING(name) extern const struct dp_sharing dp_sharing_##name;
#include "collectives/sharings.def"
#undef DP_SHARING

static const struct dp_plugin *const registry[] = {
#define DP_SHARING(name) &dp_sharing_##name.plugin,
#include "collectives/sharings.def"
#undef DP_SHARING
};

struct dp_plugin_family dp_sharings = {
    .noun = "sharing", .rows = registry, .count = sizeof(registry) / sizeof(registry[0])};
