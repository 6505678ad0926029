/*
 * sharding.h - which ranks sum a bucket, and which update it.
 *
 * A plain strategy name in comm.strategy means `replicated`: every rank sums and updates all.
 * Another sharding's name may include its strategy: "zero1:over=ring".
 *
 * To add one: write sharding_<name>.c defining `const struct dp_sharding dp_sharding_<name>`, and
 * add one line to shardings.def.
 */
#ifndef DP_COLLECTIVES_EXCHANGE_SHARDING_H
#define DP_COLLECTIVES_EXCHANGE_SHARDING_H

#include "base/plugin.h"
#include "collectives/core/bucket.h"
#include "collectives/core/group.h"

struct dp_comm;
struct dp_exchange;

struct dp_sharding {
    struct dp_plugin plugin;
    enum dp_keep keep; /* the part of a sum that this rank needs */

    /* The strategy in the options. */
    const char *(*over)(const void *state);
    dp_status (*open)(void *state, struct dp_exchange *exchange);

    /* The part of a bucket that this rank's optimizer updates. */
    struct dp_range (*mine)(const void *state, const struct dp_bucket *bucket);

    /* Job: sums a bucket (not the tail), in place and in tree order, on the ranks that need it.
     * NULL: the strategy sums, or a compressor. */
    dp_status (*sum)(void *state, struct dp_slice gradient);

    /* Job: every rank has its part of bucket b of an array [trained] in flat order, of `width`
     * bytes an element; afterwards all have the whole bucket. For new weights, and to save. comm:
     * the strategy where the array is. NULL: mine() is all of it. */
    dp_status (*gather)(void *state, struct dp_comm *comm, int b, void *array, size_t width);
    void (*close)(void *state);
};

extern struct dp_plugin_family dp_shardings;

/* Parses "zero1:over=ring" or "ring". Makes the state of the sharding, which the caller releases,
 * and finds the strategy over which it works. Local. Errors: those of dp_plugin_create. */
DP_CHECKED dp_status dp_sharding_create(const char *text, const struct dp_sharding **sharding,
                                        void **state, const char **strategy, char *problem,
                                        size_t problem_size);

/* Whether it is the sharding that a plain strategy name means. Local. */
bool dp_sharding_is_plain(const struct dp_sharding *sharding);

#endif
