/*
 * strategy_shm.c - sums in shared memory: the gradients are in a window that all ranks of the node
 * can reach, so nothing is copied into messages.
 *
 *      rank 0   [ A0 | B0 ]        rank r reads chunk r of every rank, adds in tree order, and
 *      rank 1   [ A1 | B1 ]        writes the sum into chunk r of every rank:
 *
 *      rank 0: A0 + A1 -> A of rank 0 and of rank 1;  rank 1: B0 + B1 -> B of both
 *
 * Only rank r reads and writes chunk r. So one barrier before (all gradients are there) and one
 * after (all sums are there) are enough. Each rank moves n (read) + n (write) elements.
 */
#include <math.h>

#include "collectives/core/shm_barrier.h"
#include "collectives/strategies/strategy.h"

struct shm {
    struct dp_group *group; /* borrowed */
    struct dp_shm_barrier flags;
    float **ys; /* [size]; owned: where sums are written */
};

static bool shm_supports(const struct dp_group *group, const char **why_not)
{
    if (!dp_group_one_node(group)) {
        *why_not = "the ranks do not live on one node";
        return false;
    }
    if (group->unshared) {
        *why_not = dp_group_why_unshared(group);
        return false;
    }
    return true;
}

static void shm_close(void *state)
{
    struct shm *shm = state;

    dp_shm_barrier_close(&shm->flags);
    dp_free(shm->ys);
}

static dp_status shm_open(void *state, struct dp_group *group, size_t max_count)
{
    struct shm *shm = state;
    dp_status status;

    (void)max_count;
    shm->group = group;
    shm->ys = dp_zalloc((size_t)group->size, sizeof(*shm->ys));
    if (shm->ys == NULL) {
        dp_group_leave(group, DP_ERR_NOMEM);
        return DP_FAIL(DP_ERR_NOMEM, "shm: places of %d ranks", group->size);
    }
    status = dp_shm_barrier_open(&shm->flags, group, "shm");
    if (status != DP_OK) {
        dp_free(shm->ys);
    }
    return status;
}

static dp_status shm_barrier(void *state)
{
    return dp_shm_barrier_wait(&((struct shm *)state)->flags);
}

static dp_status shm_sum(void *state, struct dp_slice data, enum dp_keep keep)
{
    struct shm *shm = state;
    struct dp_group *group = shm->group;
    const struct dp_slice part = dp_slice_chunk(data, group->size, group->rank);

    if (group->size == 1 || data.count == 0) {
        return DP_OK;
    }
    for (int i = 0; i < group->size; i++) {
        shm->ys[i] = i == group->rank ? part.data : dp_group_peer(group, part.data, i);
        if (shm->ys[i] == NULL && part.count > 0) {
            return DP_FAIL(DP_ERR_INTERNAL, "shm: the data is not in shared memory");
        }
    }
    DP_TRY(shm_barrier(shm));
    if (part.count > 0) {
        const bool all = keep == DP_KEEP_ALL;
        DP_TRY(group->stream->ops->sum_tree(group->stream, all ? shm->ys : &shm->ys[group->rank],
                                            all ? group->size : 1, (const float *const *)shm->ys,
                                            group->size, part.count));
        group->wire_bytes += (uint64_t)(group->size - 1) * dp_slice_bytes(part);
    }
    return shm_barrier(shm);
}

/* Every rank writes its own chunk into every rank's memory, between two barriers. */
static dp_status shm_gather(void *state, struct dp_slice data)
{
    struct shm *shm = state;
    struct dp_group *group = shm->group;
    const struct dp_slice part = dp_slice_chunk(data, group->size, group->rank);

    if (group->size == 1 || data.count == 0) {
        return DP_OK;
    }
    DP_TRY(shm_barrier(shm));
    for (int i = 0; i < group->size && part.count > 0; i++) {
        void *theirs = i == group->rank ? NULL : dp_group_peer(group, part.data, i);
        if (theirs != NULL) {
            DP_TRY(
                group->stream->ops->copy(group->stream, theirs, part.data, dp_slice_bytes(part)));
        } else if (i != group->rank) {
            return DP_FAIL(DP_ERR_INTERNAL, "shm: the data is not in shared memory");
        }
    }
    group->wire_bytes += (uint64_t)(group->size - 1) * dp_slice_bytes(part);
    return shm_barrier(shm);
}

/* Of n bytes, (p-1)/p are read from peers and written back to them. Writing this rank's own part
 * takes no extra time. Unknown where no peer's memory was measured. */
static double shm_cost(const void *state, const struct dp_cost *cost, const struct dp_group *group,
                       size_t bytes)
{
    const double own = (double)bytes / group->size;

    (void)state;
    if (group->size == 1) {
        return 0.0;
    }
    if (cost->peer.count == 0) {
        return (double)NAN;
    }
    return 2.0 * cost->flags_s + dp_curve_at(&cost->peer, (double)bytes - own);
}

const struct dp_strategy dp_strategy_shm = {
    .plugin = {.name = "shm",
               .help = "sum in shared memory, in tree order; ranks of one node only",
               .state_bytes = sizeof(struct shm)},
    .ordered = true,
    .shared = true,
    .supports = shm_supports,
    .open = shm_open,
    .sum = shm_sum,
    .gather = shm_gather,
    .barrier = shm_barrier,
    .cost = shm_cost,
    .close = shm_close,
};
