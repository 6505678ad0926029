#include "collectives/core/shm_barrier.h"

#include "base/trace.h"
#include "collectives/core/backoff.h"

struct dp_shm_flag {
    _Atomic uint64_t arrived; /* barriers this rank has reached */
    char pad[DP_MEM_ALIGN - sizeof(_Atomic uint64_t)];
};

dp_status dp_shm_barrier_open(struct dp_shm_barrier *barrier, struct dp_group *group,
                              const char *strategy)
{
    barrier->group = group;
    barrier->turns = 0;
    barrier->all =
        dp_zalloc((size_t)group->size, sizeof(struct dp_shm_flag *)); /* NOLINT: pointers */
    barrier->mine = dp_group_memory(group, DP_MEM_COMM, sizeof(struct dp_shm_flag));
    if (barrier->all == NULL || barrier->mine == NULL) {
        const bool alone = barrier->mine != NULL; /* the others have their list */
        dp_group_leave(group, DP_ERR_NOMEM);
        dp_shm_barrier_close(barrier);
        return alone ? DP_FAIL(DP_ERR_NOMEM, "%s: flags of %d ranks", strategy, group->size)
                     : DP_GROUP_FAIL(group, DP_ERR_NOMEM, "%s: flags of %d ranks", strategy,
                                     group->size);
    }
    for (int i = 0; i < group->size; i++) {
        barrier->all[i] = i == group->rank ? barrier->mine : dp_group_peer(group, barrier->mine, i);
        if (barrier->all[i] == NULL) {
            dp_shm_barrier_close(barrier);
            return DP_FAIL(DP_ERR_UNAVAILABLE,
                           "strategy %s: no shared memory on this node; use comm.strategy ring or "
                           "mpi, or free /dev/shm",
                           strategy);
        }
    }
    return DP_OK;
}

void dp_shm_barrier_close(struct dp_shm_barrier *barrier)
{
    dp_group_release(barrier->group, barrier->mine);
    dp_free(barrier->all);
    barrier->mine = NULL;
    barrier->all = NULL;
}

dp_status dp_shm_barrier_wait(struct dp_shm_barrier *barrier)
{
    DP_AWAIT_RANKS();
    const uint64_t turn = ++barrier->turns;

    atomic_store_explicit(&barrier->mine->arrived, turn, memory_order_release);
    for (int i = 0; i < barrier->group->size; i++) {
        struct dp_backoff backoff = {.cancel = barrier->group->cancel,
                                     .spin_ns = barrier->group->spin_ns};
        while (atomic_load_explicit(&barrier->all[i]->arrived, memory_order_acquire) < turn) {
            if (!dp_backoff_wait(&backoff)) {
                return DP_ERR_CANCELLED;
            }
        }
    }
    return DP_OK;
}
