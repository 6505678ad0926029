/*
 * sharding_replicated.c - every rank gets the whole sum and updates all weights: as PyTorch DDP.
 */
#include "collectives/exchange/sharding.h"

struct replicated {
    const char *over;
};

static const char *replicated_over(const void *state)
{
    return ((const struct replicated *)state)->over;
}

static dp_status replicated_open(void *state, struct dp_exchange *exchange)
{
    (void)state;
    (void)exchange;
    return DP_OK;
}

static struct dp_range replicated_mine(const void *state, const struct dp_bucket *bucket)
{
    (void)state;
    return bucket->range;
}

static void replicated_close(void *state)
{
    (void)state;
}

#define REPLICATED struct replicated

/* clang-format off */
static const struct dp_option replicated_options[] = {
    DP_STRING(REPLICATED, over, "auto", "the strategy that sums"),
    {0},
};
/* clang-format on */

const struct dp_sharding dp_sharding_replicated = {
    .plugin = {.name = "replicated",
               .help = "every rank has the whole sum and updates all weights",
               .options = replicated_options,
               .state_bytes = sizeof(struct replicated)},
    .keep = DP_KEEP_ALL,
    .over = replicated_over,
    .open = replicated_open,
    .mine = replicated_mine,
    .close = replicated_close,
};
