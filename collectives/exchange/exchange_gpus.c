/*
 * exchange_gpus.c - the strategy that sums buckets on GPUs, in an exchange. The tail, and small
 * sums of numbers on the host, always go through the host.
 */
#include <stdio.h>
#include <string.h>

#include "collectives/core/backoff.h"
#include "collectives/exchange/exchange_own.h"
#include "collectives/gpu/gpu_peers.h"

static const struct dp_strategy *find(const char *text)
{
    return (const struct dp_strategy *)dp_plugin_find(&dp_strategies, text, strcspn(text, ":"));
}

/* Whether the strategy is supported on all ranks. dp_comm_create() reports rank 0's reason; reasons
 * of other ranks are reported here, by the ranks that have none. */
static dp_status check_all(struct dp_exchange *e, const struct dp_strategy *strategy)
{
    const char *mine = NULL;
    const bool fine = strategy->supports(e->group, &mine);
    char why_not[DP_GPU_PEERS_WHY];

    DP_TRY(dp_gpu_peers_object(e->group, fine ? NULL : mine, why_not));
    return fine && why_not[0] != '\0'
               ? DP_FAIL(DP_ERR_UNAVAILABLE, "comm.strategy %s cannot run here: %s",
                         strategy->plugin.name, why_not)
               : DP_OK;
}

dp_status dp_exchange_open_gpus(struct dp_exchange *e, const struct dp_exchange_config *config,
                                size_t largest, const char **strategy)
{
    const struct dp_strategy *found = find(*strategy);
    const char *reason, *named = *strategy;
    char problem[256];

    if (found == NULL || !found->on_gpus) {
        return DP_OK;
    }
    if (e->sharding->sum != NULL) {
        return DP_FAIL(DP_ERR_CONFIG, "comm.strategy %s sums on the host: it cannot go over %s",
                       e->sharding->plugin.name, named);
    }
    if (dp_exchange_compresses(config)) {
        return DP_FAIL(DP_ERR_CONFIG,
                       "codes of comm.compressor %s cross over the host: it cannot go with "
                       "comm.strategy %s; staged can",
                       config->compressor, named);
    }
    DP_TRY(check_all(e, found));
    DP_TRY(dp_comm_create(e->group, named, largest, 0, &e->gpus));
    if (config->ordered && dp_comm_check_order(e->gpus->strategy, e->gpus->state, e->group, problem,
                                               sizeof(problem)) != DP_OK) {
        return DP_FAIL(DP_ERR_CONFIG, "comm.strategy: %s", problem);
    }
    *strategy = dp_strategy_choose(e->group, &reason);
    return DP_OK;
}

dp_status dp_exchange_wait_device(struct dp_exchange *e, int b)
{
    struct dp_backoff backoff = {.cancel = e->group->cancel, .spin_ns = e->group->spin_ns};
    const struct dp_comm *gpus = e->gpus;

    for (bool done = false; !done;) {
        DP_TRY(dp_staging_done(e->staging, b, &done));
        DP_TRY(gpus != NULL && gpus->strategy->poll != NULL ? gpus->strategy->poll(gpus->state)
                                                            : DP_OK);
        if (!done && !dp_backoff_wait(&backoff)) {
            return DP_ERR_CANCELLED;
        }
    }
    return DP_OK;
}
