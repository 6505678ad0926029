/*
 * exchange_config.h - what an exchange is asked to be.
 */
#ifndef DP_COLLECTIVES_EXCHANGE_EXCHANGE_CONFIG_H
#define DP_COLLECTIVES_EXCHANGE_EXCHANGE_CONFIG_H

#include <string.h>

#include "collectives/core/consistency.h"
#include "collectives/core/engine.h"
#include "kernels/device.h"

enum {
    DP_EXCHANGE_ITEMS = 8,  /* that ranks compare beside the exchange's own */
    DP_EXCHANGE_LABEL = 128 /* room for the name of a strategy with its options and its sharding */
};

struct dp_exchange_config {
    const char *strategy;
    bool recalled;          /* `auto` took that strategy before: it becomes auto again where
                                   * it cannot run, for want of shared memory say */
    const char *compressor; /* NULL: none */
    const struct dp_step_params *step_params; /* for a compressor: those of each step; borrowed */
    uint64_t seed;                            /* for a compressor: of its random numbers */
    size_t bucket_bytes, first_bucket_bytes;
    enum dp_run run;
    size_t scratch_count; /* the most numbers of one dp_exchange_sum or dp_exchange_sum_host */
    int servers;          /* the last ranks, which bring no gradients; 0: none */
    bool whole;           /* every rank updates all weights: local steps */
    bool deferred;        /* deferred buckets may be put off, which the caller can deal with */
    bool ordered;         /* sums must keep the order of the tree over ranks: lanes */
    size_t tail_made; /* elements of the tail, the first ones, that are computed by the device */
    const struct dp_device *device;
    int threads; /* of this rank: sums use them while nothing else does */
    const struct dp_consistency_item *items; /* what else ranks must have alike; NULL: nothing */
    int item_count;                          /* at most DP_EXCHANGE_ITEMS */
};

/* Whether gradients are to go through a compressor. Local. */
static inline bool dp_exchange_compresses(const struct dp_exchange_config *config)
{
    return config->compressor != NULL && strcmp(config->compressor, "none") != 0;
}

#endif
