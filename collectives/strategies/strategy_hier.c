/*
 * strategy_hier.c - two levels: one strategy inside each node, another one between nodes, so that
 * as little as possible goes over the network.
 *
 *      leaders (rails=0)                      rails (rails=1)
 *      node 0        node 1                   node 0        node 1
 *      0 <- 1        2 <- 3   inner sum       0 <-> 1       2 <-> 3   inner reduce-scatter
 *      0 <-----------> 2      outer sum       0 <-----------> 2       outer sum of the first half,
 *                                             1 <-----------> 3       and of the second half
 *      0 -> 1        2 -> 3   copy            0 <-> 1       2 <-> 3   inner gather
 *
 * With rails every rank of a node sends its part between nodes, over connections of its own; all
 * nodes must have the same number of ranks. Either way a node sends as much as one rank of a flat
 * strategy would.
 *
 * The order of the tree is kept where nodes hold equal blocks of consecutive ranks, a power of two
 * of them, and both levels keep it: a node's sum is then a whole subtree.
 *
 * Source: Goyal et al., "Accurate, large minibatch SGD", arXiv:1706.02677, section 4 (leaders); Jia
 * et al., "Highly scalable deep learning training system with mixed-precision", arXiv:1807.11205,
 * section 4 (parts between nodes).
 */
#include <string.h>

#include "collectives/core/transport.h"
#include "collectives/strategies/comm.h"

struct hier {
    const char *inner, *outer;
    int rails;
    struct dp_group *group;  /* borrowed */
    struct dp_group *local;  /* owned; the ranks of this node */
    struct dp_group *across; /* owned; leaders, or this rank's rail; NULL: none */
    struct dp_comm *in, *out;
};

static bool hier_supports(const struct dp_group *group, const char **why_not)
{
    if (group->unshared) {
        *why_not = dp_group_why_unshared(group);
        return false;
    }
    return true;
}

static dp_status hier_check(const void *state, char *problem, size_t problem_size)
{
    const struct hier *hier = state;

    DP_TRY(dp_strategy_check_option("hier", "inner", hier->inner, problem, problem_size));
    return dp_strategy_check_option("hier", "outer", hier->outer, problem, problem_size);
}

static void hier_close(void *state)
{
    struct hier *hier = state;

    dp_comm_destroy(hier->out);
    dp_comm_destroy(hier->in);
    dp_group_destroy(hier->across);
    dp_group_destroy(hier->local);
}

/* The rank with number `index` on node `node`, or -1. */
static int rank_at(const struct dp_group *group, int node, int index)
{
    for (int i = 0; i < group->size; i++) {
        if (group->node_of[i] == node && index-- == 0) {
            return i;
        }
    }
    return -1;
}

/* Makes the groups of this node's ranks, and of the ranks that this one meets between nodes. */
static dp_status make_groups(struct hier *hier)
{
    struct dp_group *group = hier->group;
    const int node = group->node_of[group->rank];
    int *ranks = dp_zalloc((size_t)group->size, sizeof(*ranks)), index = 0;
    dp_status status;

    if (ranks == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "hier: %d ranks", group->size);
    }
    for (int i = 0; i < group->local_size; i++) {
        ranks[i] = rank_at(group, node, i);
        index = ranks[i] == group->rank ? i : index;
    }
    DP_TRY_GOTO(dp_group_sub_create(group, ranks, group->local_size, &hier->local), status, done);
    for (int i = 0; i < group->nodes; i++) {
        ranks[i] = rank_at(group, i, hier->rails ? index : 0);
    }
    if (hier->rails || index == 0) {
        DP_TRY_GOTO(dp_group_sub_create(group, ranks, group->nodes, &hier->across), status, done);
    }

done:
    dp_free(ranks);
    return status;
}

static dp_status open_levels(struct hier *hier, size_t max_count)
{
    const struct dp_group *group = hier->group;

    if (hier->rails && !dp_group_even(group)) {
        return DP_FAIL(DP_ERR_UNAVAILABLE, "comm.strategy hier: rails need equally many ranks on "
                                           "all nodes; use rails=0");
    }
    DP_TRY(make_groups(hier));
    DP_TRY(dp_comm_create_for("hier", "inner", hier->local, hier->inner, max_count, &hier->in));
    if (hier->across != NULL) {
        const int parts = hier->rails ? hier->local->size : 1;
        DP_TRY(dp_comm_create_for("hier", "outer", hier->across, hier->outer,
                                  dp_chunk_room(max_count, parts), &hier->out));
    }
    return DP_OK;
}

static dp_status hier_open(void *state, struct dp_group *group, size_t max_count)
{
    struct hier *hier = state;
    dp_status status;

    hier->group = group;
    status = open_levels(hier, max_count);
    dp_group_leave(group, status);
    /* Only leaders have the outer strategy's error. */
    const dp_status worst = dp_group_agree(group, status);
    if (status == DP_OK && worst == DP_OK) {
        return DP_OK;
    }
    hier_close(hier);
    return status != DP_OK ? status : worst;
}

/* Sends the leader's `data` to all ranks of the node, or to each only the chunk that it keeps. */
static dp_status copy_down(const struct hier *hier, struct dp_slice data, enum dp_keep keep)
{
    struct dp_group *local = hier->local, *group = hier->group;
    const struct dp_slice wanted =
        keep == DP_KEEP_ALL ? data : dp_slice_chunk(data, group->size, group->rank);
    const void *theirs;

    if (local->size == 1 || data.count == 0) {
        return DP_OK;
    }
    if (dp_group_peer(local, data.data, (local->rank + 1) % local->size) == NULL) {
        return dp_group_broadcast(local, data.data, dp_slice_bytes(data), 0);
    }
    DP_TRY(dp_comm_barrier(hier->in));
    theirs = dp_group_peer(local, wanted.data, 0);
    if (local->rank != 0 && wanted.count > 0) {
        DP_TRY(
            group->stream->ops->copy(group->stream, wanted.data, theirs, dp_slice_bytes(wanted)));
        local->wire_bytes += dp_slice_bytes(wanted);
    }
    return dp_comm_barrier(hier->in);
}

static dp_status sum_levels(const struct hier *hier, struct dp_slice data, enum dp_keep keep)
{
    const struct dp_group *local = hier->local;

    if (hier->group->nodes == 1) {
        return dp_comm_sum(hier->in, data, keep);
    }
    if (hier->rails) {
        DP_TRY(dp_comm_sum(hier->in, data, DP_KEEP_CHUNK));
        DP_TRY(dp_comm_sum(hier->out, dp_slice_chunk(data, local->size, local->rank), DP_KEEP_ALL));
        return dp_comm_gather(hier->in, data);
    }
    DP_TRY(dp_comm_sum(hier->in, data, DP_KEEP_ALL));
    if (hier->out != NULL) {
        DP_TRY(dp_comm_sum(hier->out, data, DP_KEEP_ALL));
    }
    return copy_down(hier, data, keep);
}

static void sync_groups(const struct hier *hier)
{
    dp_group_sub_sync(hier->local);
    if (hier->across != NULL) {
        dp_group_sub_sync(hier->across);
    }
}

static dp_status hier_sum(void *state, struct dp_slice data, enum dp_keep keep)
{
    const struct hier *hier = state;
    dp_status status;

    sync_groups(hier);
    status = sum_levels(hier, data, keep);
    sync_groups(hier);
    return status;
}

/* A group with the size of one level, for predictions: which ranks are in it does not matter. */
static struct dp_group level_of(const struct dp_group *group, int size, int nodes)
{
    return (struct dp_group){.size = size,
                             .nodes = nodes,
                             .local_size = size / nodes,
                             .node_of = group->node_of,
                             .ordered = group->ordered};
}

static bool level_ordered(const char *text, int size, int nodes, const struct dp_group *group)
{
    const struct dp_group level = level_of(group, size, nodes);

    return dp_strategy_ordered(text, &level);
}

static bool hier_keeps_order(const void *state, const struct dp_group *group)
{
    const struct hier *hier = state;
    const int local = group->local_size;

    if ((local & (local - 1)) != 0 || local * group->nodes != group->size) {
        return false;
    }
    for (int i = 0; i < group->size; i++) {
        if (group->node_of[i] != i / local) {
            return false;
        }
    }
    return level_ordered(hier->inner, local, 1, group) &&
           (group->nodes == 1 || level_ordered(hier->outer, group->nodes, group->nodes, group));
}

/* A barrier of a node's ranks: over flags if the inner strategy has its own barrier (shm), else by
 * messages. */
static double barrier_cost(const char *inner, const struct dp_cost *cost,
                           const struct dp_group *group)
{
    const char *reason,
        *name = strcmp(inner, "auto") == 0 ? dp_strategy_choose(group, &reason) : inner;
    const struct dp_plugin *plugin = dp_plugin_find(&dp_strategies, name, strcspn(name, ":"));
    double seconds = 0.0;

    if (plugin != NULL && ((const struct dp_strategy *)plugin)->barrier != NULL) {
        return cost->flags_s;
    }
    for (int distance = 1; distance < group->size; distance *= 2) {
        seconds += dp_curve_at(&cost->exchange[DP_LINK_NODE], 1.0);
    }
    return seconds;
}

/* The cost of messages between nodes while `rails` ranks of each node send them together. */
static struct dp_cost shared_wire(const struct dp_cost *cost, int rails)
{
    struct dp_cost shared = *cost;

    for (int i = 0; i < shared.exchange[DP_LINK_WIRE].count; i++) {
        shared.exchange[DP_LINK_WIRE].bytes[i] /= rails;
    }
    return shared;
}

/* The largest number of ranks on a node. */
static int largest_node(const struct dp_group *group)
{
    int largest = 1;

    for (int node = 0; node < group->nodes; node++) {
        int ranks = 0;
        for (int i = 0; i < group->size; i++) {
            ranks += group->node_of[i] == node;
        }
        largest = ranks > largest ? ranks : largest;
    }
    return largest;
}

/* Two barriers are added to the inner sum. With leaders there is a copy between them; with rails
 * scattering and gathering are separate, and parts share one wire. */
static double hier_cost(const void *state, const struct dp_cost *cost, const struct dp_group *group,
                        size_t bytes)
{
    const struct hier *hier = state;
    const int local = largest_node(group);
    const struct dp_group in = level_of(group, local, 1);
    const struct dp_group out = level_of(group, group->nodes, group->nodes);
    double seconds = 0.0;

    if (local > 1) {
        seconds = dp_strategy_cost(hier->inner, cost, &in, bytes);
    }
    if (group->nodes == 1) {
        return seconds;
    }
    if (local > 1) {
        seconds += 2.0 * barrier_cost(hier->inner, cost, &in);
    }
    if (hier->rails) {
        const struct dp_cost shared = shared_wire(cost, local);
        return seconds + dp_strategy_cost(hier->outer, &shared, &out, bytes / (size_t)local);
    }
    return seconds + dp_strategy_cost(hier->outer, cost, &out, bytes) +
           (local > 1 ? dp_curve_at(&cost->copy, (double)bytes) : 0.0);
}

#define HIER struct hier

/* clang-format off */
static const struct dp_option hier_options[] = {
    DP_STRING(HIER, inner, "shm",  "the strategy inside a node"),
    DP_STRING(HIER, outer, "auto", "the strategy between nodes"),
    DP_INT(HIER,    rails, "0", 0, 1, "1: every rank of a node carries its part between nodes"),
    {0},
};
/* clang-format on */

const struct dp_strategy dp_strategy_hier = {
    .plugin = {.name = "hier",
               .help = "two levels: a strategy inside a node, another one between nodes",
               .options = hier_options,
               .state_bytes = sizeof(struct hier)},
    .ordered = true,
    .keeps_order = hier_keeps_order,
    .check = hier_check,
    .supports = hier_supports,
    .open = hier_open,
    .sum = hier_sum,
    .cost = hier_cost,
    .close = hier_close,
};
