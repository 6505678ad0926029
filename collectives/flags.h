/*
 * flags.h - a barrier between ranks of one node: a counter of each rank in shared memory. A rank
 * raises its own, and waits until all others have been raised as often.
 */
#ifndef DP_COLLECTIVES_FLAGS_H
#define DP_COLLECTIVES_FLAGS_H

#include "collectives/group.h"

struct dp_flag;

struct dp_flags {
    struct dp_group *group; /* borrowed */
    struct dp_flag *mine;   /* from dp_group_memory */
    struct dp_flag **all;   /* [size]; owned array: everybody's */
    uint64_t turns;
};

/* Collective. `strategy` is whose they are, for people. On error nothing is left behind.
 * Errors: DP_ERR_NOMEM; DP_ERR_UNAVAILABLE where ranks cannot share memory. */
DP_CHECKED dp_status dp_flags_open(struct dp_flags *flags, struct dp_group *group,
                                   const char *strategy);
void dp_flags_close(struct dp_flags *flags);

/* Returns when every rank has called it. Errors: DP_ERR_CANCELLED. */
DP_CHECKED dp_status dp_flags_barrier(struct dp_flags *flags);

#endif
