/*
 * sharding.h - who sums a bucket, and who updates it.
 *
 * A plain strategy name in comm.strategy means `replicated`: every rank sums and updates all. The
 * name of another sharing may say over which strategy: "zero1:over=ring".
 *
 * To add one: write sharing_<name>.c defining `const struct dp_sharding dp_sharding_<name>`, and
 * add one line to shardings.def.
 */
#ifndef DP_COLLECTIVES_EXCHANGE_SHARDING_H
#define DP_COLLECTIVES_EXCHANGE_SHARDING_H

#include "base/plugin.h"
#include "collectives/core/bucket.h"

struct dp_exchange;

struct dp_sharding {
    struct dp_plugin plugin;
    bool steady; /* queues the same work every step: may be captured in a graph */
    bool sums;   /* buckets itself, in tree order: the strategy is for the tail and small sums */
    /* The strategy in the options. */
    const char *(*over)(const void *state);
    dp_status (*open)(void *state, struct dp_exchange *exchange);
    /* The part of a bucket that this rank's optimizer updates. */
    struct dp_range (*mine)(const void *state, const struct dp_bucket *bucket);
    /* Job, when this rank's gradient of bucket b is final: its sum reaches those who need it. */
    dp_status (*reduce)(void *state, int b);
    /* Job: of an array [trained] in flat order, of `width` bytes an element, every rank has its
     * part of bucket b; afterwards all have the whole bucket. For new weights, and to save. NULL:
     * mine() is all of it. */
    dp_status (*gather)(void *state, int b, void *array, size_t width);
    void (*close)(void *state);
};

extern struct dp_plugin_family dp_shardings;

#endif
