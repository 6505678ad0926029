#include "collectives/world/host_names.h"

#include <stdio.h>

#include "base/mem.h"
#include "collectives/core/transport.h"

struct host_name {
    char text[DP_HOST_NAME];
};

struct dp_host_names {
    struct dp_group *group;       /* borrowed */
    struct host_name own;         /* the only one, where there is one host */
    struct dp_node_memory memory; /* of all nodes, in their order */
};

/* The first ranks of nodes gather among themselves. */
static dp_status gather_firsts(struct dp_host_names *names)
{
    struct dp_group *group = names->group, *firsts = NULL;
    int *ranks = dp_zalloc((size_t)group->nodes, sizeof(*ranks));
    dp_status status = DP_ERR_NOMEM;

    if (ranks != NULL) {
        for (int i = 0; i < group->nodes; i++) {
            ranks[i] = dp_group_leader(group, i);
        }
        status = dp_group_sub_create(group, ranks, group->nodes, &firsts);
    }
    dp_free(ranks);
    if (status != DP_OK) {
        dp_group_leave(group, status);
        return DP_FAIL(status, "names of %d hosts", group->nodes);
    }
    status = dp_group_allgather(firsts, &names->own, sizeof(names->own), names->memory.data);
    dp_group_sub_sync(firsts);
    dp_group_destroy(firsts);
    return status;
}

/* Where memory is not shared each rank needs a list of its own. */
static dp_status gather_ranks(struct dp_host_names *names)
{
    struct dp_group *group = names->group;
    struct host_name *all = dp_zalloc((size_t)group->size, sizeof(*all));
    struct host_name *nodes = names->memory.data;
    dp_status status;

    if (all == NULL) {
        dp_group_leave(group, DP_ERR_NOMEM);
        return DP_FAIL(DP_ERR_NOMEM, "host names of %d ranks", group->size);
    }
    status = dp_group_allgather(group, &names->own, sizeof(names->own), all);
    for (int i = 0; i < group->size && status == DP_OK && names->memory.writer; i++) {
        nodes[group->node_of[i]] = all[i];
    }
    dp_free(all);
    return status;
}

static dp_status gather(struct dp_host_names *names)
{
    struct dp_group *group = names->group;
    const bool first = dp_group_leader(group, group->node_of[group->rank]) == group->rank;

    if (group->nodes == 1) {
        return DP_OK;
    }
    DP_TRY(dp_group_node_memory(group, DP_MEM_COMM, (size_t)group->nodes * sizeof(struct host_name),
                                &names->memory));
    if (group->unshared) {
        DP_TRY(gather_ranks(names));
    } else if (first) {
        DP_TRY(gather_firsts(names));
    }
    return dp_group_barrier(group);
}

dp_status dp_host_names_create(struct dp_group *group, const char *own, struct dp_host_names **out)
{
    struct dp_host_names *names = dp_zalloc(1, sizeof(*names));
    dp_status status;

    if (names == NULL) {
        dp_group_leave(group, DP_ERR_NOMEM);
        return DP_FAIL(DP_ERR_NOMEM, "host names");
    }
    names->group = group;
    (void)snprintf(names->own.text, sizeof(names->own.text), "%s", own);
    status = gather(names);
    if (status != DP_OK) {
        dp_group_leave(group, status);
        dp_host_names_destroy(names);
        return status;
    }
    *out = names;
    return DP_OK;
}

const char *dp_host_names_of(const struct dp_host_names *names, int rank)
{
    const struct host_name *nodes = names->memory.data;

    return nodes == NULL ? names->own.text : nodes[names->group->node_of[rank]].text;
}

void dp_host_names_destroy(struct dp_host_names *names)
{
    if (names != NULL) {
        dp_group_release_node(names->group, &names->memory);
        dp_free(names);
    }
}
