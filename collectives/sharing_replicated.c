/*
 * sharing_replicated.c - every rank gets the whole sum and updates all weights: as PyTorch DDP.
 */
#include "collectives/exchange.h"
#include "collectives/sharing.h"

struct replicated {
    struct dp_exchange *exchange; /* borrowed */
};

static dp_status replicated_open(void *state, struct dp_exchange *exchange)
{
    struct replicated *r = state;

    r->exchange = exchange;
    return DP_OK;
}

static struct dp_range replicated_mine(const void *state, const struct dp_bucket *bucket)
{
    (void)state;
    return bucket->range;
}

static dp_status replicated_reduce(void *state, int b)
{
    const struct replicated *r = state;
    const struct dp_bucket *bucket = &r->exchange->plan->buckets[b];
    const struct dp_slice grad = {r->exchange->grad + bucket->range.begin, bucket->range.count,
                                  sizeof(float)};

    return bucket->exact ? dp_comm_sum_exact(r->exchange->comm, grad)
                         : dp_comm_sum(r->exchange->comm, grad, DP_KEEP_ALL);
}

static void replicated_close(void *state)
{
    (void)state;
}

const struct dp_sharing dp_sharing_replicated = {
    .plugin = {.name = "replicated",
               .help = "every rank sums and updates all weights",
               .state_bytes = sizeof(struct replicated)},
    .steady = true,
    .open = replicated_open,
    .mine = replicated_mine,
    .reduce = replicated_reduce,
    .close = replicated_close,
};
