/*
 * strategy_ring.c - ring allreduce: a reduce-scatter, then an allgather, around a ring.
 *
 * Each rank sends 2 (p-1)/p of the buffer in 2 (p-1) messages: the least possible volume, at a
 * latency that grows with p. Best for large buckets.
 *
 * Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
 * workstations", J. Parallel Distrib. Comput. 69 (2009), section 4.
 */
#include "collectives/strategy.h"

struct ring {
    struct dp_group *group; /* borrowed */
    float *incoming;        /* owned; the largest chunk */
};

static int wrap(int rank, int size)
{
    return (rank % size + size) % size;
}

static bool ring_supports(const struct dp_group *group, const char **why_not)
{
    (void)group;
    (void)why_not;
    return true;
}

static dp_status ring_open(void *state, struct dp_group *group, size_t max_count)
{
    struct ring *ring = state;
    const size_t chunk = max_count / (size_t)group->size + 2 * (size_t)DP_BLOCK;

    ring->group = group;
    ring->incoming = dp_mem_arena(DP_MEM_COMM, chunk * sizeof(float));
    return ring->incoming != NULL ? DP_OK
                                  : DP_FAIL(DP_ERR_NOMEM, "ring: a chunk of %zu elements", chunk);
}

static dp_status ring_sum(void *state, struct dp_slice data, enum dp_keep keep)
{
    const struct ring *ring = state;
    const int size = ring->group->size, rank = ring->group->rank;
    const int next = wrap(rank + 1, size), prev = wrap(rank - 1, size);

    /* Reduce-scatter: afterwards this rank holds the full sum of its own chunk. */
    for (int step = 0; step < size - 1; step++) {
        const struct dp_slice out = dp_slice_chunk(data, size, wrap(rank - step - 1, size));
        const struct dp_slice sum = dp_slice_chunk(data, size, wrap(rank - step - 2, size));
        const struct dp_slice in = {ring->incoming, sum.count, sum.width};
        DP_TRY(dp_group_exchange(ring->group, next, out, prev, in));
        DP_TRY(dp_group_add(ring->group, sum, in));
    }
    if (keep == DP_KEEP_CHUNK) {
        return DP_OK;
    }
    /* Allgather: pass the finished chunks on. Each was summed once, so all ranks agree bitwise. */
    for (int step = 0; step < size - 1; step++) {
        const struct dp_slice out = dp_slice_chunk(data, size, wrap(rank - step, size));
        const struct dp_slice in = dp_slice_chunk(data, size, wrap(rank - step - 1, size));
        DP_TRY(dp_group_exchange(ring->group, next, out, prev, in));
    }
    return DP_OK;
}

static double ring_cost(const void *state, const struct dp_cost *cost, const struct dp_group *group,
                        size_t bytes)
{
    (void)state;
    return dp_cost_ring(cost, group, (double)bytes);
}

static void ring_close(void *state)
{
    struct ring *ring = state;

    dp_free(ring->incoming);
}

const struct dp_strategy dp_strategy_ring = {
    .plugin = {.name = "ring",
               .help = "reduce-scatter and allgather around a ring; least volume, for networks",
               .state_bytes = sizeof(struct ring)},
    .supports = ring_supports,
    .open = ring_open,
    .sum = ring_sum,
    .cost = ring_cost,
    .close = ring_close,
};
