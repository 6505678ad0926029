#include "collectives/core/shm_barrier.h"

#include "collectives/core/backoff.h"

struct dp_shm_flag {
    _Atomic uint64_t arrived; /* barriers this rank has reached */
    char pad[DP_MEM_ALIGN - sizeof(_Atomic uint64_t)];
};

dp_status dp_shm_barrier_open(struct dp_shm_barrier *flags, struct dp_group *group,
                              const char *strategy)
{
    flags->group = group;
    flags->turns = 0;
    flags->all =
        dp_zalloc((size_t)group->size, sizeof(struct dp_shm_flag *)); /* NOLINT: pointers */
    flags->mine = dp_group_memory(group, DP_MEM_COMM, sizeof(struct dp_shm_flag));
    if (flags->all == NULL || flags->mine == NULL) {
        dp_group_leave(group, DP_ERR_NOMEM);
        dp_shm_barrier_close(flags);
        return DP_FAIL(DP_ERR_NOMEM, "%s: flags of %d ranks", strategy, group->size);
    }
    for (int i = 0; i < group->size; i++) {
        flags->all[i] = i == group->rank ? flags->mine : dp_group_peer(group, flags->mine, i);
        if (flags->all[i] == NULL) {
            dp_shm_barrier_close(flags);
            return DP_FAIL(DP_ERR_UNAVAILABLE,
                           "strategy %s: no shared memory on this node; use comm.strategy ring or "
                           "mpi, or free /dev/shm",
                           strategy);
        }
    }
    return DP_OK;
}

void dp_shm_barrier_close(struct dp_shm_barrier *flags)
{
    dp_group_release(flags->group, flags->mine);
    dp_free(flags->all);
    flags->mine = NULL;
    flags->all = NULL;
}

dp_status dp_shm_barrier_wait(struct dp_shm_barrier *flags)
{
    const uint64_t turn = ++flags->turns;

    atomic_store_explicit(&flags->mine->arrived, turn, memory_order_release);
    for (int i = 0; i < flags->group->size; i++) {
        struct dp_backoff patience = {.cancel = flags->group->cancel,
                                      .spin_ns = flags->group->spin_ns};
        while (atomic_load_explicit(&flags->all[i]->arrived, memory_order_acquire) < turn) {
            if (!dp_backoff_wait(&patience)) {
                return DP_ERR_CANCELLED;
            }
        }
    }
    return DP_OK;
}
