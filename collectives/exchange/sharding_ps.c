/*
 * sharding_ps.c - a sharded parameter server: every bucket is cut evenly over all servers, which
 * sum their part, update it, and send new weights to all ranks.
 *
 * Servers are separate ranks, the last ones (comm.servers), or, without any, all ranks. Buckets of
 * fused tensors are cut, instead of tensors being assigned, so servers carry the same load for any
 * model. Gradients are added in tree order, so weights get the bits of `replicated` over an
 * order-keeping strategy. Servers get the other servers' weights too, so that every rank can be
 * compared with all others.
 *
 * Source: Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014;
 * balanced fusion buffers: Thangakrishnan et al., "Herring: rethinking the parameter server at
 * scale for the cloud", SC 2020, section IV-B.
 */
#include "collectives/exchange/exchange_own.h"
#include "collectives/strategies/direct_reduce.h"

struct ps {
    const char *over;
    struct dp_exchange *exchange; /* borrowed */
    struct dp_direct_reduce direct_reduce;
};

static const char *ps_over(const void *state)
{
    return ((const struct ps *)state)->over;
}

static dp_status ps_open(void *state, struct dp_exchange *exchange)
{
    struct ps *ps = state;
    const int size = exchange->group->size, servers = exchange->servers;

    if (exchange->compression != NULL) {
        return DP_FAIL(DP_ERR_CONFIG, "comm.compressor: cannot go with comm.strategy ps, whose "
                                      "servers get gradients as they are");
    }
    ps->exchange = exchange;
    ps->direct_reduce = (struct dp_direct_reduce){.group = exchange->group,
                                                  .contributors = size - servers,
                                                  .first = servers > 0 ? size - servers : 0,
                                                  .count = servers > 0 ? servers : size};
    return dp_direct_reduce_open(&ps->direct_reduce, exchange->plan->largest, 0);
}

static struct dp_slice bucket_of(const struct dp_bucket *bucket, void *array, size_t width)
{
    return (struct dp_slice){(char *)array + bucket->range.begin * width, bucket->range.count,
                             width};
}

static struct dp_range ps_mine(const void *state, const struct dp_bucket *bucket)
{
    const struct ps *ps = state;
    float *grad = ps->exchange->grad;
    const struct dp_slice mine =
        dp_direct_reduce_mine(&ps->direct_reduce, bucket_of(bucket, grad, sizeof(float)));

    if (bucket->exact) {
        return bucket->range;
    }
    return (struct dp_range){(size_t)((float *)mine.data - grad), mine.count};
}

static dp_status ps_sum(void *state, struct dp_slice gradient)
{
    const struct ps *ps = state;

    return dp_direct_reduce_run(&ps->direct_reduce, gradient, DP_DIRECT_REDUCE_REDUCE);
}

static dp_status ps_gather(void *state, struct dp_comm *comm, int b, void *array, size_t width)
{
    const struct ps *ps = state;

    (void)comm;
    return dp_direct_reduce_run(&ps->direct_reduce,
                                bucket_of(&ps->exchange->plan->buckets[b], array, width),
                                DP_DIRECT_REDUCE_SHARE);
}

static void ps_close(void *state)
{
    dp_direct_reduce_close(&((struct ps *)state)->direct_reduce);
}

#define PS struct ps

/* clang-format off */
static const struct dp_option ps_options[] = {
    DP_STRING(PS, over, "auto", "the strategy that sums the tail"),
    {0},
};
/* clang-format on */

const struct dp_sharding dp_sharding_ps = {
    .plugin = {.name = "ps",
               .help = "servers (comm.servers; 0: all ranks) sum and update",
               .options = ps_options,
               .state_bytes = sizeof(struct ps)},
    .keep = DP_KEEP_CHUNK,
    .over = ps_over,
    .open = ps_open,
    .mine = ps_mine,
    .sum = ps_sum,
    .gather = ps_gather,
    .close = ps_close,
};
