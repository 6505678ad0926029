#include "runtime/run/roles/rank_roles.h"

#include "base/log.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/config/config_load.h"

static dp_status check(const struct dp_run_job *job, const struct dp_roles *roles)
{
    const int size = job->world->all->size;
    char where[256];

    if (!dp_roles_help(roles)) {
        return DP_OK; /* of servers the trainer makes sure that they leave others */
    }
    (void)dp_config_where(job->config,
                          roles->count[DP_ROLE_READ] > 0 ? "data.input_ranks" : "train.eval_rank",
                          where, sizeof(where));
    if (roles->count[DP_ROLE_TRAIN] < 1) {
        return DP_FAIL(DP_ERR_CONFIG, "%s: of %d rank%s none is left to train: start more of them",
                       where, size, dp_plural(size));
    }
    if (!job->device->host_memory) { /* messages are packed by the host */
        return DP_FAIL(DP_ERR_CONFIG, "%s: needs device cpu, not %s", where,
                       job->device->plugin.name);
    }
    return DP_OK;
}

dp_status dp_run_divide(struct dp_run_job *job)
{
    const struct dp_config *c = job->config;
    struct dp_world *world = job->world;
    struct dp_roles roles = {.count = {[DP_ROLE_SERVE] = c->comm.servers,
                                       [DP_ROLE_READ] = c->data.input_ranks,
                                       [DP_ROLE_EVALUATE] = c->train.eval_rank}};
    struct dp_log_capture capture;

    for (int i = DP_ROLE_TRAIN + 1, size = world->all->size; i < DP_ROLE_COUNT; i++) {
        roles.count[DP_ROLE_TRAIN] = size -= roles.count[i];
    }
    dp_log_capture_begin(&capture, DP_LOG_DEBUG);
    DP_TRY(dp_consistency_agree(world->all, check(job, &roles), &capture));
    DP_TRY(dp_world_divide(world, &roles));
    if (!dp_roles_help(&roles)) {
        return DP_OK;
    }
    DP_TRY(dp_world_group(world, &job->beside));
    return dp_world_group(world, &job->control_group);
}

static void poke(void *trainer)
{
    dp_exchange_poke(dp_trainer_exchange(trainer));
}

static dp_status move_messages(void *job, bool *more)
{
    struct dp_run_job *j = job;
    bool more_control = false;

    DP_TRY(dp_p2p_poll(&j->p2p, more));
    DP_TRY(dp_p2p_poll(&j->control, &more_control));
    *more = *more || more_control;
    return DP_OK;
}

void dp_run_connect(struct dp_run_job *job)
{
    if (job->beside == NULL) {
        return;
    }
    if (!dp_run_shares(job)) {
        dp_p2p_open(&job->p2p, job->beside, NULL, NULL);
        dp_p2p_open(&job->control, job->control_group, NULL, NULL);
        return;
    }
    dp_p2p_open(&job->p2p, job->beside, poke, job->trainer);
    dp_p2p_open(&job->control, job->control_group, poke, job->trainer);
    dp_exchange_set_errand(dp_trainer_exchange(job->trainer),
                           (struct dp_errand){.run = move_messages, .arg = job});
}

void dp_run_disconnect(struct dp_run_job *job)
{
    if (job->p2p.group != NULL && job->trainer != NULL) {
        dp_exchange_set_errand(dp_trainer_exchange(job->trainer), (struct dp_errand){.run = NULL});
    }
    dp_p2p_close(&job->p2p);
    dp_p2p_close(&job->control);
}

void dp_run_unite(struct dp_run_job *job)
{
    dp_group_destroy(job->control_group);
    dp_group_destroy(job->beside);
    dp_world_unite(job->world);
}
