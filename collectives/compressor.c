#include "collectives/compressor.h"

#define DP_COMPRESSOR(name) extern const struct dp_compressor dp_compressor_##name;
#include "collectives/compressors.def"
#undef DP_COMPRESSOR

/* Gradients are shared as they are: the strategy alone does the work. */
const struct dp_compressor dp_compressor_none = {
    .plugin = {.name = "none", .help = "float32, as it is"}};

static const struct dp_plugin *const registry[] = {
#define DP_COMPRESSOR(name) &dp_compressor_##name.plugin,
#include "collectives/compressors.def"
#undef DP_COMPRESSOR
};

struct dp_plugin_family dp_compressors = {
    .noun = "compressor", .rows = registry, .count = sizeof(registry) / sizeof(registry[0])};
