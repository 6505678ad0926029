/*
 * rank_roles.h - what each rank of a run does, as the configuration asks, and the messages between
 * ranks that train and ranks that help (collectives/world/roles.h).
 */
#ifndef DP_RUNTIME_RUN_ROLES_RANK_ROLES_H
#define DP_RUNTIME_RUN_ROLES_RANK_ROLES_H

#include "runtime/run/job.h"

/* Divides the world, and makes the group for those messages. Collective. Errors: DP_ERR_CONFIG (no
 * rank is left to train, or the device cannot be helped), those of dp_world_divide(). */
DP_CHECKED dp_status dp_run_divide(struct dp_run_job *job);

/* Begins these messages, job->p2p, where there are helpers; of ranks that train after job->trainer
 * exists. Local. The second ends them, before the trainer is destroyed; no message may be under
 * way. */
void dp_run_connect(struct dp_run_job *job);
void dp_run_disconnect(struct dp_run_job *job);

/* Takes the roles back. Collective. */
void dp_run_unite(struct dp_run_job *job);

/* Whether this rank shares gradients and weights: it has a trainer. */
static inline bool dp_run_shares(const struct dp_run_job *job)
{
    return job->world->role == DP_ROLE_TRAIN || job->world->role == DP_ROLE_SERVE;
}

#endif
