/*
 * shm_barrier.h - a barrier between ranks of one node: a counter of each rank in shared memory. A
 * rank raises its own and waits until all others have the same value.
 */
#ifndef DP_COLLECTIVES_CORE_SHM_BARRIER_H
#define DP_COLLECTIVES_CORE_SHM_BARRIER_H

#include "collectives/core/group.h"

struct dp_shm_flag;

struct dp_shm_barrier {
    struct dp_group *group;   /* borrowed */
    struct dp_shm_flag *mine; /* from dp_group_memory */
    struct dp_shm_flag **all; /* [size]; owned array: the flags of all ranks */
    uint64_t turns;
};

/* Collective. `strategy` is named in error messages. On error nothing is left allocated. Errors:
 * DP_ERR_NOMEM; DP_ERR_UNAVAILABLE where ranks cannot share memory. */
DP_CHECKED dp_status dp_shm_barrier_open(struct dp_shm_barrier *barrier, struct dp_group *group,
                                         const char *strategy);
void dp_shm_barrier_close(struct dp_shm_barrier *barrier);

/* Returns when every rank has called it. Errors: DP_ERR_CANCELLED. */
DP_CHECKED dp_status dp_shm_barrier_wait(struct dp_shm_barrier *barrier);

#endif
