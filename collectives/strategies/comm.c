#include "collectives/strategies/comm.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Where a strategy is named: by an option of another strategy, or by the user. */
struct asker {
    const char *owner, *option; /* NULL: the user */
};

/* Whether this strategy is allowed there and can run in the group. */
static bool will_do(const struct dp_group *group, struct asker asker,
                    const struct dp_plugin *plugin)
{
    char problem[256];
    const char *why_not;

    return (asker.owner == NULL || dp_strategy_check_option(asker.owner, asker.option, plugin->name,
                                                            problem, sizeof(problem)) == DP_OK) &&
           ((const struct dp_strategy *)plugin)->supports(group, &why_not);
}

/* Writes "shm, ring, none": the strategies that are allowed and can run. `sharding`: leaves out the
 * one that shares nothing. */
static void list_supported(const struct dp_group *group, struct asker asker, bool sharding,
                           char *text, size_t size)
{
    const struct dp_plugin *plugin;
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; (plugin = dp_plugin_at(&dp_strategies, i)) != NULL; i++) {
        const struct dp_strategy *strategy = (const struct dp_strategy *)plugin;
        if ((!sharding || strategy->sum != NULL) && used < size && will_do(group, asker, plugin)) {
            used += (size_t)snprintf(text + used, size - used, "%s%s", used == 0 ? "" : ", ",
                                     plugin->name);
        }
    }
}

void dp_comm_list_sharing(const struct dp_group *group, char *text, size_t size)
{
    list_supported(group, (struct asker){NULL, NULL}, true, text, size);
}

/* Lists the strategies that keep the order in this group, with their default options. */
static void list_ordered(const struct dp_group *group, char *text, size_t size)
{
    const struct dp_plugin *plugin;
    const char *why_not;
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; (plugin = dp_plugin_at(&dp_strategies, i)) != NULL; i++) {
        const struct dp_strategy *strategy = (const struct dp_strategy *)plugin;
        const bool hopeless = strategy->gpus && dp_device_left_out("cuda");
        const bool ordered =
            group == NULL
                ? !hopeless && dp_strategy_keeps_order(strategy, NULL, NULL)
                : strategy->supports(group, &why_not) && dp_strategy_ordered(plugin->name, group);
        if (ordered && used < size) {
            used += (size_t)snprintf(text + used, size - used, "%s%s", used == 0 ? "" : ", ",
                                     plugin->name);
        }
    }
}

dp_status dp_comm_check_order(const struct dp_strategy *strategy, const void *state,
                              const struct dp_group *group, char *problem, size_t problem_size)
{
    char names[256];

    if (dp_strategy_keeps_order(strategy, state, group)) {
        return DP_OK;
    }
    list_ordered(group, names, sizeof(names));
    (void)snprintf(problem, problem_size,
                   "%s adds in an order that train.lanes cannot use%s; these keep it: %s",
                   strategy->plugin.name, strategy->ordered && strategy->sum != NULL ? " here" : "",
                   names);
    return DP_ERR_CONFIG;
}

static dp_status refuse(const struct dp_group *group, struct asker asker, const char *text,
                        const char *why_not)
{
    const bool nested = asker.owner != NULL;
    char names[256];

    list_supported(group, asker, false, names, sizeof(names));
    return DP_FAIL(DP_ERR_UNAVAILABLE,
                   "comm.strategy %s%s%s%s%s cannot run here: %s; these can: %s",
                   nested ? asker.owner : "", nested ? ": " : "", nested ? asker.option : "",
                   nested ? "=" : "", text, why_not, names);
}

static dp_status comm_open(struct dp_comm *comm, struct asker asker, const char *text,
                           size_t max_count)
{
    const struct dp_plugin *plugin;
    const char *why_not = "";
    char problem[256];
    dp_status status;
    void *state;

    if (strcmp(text, "auto") == 0) {
        const char *reason = "";
        text = dp_strategy_choose(comm->group, &reason);
        (void)snprintf(comm->why, sizeof(comm->why), "%s", reason);
    }
    (void)snprintf(comm->text, sizeof(comm->text), "%s", text);
    status = dp_plugin_create(&dp_strategies, text, &plugin, &state, problem, sizeof(problem));
    if (status != DP_OK) {
        return DP_FAIL(status, "comm.strategy: %s", problem);
    }
    comm->strategy = (const struct dp_strategy *)plugin;
    if (comm->strategy->check != NULL) {
        status = comm->strategy->check(state, problem, sizeof(problem));
        if (status != DP_OK) {
            dp_free(state);
            return DP_FAIL(status, "comm.strategy: %s", problem);
        }
    }
    if (!comm->strategy->supports(comm->group, &why_not)) {
        dp_free(state);
        return refuse(comm->group, asker, text, why_not);
    }
    status = comm->strategy->open(state, comm->group, max_count);
    if (status != DP_OK) {
        dp_free(state);
        return status;
    }
    comm->state = state;
    return DP_OK;
}

static dp_status comm_create(struct dp_group *group, struct asker asker, const char *text,
                             size_t max_count, size_t small_count, struct dp_comm **out)
{
    struct dp_comm *comm = dp_zalloc(1, sizeof(*comm));
    dp_status status;

    if (comm == NULL) {
        dp_group_leave(group, DP_ERR_NOMEM);
        return DP_FAIL(DP_ERR_NOMEM, "comm");
    }
    comm->group = group;
    comm->codes = group->stream;
    status = comm_open(comm, asker, text, max_count);
    if (status == DP_OK && comm->strategy->sum == NULL) {
        comm->gather_count = small_count;
        comm->gather = dp_mem_arena(DP_MEM_COMM, (size_t)group->size * small_count * sizeof(float));
        comm->parts = dp_zalloc((size_t)group->size, sizeof(*comm->parts));
        if (comm->gather == NULL || comm->parts == NULL) {
            status =
                DP_FAIL(DP_ERR_NOMEM, "comm: %zu elements of %d ranks", small_count, group->size);
        }
    }
    if (status != DP_OK) {
        dp_group_leave(group, status);
        dp_comm_destroy(comm);
        return status;
    }
    *out = comm;
    return DP_OK;
}

dp_status dp_comm_create(struct dp_group *group, const char *text, size_t max_count,
                         size_t small_count, struct dp_comm **out)
{
    const struct asker user = {0};

    return comm_create(group, user, text, max_count, small_count, out);
}

dp_status dp_comm_create_for(const char *owner, const char *option, struct dp_group *group,
                             const char *text, size_t max_count, struct dp_comm **out)
{
    const struct asker strategy = {owner, option};

    return comm_create(group, strategy, text, max_count, 0, out);
}

void dp_comm_destroy(struct dp_comm *comm)
{
    if (comm == NULL) {
        return;
    }
    if (comm->state != NULL) {
        comm->strategy->close(comm->state);
        dp_free(comm->state);
    }
    dp_free(comm->parts);
    dp_free(comm->gather);
    dp_free(comm);
}

dp_status dp_comm_check_scratch(const struct dp_comm *comm, const char *who)
{
    const char *why_not;

    return comm->strategy->supports(comm->group, &why_not)
               ? DP_OK
               : DP_FAIL(DP_ERR_UNAVAILABLE,
                         "%s cannot sum by %s here: %s; use comm.strategy direct", who,
                         comm->strategy->plugin.name, why_not);
}

/* A failed sum may leave messages in flight; no wait may be started for their memory. */
static dp_status finished(struct dp_comm *comm, dp_status status)
{
    dp_group_leave(comm->group, status);
    return status;
}

dp_status dp_comm_sum(struct dp_comm *comm, struct dp_slice data, enum dp_keep keep)
{
    assert(!comm->group->guarded || *dp_group_in_job());
    return comm->strategy->sum == NULL
               ? DP_OK
               : finished(comm, comm->strategy->sum(comm->state, data, keep));
}

/* All ranks gather all arrays and add them in tree order. */
static dp_status sum_gathered(struct dp_comm *comm, struct dp_slice data)
{
    struct dp_stream *stream = comm->group->stream;
    float *sum = data.data;

    if (data.count > comm->gather_count) {
        return DP_FAIL(DP_ERR_INTERNAL, "%zu elements, prepared for %zu", data.count,
                       comm->gather_count);
    }
    DP_TRY(dp_group_allgather(comm->group, data.data, dp_slice_bytes(data), comm->gather));
    for (int i = 0; i < comm->group->size; i++) {
        comm->parts[i] = comm->gather + (size_t)i * data.count;
    }
    return stream->ops->sum_tree(stream, &sum, 1, (const float *const *)comm->parts,
                                 comm->group->size, data.count);
}

dp_status dp_comm_sum_exact(struct dp_comm *comm, struct dp_slice data)
{
    assert(!comm->group->guarded || *dp_group_in_job());
    return finished(comm, comm->strategy->sum == NULL
                              ? sum_gathered(comm, data)
                              : comm->strategy->sum(comm->state, data, DP_KEEP_ALL));
}

/* Chunks go round a ring: after size - 1 turns every rank has all of them. */
static dp_status gather_ring(struct dp_group *group, struct dp_slice data)
{
    const int size = group->size, rank = group->rank;
    const int next = (rank + 1) % size, prev = (rank + size - 1) % size;

    for (int turn = 0; turn < size - 1; turn++) {
        const struct dp_slice out = dp_slice_chunk(data, size, (rank - turn + size) % size);
        const struct dp_slice in = dp_slice_chunk(data, size, (rank - turn - 1 + size) % size);
        DP_TRY(dp_group_exchange(group, next, out, prev, in));
    }
    return DP_OK;
}

dp_status dp_comm_gather(struct dp_comm *comm, struct dp_slice data)
{
    const struct dp_strategy *strategy = comm->strategy;
    const bool own =
        strategy->gather != NULL && (!strategy->shared || dp_group_reaches(comm->group, data.data));

    assert(!comm->group->guarded || *dp_group_in_job());
    return finished(comm,
                    own ? strategy->gather(comm->state, data) : gather_ring(comm->group, data));
}

dp_status dp_comm_barrier(struct dp_comm *comm)
{
    assert(!comm->group->guarded || *dp_group_in_job());
    return comm->strategy->barrier != NULL ? comm->strategy->barrier(comm->state)
                                           : dp_group_barrier(comm->group);
}
