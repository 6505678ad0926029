#include "collectives/world/liveness.h"

#include <math.h>
#include <unistd.h>

#include "base/system/guard.h"
#include "base/system/launcher.h"
#include "base/system/process.h"
#include "base/system/stacks.h"
#include "collectives/core/backoff.h"
#include "collectives/world/host_link.h"
#include "collectives/world/host_progress.h"
#include "collectives/world/local_peers.h"

/* How long a host has to report what keeps a job from ending before another one does; and how long
 * after an outage that is allowed. */
enum { OTHERS_S = 10, AFTER_OUTAGE_S = 5 };

/* What a rank shows to the ranks of its host. */
struct signs {
    struct dp_local_sign sign;
    struct dp_trace_mark mark;
    struct dp_watchdog_question question;
    atomic_int leaves;         /* not 0: it has nothing left to do but to leave */
    atomic_int speaker;        /* of the host, in what its first rank shows (hang_gather.h) */
    struct dp_one_speaker one; /* the same */
};

struct dp_liveness {
    struct dp_group *group; /* borrowed */
    struct dp_local_peers peers;
    struct dp_host_link link;
    struct signs *signs;            /* from dp_group_memory */
    struct dp_watchdog_rank *ranks; /* owned; [count]: this host's ranks that can be seen */
    int count;
    atomic_int outage_s;
    struct dp_host_progress progress;
    uint64_t moves; /* of the ranks of this host, when they were last counted */
};

/* Gets the process ids of this node's ranks. */
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
    status = dp_group_gather_node(l->group, &mine, sizeof(mine), all);
    for (int i = 0; i < group->size && status == DP_OK; i++) {
        if (group->node_of[i] == group->node_of[group->rank]) {
            struct signs *signs = dp_group_peer(group, l->signs, i);
            dp_local_peers_add(&l->peers, i, all[i], signs != NULL ? &signs->sign : NULL);
            /* Of a rank whose memory this one cannot reach the watchdog sees nothing. */
            if (signs != NULL && all[i].space == mine.space && all[i].id > 0) {
                l->ranks[l->count++] =
                    (struct dp_watchdog_rank){i, all[i].id, &signs->mark, &signs->question};
            }
        }
    }
    dp_free(all);
    if (status == DP_OK) {
        dp_local_peers_watch(&l->peers);
    }
    return status;
}

static dp_status open(struct dp_liveness *l)
{
    const int size = l->group->size, rank = l->group->rank;

    l->signs = dp_group_memory(l->group, DP_MEM_COMM, sizeof(*l->signs));
    l->ranks = dp_zalloc((size_t)size, sizeof(*l->ranks));
    if (l->signs == NULL) {
        return DP_GROUP_FAIL(l->group, DP_ERR_NOMEM, "signs of %d ranks", size);
    }
    if (l->ranks == NULL) {
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
    dp_stacks_init();
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

struct dp_trace_mark *dp_liveness_mark(const struct dp_liveness *l)
{
    return &l->signs->mark;
}

/* What the first rank of this host shows; NULL: this rank cannot reach it. */
static struct signs *first_signs(const struct dp_liveness *l)
{
    const struct dp_group *group = l->group;

    return dp_group_peer(group, l->signs, dp_group_leader(group, group->node_of[group->rank]));
}

struct dp_one_speaker *dp_liveness_speaker(const struct dp_liveness *l)
{
    struct signs *signs = first_signs(l);

    return signs != NULL ? &signs->one : NULL;
}

dp_status dp_liveness_gather(struct dp_liveness *l, const struct dp_host_names *names,
                             struct dp_hang_gather **out)
{
    struct signs *signs = first_signs(l);

    return dp_hang_gather_create(l->group, &l->link, names, signs != NULL ? &signs->speaker : NULL,
                                 out);
}

dp_status dp_liveness_watchdog(const struct dp_liveness *l, const char *host,
                               struct dp_watchdog **out)
{
    const struct dp_watchdog_config config = {.ranks = l->ranks,
                                              .count = l->count,
                                              .self = l->group->rank,
                                              .host = host,
                                              .others = l->count < l->group->size,
                                              .look = dp_process_look};

    return dp_watchdog_create(&config, out);
}

static bool all_leave(const struct dp_liveness *l)
{
    for (int i = 0; i < l->count; i++) {
        const struct signs *signs = dp_group_peer(l->group, l->signs, l->ranks[i].rank);
        if (signs != NULL && atomic_load(&signs->leaves) == 0 &&
            atomic_load(&signs->sign.left) == 0) {
            return false;
        }
    }
    return true;
}

/* MPI_Abort can do nothing within MPI_Finalize: the launcher ends the others. */
static void end_process(int code)
{
    dp_launcher_tell(code);
    dp_guard_note(false);
    _exit(code);
}

static void wait_for_host(const struct dp_liveness *l)
{
    struct dp_backoff backoff = {.cancel = l->group->cancel};
    DP_SPAN(DP_PHASE_WAIT, -1);

    atomic_store(&l->signs->leaves, 1);
    while (!all_leave(l) && dp_backoff_wait(&backoff)) {
    }
}

/* A rank of another host may still write its reports, which can take as long as a checkpoint. */
static bool wait_for_others(const struct dp_liveness *l)
{
    DP_SPAN(DP_PHASE_CHECKPOINT, 0);
    DP_SPAN(DP_PHASE_WAIT, -1);

    return dp_group_barrier(l->group) == DP_OK;
}

/* Whether all have come: not where waits have ended. */
static bool wait_for_all(const struct dp_liveness *l)
{
    wait_for_host(l);
    return atomic_load(l->group->cancel) == 0 && (l->group->nodes == 1 || wait_for_others(l));
}

struct dp_last_watch *dp_liveness_meet(const struct dp_liveness *l, const char *host,
                                       double timeout_s)
{
    struct dp_last_watch_config config = {
        .host = host, .timeout_s = timeout_s, .look = dp_process_look, .end = end_process};

    if (l == NULL || !wait_for_all(l) || l->count < l->group->local_size) {
        return NULL;
    }
    config.ranks = l->ranks;
    config.count = l->count;
    config.self = l->group->rank;
    if (l->group->nodes > 1) { /* one host after the other */
        config.others_s = fmax(OTHERS_S, atomic_load(&l->outage_s) + AFTER_OUTAGE_S) +
                          OTHERS_S * l->group->node_of[l->group->rank];
    }
    return dp_last_watch_begin(&config);
}

/* By the first rank of each host, while no other one of it has taken the connections for rows. */
static void share_progress(struct dp_liveness *l)
{
    const int speaker = atomic_load(&l->signs->speaker);
    uint64_t moves = 0;

    if ((l->link.theirs < 0 && l->link.mine < 0) || l->link.talks ||
        (speaker != 0 && speaker != l->group->rank + 1)) {
        return;
    }
    for (int i = 0; i < l->count; i++) {
        const struct dp_trace_mark *mark = l->ranks[i].mark;
        moves += atomic_load_explicit(&mark->changes, memory_order_relaxed) +
                 atomic_load_explicit(&mark->beats, memory_order_relaxed);
    }
    if (dp_host_progress_share(&l->progress, &l->link, l->group->nodes, moves != l->moves,
                               dp_now_ns())) {
        atomic_fetch_add(&l->signs->question.heard, 1);
    }
    l->moves = moves;
}

struct dp_loss dp_liveness_lost(struct dp_liveness *l)
{
    const int peer = dp_local_peers_lost(&l->peers);

    if (peer >= 0) {
        return (struct dp_loss){.rank = peer, .reports = dp_local_peers_reports(&l->peers)};
    }
    share_progress(l);
    if (!dp_host_link_lost(&l->link, atomic_load(&l->outage_s))) {
        return (struct dp_loss){.rank = -1};
    }
    return (struct dp_loss){.rank = l->link.watched,
                            .reports = !l->link.told,
                            .host = l->link.host,
                            .silent_s = l->link.silent_s};
}

void dp_liveness_farewell(struct dp_liveness *l)
{
    if (l != NULL) {
        atomic_store(&l->signs->sign.left, 1);
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
    dp_free(l->ranks);
    dp_group_release(l->group, l->signs);
    dp_free(l);
}
