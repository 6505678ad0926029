/*
 * modes.h - what differs between ways to train: when weights change within a step, what needs the
 * whole gradient before, and what a step leaves for the next one.
 */
#ifndef DP_RUNTIME_TRAINER_MODES_H
#define DP_RUNTIME_TRAINER_MODES_H

#include "runtime/checkpoint/async_copy.h"
#include "runtime/optim/grad_norm.h"
#include "runtime/optim/param_groups.h"
#include "runtime/trainer/state/replica_check.h"

struct dp_trainer;
struct dp_update_rule;
struct dp_verify_sums;

/* What may be copied beside a step: the snapshot of a checkpoint, weights to be evaluated. */
enum dp_async_copy_use { DP_ASYNC_COPY_SNAPSHOT, DP_ASYNC_COPY_EVALUATION, DP_ASYNC_COPY_COUNT };

/* See deferred_update.h. Zeroed: no updates are deferred. */
struct dp_deferred_updates {
    bool on; /* in steps that begin from now on; the same on all ranks */
    int end; /* deferred buckets below this number still have to be updated */
    struct dp_step_params step_params; /* theirs */
};

struct dp_modes {
    const struct dp_update_rule *rule;      /* chosen when the trainer is made */
    struct dp_grad_norm *grad_norm;         /* owned; NULL: nothing needs the whole gradient */
    struct dp_param_groups *groups;         /* owned; NULL: parameters are treated alike */
    struct dp_replica_check *replica_check; /* owned */
    struct dp_verify_sums *verify_sums;     /* owned; NULL: sums are not verified */
    struct dp_deferred_updates deferred;    /* buckets that the next step's forward waits for */
    /* Borrowed, or NULL; finished before weights change. */
    struct dp_async_copy *async_copies[DP_ASYNC_COPY_COUNT];
    /* NULL, or called before a step waits for the sum of a bucket, and after: to inject faults. */
    void (*on_bucket)(void *context, struct dp_trainer *trainer, int bucket, bool summed);
    void *on_bucket_context;
    bool hash_after; /* in this step weights are hashed after forward, since some were deferred */
    bool unaveraged; /* local steps since the last average: weights differ between ranks */
};

/* Finishes what is copied beside a step. */
static inline void dp_modes_finish_copies(const struct dp_modes *modes)
{
    for (int i = 0; i < DP_ASYNC_COPY_COUNT; i++) {
        dp_async_copy_finish(modes->async_copies[i]);
    }
}

#endif
