/*
 * sharding_zero1.c - each rank sums and updates its part of every bucket, then the weights are
 * gathered. Over all ranks there is one copy of the optimizer state, and its work is divided.
 *
 * A bucket is cut into one chunk per rank, at multiples of DP_BLOCK. As many bytes are sent as in
 * an allreduce (a reduce-scatter of the gradient, then a gather of the weights), and every weight
 * gets the same bits as from `replicated` over the same strategy.
 *
 * Source: Rajbhandari, Rasley, Ruwase and He, "ZeRO: memory optimizations toward training trillion
 * parameter models", SC 2020, section 5.1 (P_os).
 */
#include "collectives/exchange/exchange_own.h"

struct zero1 {
    const char *over;
    struct dp_exchange *exchange; /* borrowed */
};

static const char *zero1_over(const void *state)
{
    return ((const struct zero1 *)state)->over;
}

static dp_status zero1_open(void *state, struct dp_exchange *exchange)
{
    struct zero1 *z = state;

    z->exchange = exchange;
    if (exchange->comm->strategy->sum == NULL) {
        return DP_FAIL(DP_ERR_CONFIG,
                       "comm.strategy zero1 needs a strategy that shares gradients, "
                       "not %s",
                       exchange->comm->strategy->plugin.name);
    }
    return DP_OK;
}

static struct dp_range zero1_mine(const void *state, const struct dp_bucket *bucket)
{
    const struct zero1 *z = state;
    const struct dp_group *group = z->exchange->group;
    float *grad = z->exchange->grad;
    const struct dp_slice all = {grad + bucket->range.begin, bucket->range.count, sizeof(float)};
    const struct dp_slice part = dp_slice_chunk(all, group->size, group->rank);

    if (bucket->exact) {
        return bucket->range;
    }
    return (struct dp_range){(size_t)((float *)part.data - grad), part.count};
}

static dp_status zero1_gather(void *state, struct dp_comm *comm, int b, void *array, size_t width)
{
    const struct zero1 *z = state;
    const struct dp_range *range = &z->exchange->plan->buckets[b].range;

    char *at = (char *)array + range->begin * width;

    return dp_comm_gather(comm, (struct dp_slice){at, range->count, width});
}

static void zero1_close(void *state)
{
    (void)state;
}

#define ZERO1 struct zero1

/* clang-format off */
static const struct dp_option zero1_options[] = {
    DP_STRING(ZERO1, over, "auto", "the strategy that sums and gathers"),
    {0},
};
/* clang-format on */

const struct dp_sharding dp_sharding_zero1 = {
    .plugin = {.name = "zero1",
               .help = "each rank updates its part of the weights",
               .options = zero1_options,
               .state_bytes = sizeof(struct zero1)},
    .keep = DP_KEEP_CHUNK,
    .over = zero1_over,
    .open = zero1_open,
    .mine = zero1_mine,
    .gather = zero1_gather,
    .close = zero1_close,
};
