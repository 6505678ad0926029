/*
 * transport_sub.c - a group of some of the ranks of another one.
 *
 * Its messages are its parent's, with ranks translated, so it needs no channel of its own. Between
 * two ranks messages are matched in the order in which both start them, and both run the same
 * program.
 *
 * Memory is allocated from the parent, all of whose ranks must then call together: the groups of
 * all nodes do. A group without two ranks on one node has nothing to share and allocates private
 * memory.
 */
#include <string.h>

#include "collectives/core/group.h"
#include "collectives/core/transport.h"

struct sub_link {
    struct dp_group *parent; /* borrowed */
    int *ranks;              /* [size]: their numbers in the parent */
    int *node_of;            /* [size] */
    bool shares;             /* allocates from the parent */
};

static struct sub_link *link_of(const struct dp_group *group)
{
    return group->link;
}

static dp_status sub_start(struct dp_group *group, struct dp_slice out, struct dp_slice in,
                           struct dp_transfer *transfer)
{
    const struct sub_link *link = link_of(group);
    struct dp_group *parent = link->parent;

    transfer->to = transfer->to < 0 ? -1 : link->ranks[transfer->to];
    transfer->from = transfer->from < 0 ? -1 : link->ranks[transfer->from];
    return parent->transport->start(parent, out, in, transfer);
}

static dp_status sub_finish(struct dp_group *group, struct dp_transfer *transfer)
{
    struct dp_group *parent = link_of(group)->parent;

    return parent->transport->finish(parent, transfer);
}

static dp_status sub_test(struct dp_group *group, struct dp_transfer *transfer, bool *done)
{
    struct dp_group *parent = link_of(group)->parent;

    return parent->transport->test(parent, transfer, done);
}

static void *sub_memory(struct dp_group *group, enum dp_purpose purpose, size_t bytes)
{
    struct sub_link *link = link_of(group);
    void *memory;

    if (link->shares) {
        memory = dp_group_memory(link->parent, purpose, bytes);
        group->unshared = group->unshared || link->parent->unshared;
        return memory;
    }
    memory = dp_mem_arena(purpose, bytes);
    if (dp_group_agree(group, memory != NULL ? DP_OK : DP_ERR_NOMEM) != DP_OK) {
        dp_free(memory);
        return NULL;
    }
    return memory;
}

static void sub_release(struct dp_group *group, void *memory)
{
    struct sub_link *link = link_of(group);

    if (link->shares) {
        dp_group_release(link->parent, memory);
    } else {
        dp_free(memory);
    }
}

static void *sub_peer(const struct dp_group *group, const void *mine, int peer)
{
    const struct sub_link *link = link_of(group);

    return dp_group_peer(link->parent, mine, link->ranks[peer]);
}

static void sub_leave(struct dp_group *group)
{
    dp_group_leave(link_of(group)->parent, DP_ERR_INTERNAL);
}

static void sub_close(struct dp_group *group)
{
    struct sub_link *link = link_of(group);

    if (link != NULL) {
        dp_free(link->node_of);
        dp_free(link->ranks);
    }
    dp_free(link);
    dp_free(group);
}

static const struct dp_transport sub_transport = {
    .name = "sub",
    .start = sub_start,
    .finish = sub_finish,
    .test = sub_test,
    .memory = sub_memory,
    .release = sub_release,
    .peer = sub_peer,
    .leave = sub_leave,
    .close = sub_close,
};

/* Numbers nodes anew, by their first rank in the group. */
static void find_nodes(struct dp_group *group, const struct dp_group *parent)
{
    const struct sub_link *link = link_of(group);

    group->nodes = group->local_size = 0;
    for (int i = 0; i < group->size; i++) {
        const int node = parent->node_of[link->ranks[i]];
        int first = 0;
        while (parent->node_of[link->ranks[first]] != node) {
            first++;
        }
        link->node_of[i] = first == i ? group->nodes++ : link->node_of[first];
        group->local_size += node == parent->node_of[parent->rank];
    }
}

dp_status dp_group_sub_create(struct dp_group *parent, const int *ranks, int size,
                              struct dp_group **out)
{
    struct dp_group *group = dp_zalloc(1, sizeof(*group));
    struct sub_link *link = dp_zalloc(1, sizeof(*link));

    if (group == NULL || link == NULL) {
        dp_free(group);
        dp_free(link);
        return DP_FAIL(DP_ERR_NOMEM, "a group of %d ranks", size);
    }
    *group = *parent;
    group->transport = &sub_transport;
    group->link = link;
    group->gpus = NULL;
    group->board = NULL;
    group->parent = parent;
    group->size = size;
    group->wire_bytes = 0;
    link->parent = parent;
    link->ranks = dp_zalloc((size_t)size, sizeof(*link->ranks));
    link->node_of = dp_zalloc((size_t)size, sizeof(*link->node_of));
    if (link->ranks == NULL || link->node_of == NULL) {
        sub_close(group);
        return DP_FAIL(DP_ERR_NOMEM, "a group of %d ranks", size);
    }
    memcpy(link->ranks, ranks, (size_t)size * sizeof(*ranks));
    group->node_of = link->node_of;
    find_nodes(group, parent);
    for (int i = 0; i < size; i++) {
        group->rank = ranks[i] == parent->rank ? i : group->rank;
    }
    link->shares = group->nodes == 1 && group->local_size == parent->local_size;
    group->unshared = parent->unshared || !link->shares;
    *out = group;
    return DP_OK;
}

const struct dp_group *dp_group_parent(const struct dp_group *group, int rank, int *parent_rank)
{
    if (group->transport != &sub_transport) {
        return NULL;
    }
    *parent_rank = link_of(group)->ranks[rank];
    return link_of(group)->parent;
}

void dp_group_sub_sync(struct dp_group *group)
{
    struct dp_group *parent = link_of(group)->parent;

    parent->wire_bytes += group->wire_bytes;
    group->wire_bytes = 0;
    group->spin_ns = parent->spin_ns;
    group->guarded = parent->guarded;
}
