/*
 * exchange_config.h - the configuration of an exchange.
 */
#ifndef DP_COLLECTIVES_EXCHANGE_EXCHANGE_CONFIG_H
#define DP_COLLECTIVES_EXCHANGE_EXCHANGE_CONFIG_H

#include <string.h>

#include "collectives/core/consistency.h"
#include "collectives/core/engine.h"
#include "kernels/device.h"

enum {
    DP_EXCHANGE_ITEMS = 8,  /* items that ranks compare besides the exchange's own */
    DP_EXCHANGE_LABEL = 128 /* size of a strategy's name with options and sharding */
};

struct dp_exchange_config {
    const char *strategy;
    bool recalled;          /* `auto` chose that strategy in an earlier run: it becomes auto again
                             * if it cannot run now, for example without shared memory */
    const char *compressor; /* NULL: none */
    const struct dp_step_params *step_params; /* for a compressor: current values of each step;
                                               * borrowed */
    uint64_t seed;                            /* for a compressor's random numbers */
    size_t bucket_bytes, first_bucket_bytes;
    enum dp_run run;
    size_t scratch_count; /* largest dp_exchange_sum or dp_exchange_sum_host, in numbers */
    int servers;          /* number of servers: the last ranks, which have no gradients; 0: none */
    bool whole;    /* every rank updates all weights: local steps, averages, going on without one */
    bool deferred; /* the caller can handle deferred buckets */
    bool ordered;  /* sums must keep the tree's order over ranks: lanes */
    bool checked;  /* messages have checksums (message_check.h) */
    size_t tail_made; /* elements of the tail, the first ones, that the device computes */
    const struct dp_device *device;
    int threads;                             /* of this rank: sums use them while they are idle */
    const struct dp_consistency_item *items; /* what else must be equal on all ranks; NULL:
                                              * nothing */
    int item_count;                          /* at most DP_EXCHANGE_ITEMS */
};

/* Whether gradients go through a compressor. Local. */
static inline bool dp_exchange_compresses(const struct dp_exchange_config *config)
{
    return config->compressor != NULL && strcmp(config->compressor, "none") != 0;
}

#endif
