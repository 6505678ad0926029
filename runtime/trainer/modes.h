/*
 * modes.h - what differs between ways to train: when weights change within a step, what looks at
 * the whole gradient before, and what a step leaves for the next one.
 */
#ifndef DP_RUNTIME_TRAINER_MODES_H
#define DP_RUNTIME_TRAINER_MODES_H

#include "runtime/checkpoint/async_copy.h"
#include "runtime/optim/grad_norm.h"
#include "runtime/trainer/replica_check.h"

struct dp_update_rule;

/* See deferred_update.h. Zeroed: no updates are put off. */
struct dp_deferred_updates {
    bool on; /* of steps that begin from now on; the same on all ranks */
    int end; /* of the deferred buckets below this number updates are pending */
    struct dp_step_params step_params; /* theirs */
};

struct dp_modes {
    const struct dp_update_rule *rule;      /* chosen when the trainer is made */
    struct dp_grad_norm *grad_norm;         /* owned; NULL: nothing sees the whole gradient */
    struct dp_replica_check *replica_check; /* owned */
    struct dp_deferred_updates deferred;    /* buckets that the next step's forward waits for */
    struct dp_async_copy *async_copy;       /* borrowed, or NULL; finished before weights change */
    bool hash_after; /* in this step weights are hashed after forward: some were deferred */
    bool unaveraged; /* local steps since the last average: weights differ between ranks */
};

#endif
