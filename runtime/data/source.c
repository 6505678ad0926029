#include "runtime/data/source.h"

#define DP_SOURCE(name) extern const struct dp_source dp_source_##name;
#include "runtime/data/sources.def"
#undef DP_SOURCE

static const struct dp_plugin *const registry[] = {
#define DP_SOURCE(name) &dp_source_##name.plugin,
#include "runtime/data/sources.def"
#undef DP_SOURCE
};

struct dp_plugin_family dp_sources = {
    .noun = "source", .rows = registry, .count = sizeof(registry) / sizeof(registry[0])};
