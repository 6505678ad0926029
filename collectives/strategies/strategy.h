/*
 * strategy.h - the ways to sum a gradient over all ranks.
 *
 * To add one: write strategy_<name>.c defining `const struct dp_strategy dp_strategy_<name>`, and
 * add one line to strategies.def. The conformance test then covers it; what it sends, and to whom,
 * is compared with its literature where tests/support/strategies/strategy_traffic.c has a row.
 */
#ifndef DP_COLLECTIVES_STRATEGIES_STRATEGY_H
#define DP_COLLECTIVES_STRATEGIES_STRATEGY_H

#include "base/plugin.h"
#include "collectives/core/group.h"
#include "collectives/strategies/cost.h"

struct dp_strategy {
    struct dp_plugin plugin; /* name, help, options, state_bytes */
    bool gpus;               /* only for gradients on GPUs */
    bool on_gpus;  /* data is from dp_gpu_peers_memory(); functions queue work on the stream of
                   * group->gpus, and may return before it is done. Else data is the host's */
    bool ordered;  /* adds in the fixed binary tree over ranks, so lanes may use it; see below */
    bool shared;   /* data must lie in memory from dp_group_memory() */
    bool compares; /* only for comparisons: `auto` does not choose it */

    /* Where it depends on the group, whether `ordered` holds in this one. Only options of `state`
     * are read, so it need not be open. Local. NULL: in every group. */
    bool (*keeps_order)(const void *state, const struct dp_group *group);

    /* For options that name other strategies: whether those are usable; `problem` says what is
     * wrong. `state` need not be open. Local. Errors: DP_ERR_CONFIG, DP_ERR_NOMEM. NULL: no such
     * options. */
    dp_status (*check)(const void *state, char *problem, size_t problem_size);

    /* Whether the strategy can run in this group, or why not. Local: no communication. */
    bool (*supports)(const struct dp_group *group, const char **why_not);

    /* Prepares for slices of up to max_count elements. Collective. On error everything is released
     * and close() must not be called. */
    dp_status (*open)(void *state, struct dp_group *group, size_t max_count);

    /* Sums float32 `data` over ranks, in place: all of it on every rank (the same bits), or only
     * this rank's chunk. Afterwards no peer reads or writes `data` any more. Collective. Allocates
     * nothing. NULL: gradients are not shared. */
    dp_status (*sum)(void *state, struct dp_slice data, enum dp_keep keep);

    /* Bytes: chunk r of `data` comes from rank r (dp_slice_chunk). Afterwards all of it is on every
     * rank, and no peer reads or writes it any more. Collective. NULL: around a ring (comm.c). */
    dp_status (*gather)(void *state, struct dp_slice data);

    /* As dp_group_barrier. Collective. NULL: by messages. */
    dp_status (*barrier)(void *state);

    /* Predicts the seconds that a sum of `bytes` takes with DP_KEEP_ALL. Only options of `state`
     * are read, so it need not be open. Local. NULL, or NaN: no prediction. */
    double (*cost)(const void *state, const struct dp_cost *cost, const struct dp_group *group,
                   size_t bytes);

    /* Called between sums: whether queued work has failed since. Local. NULL: sum() reports it. */
    dp_status (*poll)(void *state);

    /* Releases all that open() allocated. */
    void (*close)(void *state);
};

extern struct dp_plugin_family dp_strategies;

/* Why no run of this build on this machine can take the strategy, for people: it is for GPUs, and
 * there are none. NULL: it may run, if its group can (`supports`). Local. */
const char *dp_strategy_not_here(const struct dp_strategy *strategy);

/* The strategy that `auto` chooses for this group, and why, for the banner. It keeps the order of
 * sums where group->ordered is set. Local. */
const char *dp_strategy_choose(const struct dp_group *group, const char **reason);

/* Whether `text` is "auto" or names a strategy of the host that shares gradients, as `option` of
 * strategy `owner` requires; `problem` says what is wrong. Local. Errors: DP_ERR_CONFIG,
 * DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_strategy_check_option(const char *owner, const char *option,
                                              const char *text, char *problem, size_t problem_size);

/* Whether a strategy with these options adds in the fixed binary tree over the ranks of a group.
 * Only the group's ranks and nodes are read. group NULL: whether it does in some group. Local. */
bool dp_strategy_keeps_order(const struct dp_strategy *strategy, const void *state,
                             const struct dp_group *group);

/* The same for a text ("hier:outer=direct", "auto"); false if it names no strategy. Local. */
bool dp_strategy_ordered(const char *text, const struct dp_group *group);

/* dp_strategy.cost for a text ("ring:segment_kb=64", "auto"); NaN where there is no prediction.
 * Only the group's ranks and nodes are read. Local. */
double dp_strategy_cost(const char *text, const struct dp_cost *cost, const struct dp_group *group,
                        size_t bytes);

#endif
