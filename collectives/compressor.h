/*
 * compressor.h - ways to make a gradient smaller before it is shared.
 *
 * To add one: write compressor_<name>.c and add one line to compressors.def.
 */
#ifndef DP_COLLECTIVES_COMPRESSOR_H
#define DP_COLLECTIVES_COMPRESSOR_H

#include "base/plugin.h"

struct dp_compressor {
    struct dp_plugin plugin;
};

extern struct dp_plugin_family dp_compressors;

#endif
