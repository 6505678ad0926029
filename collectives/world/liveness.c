#include "collectives/world/liveness.h"

#include "base/process.h"
#include "collectives/world/host_link.h"
#include "collectives/world/local_peers.h"

struct dp_liveness {
    struct dp_group *group; /* borrowed */
    struct dp_local_peers peers;
    struct dp_host_link link;
    atomic_int *left; /* from dp_group_memory: this rank ends by itself */
    atomic_int outage_s;
};

/* Learns of the processes of this node's ranks. */
static dp_status watch_peers(struct dp_liveness *l)
{
    const struct dp_group *group = l->group;
    const struct dp_process mine = dp_process_self();
    struct dp_process *all = dp_zalloc((size_t)group->size, sizeof(*all));
    dp_status status;

    if (all == NULL) {
        dp_group_leave(l->group, DP_ERR_NOMEM);
        return DP_FAIL(DP_ERR_NOMEM, "processes of %d ranks", group->size);
    }
    status = dp_group_allgather(l->group, &mine, sizeof(mine), all);
    for (int i = 0; i < group->size && status == DP_OK; i++) {
        if (group->node_of[i] == group->node_of[group->rank]) {
            dp_local_peers_watch(&l->peers, i, all[i], dp_group_peer(group, l->left, i));
        }
    }
    dp_free(all);
    return status;
}

static dp_status open(struct dp_liveness *l)
{
    const int size = l->group->size, rank = l->group->rank;

    l->left = dp_group_memory(l->group, DP_MEM_COMM, sizeof(*l->left));
    if (l->left == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "processes of %d ranks", size);
    }
    DP_TRY(dp_local_peers_init(&l->peers, size, rank));
    DP_TRY(watch_peers(l));
    return dp_host_link_open(l->group, &l->link);
}

dp_status dp_liveness_create(struct dp_group *group, struct dp_liveness **out)
{
    struct dp_liveness *l = dp_zalloc(1, sizeof(*l));
    dp_status status;

    if (l == NULL) {
        dp_group_leave(group, DP_ERR_NOMEM);
        return DP_FAIL(DP_ERR_NOMEM, "liveness");
    }
    l->group = group;
    atomic_init(&l->outage_s, DP_OUTAGE_S);
    dp_host_link_init(&l->link);
    status = open(l);
    if (status != DP_OK) {
        dp_group_leave(group, status);
        dp_liveness_destroy(l);
        return status;
    }
    *out = l;
    return DP_OK;
}

void dp_liveness_allow_outage(struct dp_liveness *l, int seconds)
{
    atomic_store(&l->outage_s, seconds);
}

struct dp_loss dp_liveness_lost(struct dp_liveness *l)
{
    const int peer = dp_local_peers_lost(&l->peers);

    if (peer >= 0) {
        return (struct dp_loss){.rank = peer, .reports = dp_local_peers_reports(&l->peers)};
    }
    if (!dp_host_link_lost(&l->link, atomic_load(&l->outage_s))) {
        return (struct dp_loss){.rank = -1};
    }
    return (struct dp_loss){.rank = l->link.watched,
                            .reports = true,
                            .host = l->link.host,
                            .silent_s = l->link.silent_s};
}

void dp_liveness_farewell(struct dp_liveness *l)
{
    if (l != NULL) {
        atomic_store(l->left, 1);
        dp_host_link_leave(&l->link);
    }
}

void dp_liveness_destroy(struct dp_liveness *l)
{
    if (l == NULL) {
        return;
    }
    dp_host_link_close(&l->link);
    dp_local_peers_fini(&l->peers);
    dp_group_release(l->group, l->left);
    dp_free(l);
}
