/*
 * cost_probe.c - measures the curves of cost.h.
 *
 * All ranks do the same thing at the same time, as in a collective, so that what they compete for
 * (cores, caches, memory, the wire) is in the numbers.
 */
#include "collectives/strategies/cost.h"

#include <string.h>

#include "base/statistics.h"
#include "base/trace.h"
#include "collectives/core/backoff.h"
#include "collectives/strategies/segmented.h"

enum {
    WARM_TURNS = 1,
    FEWEST_TURNS = 3,
    MOST_TURNS = 64,
    FIRST_BYTES = 64,
    STEP = 4,               /* ratio of the sizes of consecutive points */
    POINT_SHARE = 32,       /* a point gets many turns if they take at most this part of a curve's
                             * time */
    LEAST_BYTES = 1 << 20,  /* up to here a curve may use twice its time */
    LEAST_SHARED = 1 << 16, /* shorter pieces of a peer's memory do not predict longer ones */
    ROW_BYTES = 2 << 20,    /* of a row of messages on a wire: many times its burst */
    ROW_MOST = 8            /* messages of a row */
};

/* State of the measurement of one point. */
struct probe {
    struct dp_group *group;
    char *memory;                /* owned; from dp_group_memory; holds: */
    float *x, *y;                /* [max_bytes] */
    atomic_uint_least64_t *flag; /* of this rank, for barriers */
    uint64_t barriers;
    double *mine, *all; /* [MOST_TURNS], [size * MOST_TURNS]: seconds of turns */
    int to, from;       /* of an exchange; -1: none */
    struct dp_segmented segmented;
    bool wire;       /* exchanges go over a wire */
    double budget_s; /* for the curve being measured */
};

typedef dp_status probe_turn(struct probe *p, size_t bytes);

static struct dp_slice bytes_of(void *data, size_t bytes)
{
    return (struct dp_slice){data, bytes, 1};
}

/* Operations per turn. An idle wire may let some 100 KB pass above its rate (token buckets of
 * clouds and of tc, queues of network cards), and a collective's messages do not come alone. So
 * messages on a wire are measured in a row. */
static int row_of(const struct probe *p, size_t bytes)
{
    const size_t row = ROW_BYTES / bytes;

    return !p->wire || row < 1 ? 1 : row < ROW_MOST ? (int)row : ROW_MOST;
}

static dp_status turn_exchange(struct probe *p, size_t bytes)
{
    if (p->to < 0 && p->from < 0) {
        return DP_OK;
    }
    for (int i = 0; i < row_of(p, bytes); i++) {
        DP_TRY(dp_group_exchange(p->group, p->to, bytes_of(p->x, bytes), p->from,
                                 bytes_of(p->y, bytes)));
    }
    return DP_OK;
}

static dp_status turn_add(struct probe *p, size_t bytes)
{
    const size_t count = bytes / sizeof(float);

    return p->to < 0 ? DP_OK
                     : dp_segmented_add(&p->segmented, p->to,
                                        (struct dp_slice){p->x, count, sizeof(float)}, p->from,
                                        (struct dp_slice){p->y, count, sizeof(float)});
}

static dp_status turn_whole(struct probe *p, size_t bytes)
{
    struct dp_transfer transfer;

    if (p->to < 0) {
        return DP_OK;
    }
    DP_TRY(dp_group_start(p->group, p->to, bytes_of(p->x, bytes), p->from, bytes_of(p->y, bytes),
                          &transfer));
    return dp_group_finish(p->group, &transfer);
}

static dp_status turn_sum(struct probe *p, size_t bytes)
{
    return p->group->stream->ops->add(p->group->stream, p->y, p->x, bytes / sizeof(float));
}

static dp_status turn_copy(struct probe *p, size_t bytes)
{
    return p->group->stream->ops->copy(p->group->stream, p->y, p->x, bytes);
}

/* The next rank of this rank's node. */
static int local_neighbour(const struct dp_group *group, int step)
{
    int other = group->rank;

    do {
        other = (other + step + group->size) % group->size;
    } while (group->node_of[other] != group->node_of[group->rank]);
    return other;
}

static dp_status turn_peer(struct probe *p, size_t bytes)
{
    const int peer = local_neighbour(p->group, 1);
    float *y = peer == p->group->rank ? p->y : dp_group_peer(p->group, p->y, peer);

    return p->group->stream->ops->add(p->group->stream, y, p->x, bytes / sizeof(float));
}

/* Returns when all ranks of the node have raised their flags. */
static dp_status turn_flags(struct probe *p, size_t bytes)
{
    DP_AWAIT_RANKS();
    const struct dp_group *group = p->group;
    const uint64_t turn = ++p->barriers;

    (void)bytes;
    atomic_store_explicit(p->flag, turn, memory_order_release);
    for (int i = 0; i < group->size; i++) {
        struct dp_backoff backoff = {.cancel = group->cancel, .spin_ns = group->spin_ns};
        const atomic_uint_least64_t *theirs =
            i == group->rank ? p->flag : dp_group_peer(group, p->flag, i);
        while (theirs != NULL && atomic_load_explicit(theirs, memory_order_acquire) < turn) {
            if (!dp_backoff_wait(&backoff)) {
                return DP_ERR_CANCELLED;
            }
        }
    }
    return DP_OK;
}

/* Rewrites the buffers, as backward does before a gradient is shared. */
static void write_anew(struct probe *p, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof(float); i++) {
        p->x[i] = 1.0f;
        p->y[i] = 0.5f;
    }
}

static dp_status timed_turns(struct probe *p, probe_turn *turn, size_t bytes, int turns)
{
    for (int i = 0; i < turns; i++) {
        DP_TRY(dp_group_barrier(p->group)); /* no rank adds to these buffers any more */
        write_anew(p, bytes);
        DP_TRY(dp_group_barrier(p->group));
        const uint64_t begin_ns = dp_now_ns();
        DP_TRY(turn(p, bytes));
        p->mine[i] = (double)(dp_now_ns() - begin_ns) / 1e9;
        dp_trace_beat();
    }
    return dp_group_barrier(p->group);
}

/* The median over turns of the slowest rank's time; the same on all ranks. */
static dp_status measure_point(struct probe *p, probe_turn *turn, size_t bytes, int turns,
                               double *seconds)
{
    DP_TRY(timed_turns(p, turn, bytes, turns));
    DP_TRY(dp_group_allgather(p->group, p->mine, (size_t)turns * sizeof(double), p->all));
    for (int i = 0; i < turns; i++) {
        p->mine[i] = 0.0;
        for (int r = 0; r < p->group->size; r++) {
            const double theirs = p->all[(size_t)r * (size_t)turns + (size_t)i];
            p->mine[i] = theirs > p->mine[i] ? theirs : p->mine[i];
        }
    }
    dp_sort(p->mine, (size_t)turns);
    *seconds = dp_median(p->mine, (size_t)turns);
    return DP_OK;
}

/* Whether there is time for another point, after one of `bytes` that took `seconds` a turn. */
static bool goes_on(const struct probe *p, size_t bytes, double seconds, double gone)
{
    const double next = (WARM_TURNS + FEWEST_TURNS) * STEP * seconds;

    return gone + next < (bytes < LEAST_BYTES ? 2.0 : 1.0) * p->budget_s;
}

/* The size of the next point; 0: the last is done. A wire's burst does not show its rate: a whole
 * row is always measured there, even if a busy machine has used up the time. */
static size_t next_size(const struct probe *p, size_t bytes, size_t max_bytes, double seconds,
                        double gone)
{
    const size_t whole = p->wire ? ROW_BYTES / ROW_MOST : 0;
    size_t next = bytes * STEP;

    if (!goes_on(p, bytes, seconds, gone)) {
        next = whole;
    }
    next = next < max_bytes ? next : max_bytes;
    return next > bytes ? next : 0;
}

/* Measures points of rising size until max_bytes, or until the time is used up. */
static dp_status measure_curve(struct probe *p, probe_turn *turn, size_t max_bytes, double budget_s,
                               struct dp_curve *curve)
{
    const uint64_t begin_ns = dp_now_ns();
    size_t bytes = FIRST_BYTES < max_bytes ? FIRST_BYTES : max_bytes;
    double seconds, gone;

    p->budget_s = budget_s;
    for (curve->count = 0; curve->count < DP_CURVE_POINTS && bytes != 0;) {
        int turns = MOST_TURNS;
        DP_TRY(measure_point(p, turn, bytes, WARM_TURNS, &seconds));
        if (seconds * MOST_TURNS > budget_s / POINT_SHARE) {
            turns = (int)(budget_s / POINT_SHARE / seconds);
            turns = turns < FEWEST_TURNS ? FEWEST_TURNS : turns;
        }
        DP_TRY(measure_point(p, turn, bytes, turns, &seconds));
        curve->bytes[curve->count] = (double)bytes;
        curve->seconds[curve->count++] = seconds / row_of(p, bytes);
        gone = (double)(dp_now_ns() - begin_ns) / 1e9;
        DP_TRY(dp_group_broadcast(p->group, &gone, sizeof(gone), 0)); /* rank 0's clock decides for
                                                                       * all */
        bytes = next_size(p, bytes, max_bytes, seconds, gone);
    }
    return DP_OK;
}

/* Measures one rank of each node, around a ring of nodes. */
static dp_status measure_wire(struct probe *p, size_t max_bytes, double budget_s,
                              struct dp_cost *cost)
{
    struct dp_group *group = p->group;
    const int node = group->node_of[group->rank];
    const bool leads = dp_group_leader(group, node) == group->rank;
    const uint64_t spin_ns = group->spin_ns;
    dp_status status;

    p->to = leads ? dp_group_leader(group, (node + 1) % group->nodes) : -1;
    p->from = leads ? dp_group_leader(group, (node + group->nodes - 1) % group->nodes) : -1;
    group->spin_ns = leads ? spin_ns : 0; /* the others sleep until the leaders are done */
    p->wire = true;
    status = measure_curve(p, turn_exchange, max_bytes, budget_s, &cost->exchange[DP_LINK_WIRE]);
    p->wire = false;
    group->spin_ns = spin_ns;
    return status;
}

/* Whether every rank can reach all other ranks of its node, and whether some node has several
 * ranks. */
static dp_status reach(struct probe *p, bool *several, bool *shared)
{
    const struct dp_group *group = p->group;
    const int peer = local_neighbour(group, 1);
    int mine[2], worst[2] = {0, 0}, *all = dp_zalloc((size_t)group->size, sizeof(mine));

    if (all == NULL) {
        dp_group_leave(p->group, DP_ERR_NOMEM);
        return DP_FAIL(DP_ERR_NOMEM, "probe of %d ranks", group->size);
    }
    mine[0] = group->local_size > 1;
    mine[1] = peer != group->rank && dp_group_peer(group, p->x, peer) == NULL;
    const dp_status status = dp_group_allgather(p->group, mine, sizeof(mine), all);
    for (int i = 0; i < 2 * group->size; i++) {
        worst[i % 2] |= all[i];
    }
    dp_free(all);
    *several = worst[0] != 0;
    *shared = *several && worst[1] == 0;
    return status;
}

/* Allocates two arrays of this many bytes, and a flag; shared by the ranks of a node if possible.
 * Collective. */
static dp_status take_memory(struct probe *p, size_t bytes)
{
    p->memory = dp_group_memory(p->group, DP_MEM_COMM, 2 * bytes + DP_MEM_ALIGN);
    if (p->memory == NULL) {
        return DP_GROUP_FAIL(p->group, DP_ERR_NOMEM, "probing the links needs %zu MB",
                             2 * bytes >> 20);
    }
    p->x = (void *)p->memory;
    p->y = (void *)(p->memory + bytes);
    p->flag = (void *)(p->memory + 2 * bytes);
    return DP_OK;
}

/* Measures the memory of peers, and flags in it. There may be space to share a strategy's buffers
 * but not the probe's largest messages. So smaller memory is tried until it is shared, which
 * replaces p->memory. If none can be shared, nothing is measured. */
static dp_status measure_shared(struct probe *p, size_t max_bytes, double budget_s, bool shared,
                                struct dp_cost *cost)
{
    bool several = true;

    while (!shared && max_bytes > LEAST_SHARED) {
        max_bytes = dp_round_up(max_bytes / 2, DP_BLOCK);
        dp_group_release(p->group, p->memory);
        DP_TRY(take_memory(p, max_bytes));
        DP_TRY(reach(p, &several, &shared));
    }
    if (!shared) {
        return DP_OK;
    }
    DP_TRY(measure_curve(p, turn_peer, max_bytes, budget_s, &cost->peer));
    return measure_point(p, turn_flags, 0, MOST_TURNS, &cost->flags_s);
}

/* Measures messages between neighbours on a node: part_s for each of three curves. */
static dp_status measure_node(struct probe *p, size_t max_bytes, double part_s,
                              struct dp_cost *cost)
{
    const size_t longest = max_bytes < DP_MESSAGE_MAX ? max_bytes : DP_MESSAGE_MAX;
    const int next = local_neighbour(p->group, 1);
    dp_status status;

    p->to = next != p->group->rank ? next : -1;
    p->from = next != p->group->rank ? local_neighbour(p->group, -1) : -1;
    DP_TRY(measure_curve(p, turn_exchange, max_bytes, part_s, &cost->exchange[DP_LINK_NODE]));
    DP_TRY(measure_curve(p, turn_whole, longest, part_s, &cost->whole));
    DP_TRY(dp_segmented_open(&p->segmented, p->group, max_bytes / sizeof(float), 0));
    status = measure_curve(p, turn_add, max_bytes, part_s, &cost->add);
    dp_segmented_close(&p->segmented);
    return status;
}

/* The wire gets half of the time, since long messages take long on it. */
static dp_status measure_all(struct probe *p, size_t max_bytes, double seconds,
                             struct dp_cost *cost)
{
    const bool wire = p->group->nodes > 1;
    const double part_s = seconds / (wire ? 12.0 : 6.0);
    bool several = false, shared = false;

    DP_TRY(reach(p, &several, &shared)); /* here all meet */
    DP_EXPECT(seconds);
    DP_TRY(measure_curve(p, turn_copy, max_bytes, part_s, &cost->copy));
    DP_TRY(measure_curve(p, turn_sum, max_bytes, part_s, &cost->sum));
    if (several) {
        DP_TRY(measure_node(p, max_bytes, part_s, cost));
    }
    if (wire) {
        DP_TRY(measure_wire(p, max_bytes, seconds / 2.0, cost));
    }
    if (several) {
        DP_TRY(measure_shared(p, max_bytes, part_s, shared, cost));
    }
    dp_cost_fit(cost);
    return DP_OK;
}

dp_status dp_cost_measure(struct dp_group *group, size_t max_bytes, double seconds,
                          struct dp_cost *out)
{
    const size_t most = dp_round_up(max_bytes < FIRST_BYTES ? FIRST_BYTES : max_bytes, DP_BLOCK);
    struct probe p = {.group = group, .to = -1, .from = -1};
    struct dp_cost cost;
    dp_status status;

    memset(&cost, 0, sizeof(cost));
    p.mine = dp_zalloc(MOST_TURNS, sizeof(double));
    p.all = dp_zalloc((size_t)group->size * MOST_TURNS, sizeof(double));
    status = take_memory(&p, most);
    if (status == DP_OK && (p.mine == NULL || p.all == NULL)) {
        status = DP_FAIL(DP_ERR_NOMEM, "probing the links of %d ranks", group->size);
    }
    if (status == DP_OK) {
        status = measure_all(&p, most, seconds, &cost);
    }
    dp_group_leave(group, status); /* no wait for its memory */
    dp_group_release(group, p.memory);
    dp_free(p.all);
    dp_free(p.mine);
    DP_TRY(status);
    *out = cost;
    return DP_OK;
}
