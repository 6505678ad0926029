/*
 * modes.h - what differs between ways to train: when weights change within a step, what needs the
 * whole gradient before, and what a step leaves for the next one.
 */
#ifndef DP_RUNTIME_TRAINER_MODES_H
#define DP_RUNTIME_TRAINER_MODES_H

#include "runtime/checkpoint/async_copy.h"
#include "runtime/optim/grad_norm.h"
#include "runtime/trainer/state/replica_check.h"

struct dp_trainer;
struct dp_update_rule;

/* See deferred_update.h. Zeroed: no updates are deferred. */
struct dp_deferred_updates {
    bool on; /* in steps that begin from now on; the same on all ranks */
    int end; /* deferred buckets below this number still have to be updated */
    struct dp_step_params step_params; /* theirs */
};

struct dp_modes {
    const struct dp_update_rule *rule;      /* chosen when the trainer is made */
    struct dp_grad_norm *grad_norm;         /* owned; NULL: nothing needs the whole gradient */
    struct dp_replica_check *replica_check; /* owned */
    struct dp_deferred_updates deferred;    /* buckets that the next step's forward waits for */
    struct dp_async_copy *async_copy;       /* borrowed, or NULL; finished before weights change */
    /* NULL, or called before a step waits for the sum of a bucket: to inject faults. */
    void (*before_wait)(void *context, struct dp_trainer *trainer, int bucket);
    void *before_wait_context;
    bool hash_after; /* in this step weights are hashed after forward, since some were deferred */
    bool unaveraged; /* local steps since the last average: weights differ between ranks */
};

#endif
