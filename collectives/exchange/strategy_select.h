/*
 * strategy_select.h - parses the text of comm.strategy: which sharding, over which strategy, and
 * what `auto` chooses.
 */
#ifndef DP_COLLECTIVES_EXCHANGE_STRATEGY_SELECT_H
#define DP_COLLECTIVES_EXCHANGE_STRATEGY_SELECT_H

#include "collectives/exchange/exchange_config.h"
#include "collectives/exchange/strategy_autotune.h"

/* Whether `text` ("ring", "zero1:over=ring", "auto") names a strategy, or a sharding over one,
 * which keeps the order of sums if `ordered` is set. `problem` says what is wrong. Local. Errors:
 * DP_ERR_CONFIG, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_strategy_select_check(const char *text, bool ordered, char *problem,
                                              size_t problem_size);

/* Whether `text`, which dp_strategy_select_check has accepted, can run in this group: *why_not is
 * NULL, or the reason. Local. Errors: DP_ERR_CONFIG, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_strategy_select_supports(const struct dp_group *group, const char *text,
                                                 const char **why_not);

/* Whether `auto` may have measured that `text` is best, in this group, for gradients of `device`,
 * with or without lanes. Local. */
bool dp_strategy_select_may_measure(const struct dp_group *group, const struct dp_device *device,
                                    bool ordered, const char *text);

struct dp_strategy_selection {
    const char *text; /* "zero1:over=shm": the configuration's, or `name`, or static */
    char name[DP_STRATEGY_AUTOTUNE_TEXT];
    char why[DP_STRATEGY_AUTOTUNE_WHY]; /* why `auto` chose it; empty if the user did */
    bool measured;                      /* whether strategies were timed to choose it */
};

/*
 * Sets *out to comm.strategy or, where that is `auto`, to a choice. With servers that is ps. On
 * GPUs it is nccl where each rank has its own (and lanes do not need the order of the tree), else
 * ipc where ranks reach each other's memory, else staged over one of the following. On hosts it is
 * zero1 over shm where all ranks share a node's memory (shm under local steps); else what
 * dp_strategy_autotune_run finds in 1.2 s for the buckets of `plan`.
 *
 * *out must be zeroed and is not copied afterwards. Collective. Errors: those of
 * dp_strategy_autotune_run.
 */
DP_CHECKED dp_status dp_strategy_select(struct dp_group *group,
                                        const struct dp_exchange_config *config,
                                        const struct dp_bucket_plan *plan,
                                        struct dp_strategy_selection *out);

#endif
