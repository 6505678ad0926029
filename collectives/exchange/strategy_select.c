#include "collectives/exchange/strategy_select.h"

#include <stdio.h>
#include <string.h>

#include "collectives/exchange/sharding.h"
#include "collectives/exchange/strategy_candidates.h"
#include "collectives/gpu/gpu_peers.h"
#include "collectives/strategies/comm.h"

enum { AUTOTUNE_MS = 1200 };

static const struct dp_strategy *find(const char *text)
{
    return (const struct dp_strategy *)dp_plugin_find(&dp_strategies, text, strcspn(text, ":"));
}

/* Why the strategy is not suitable; NULL: it is. */
static const char *objection(const struct dp_group *group, bool ordered, const char *name)
{
    const struct dp_strategy *strategy = find(name);
    const char *why_not = "it is not built in";

    if (strategy == NULL || !strategy->supports(group, &why_not)) {
        return why_not;
    }
    return ordered && !strategy->ordered ? "it keeps no order of sums" : NULL;
}

/* Sets out->text to "nccl" (one rank per GPU, any order of sums), else "ipc", else NULL: through
 * the host. */
static dp_status select_on_gpus(struct dp_group *group, const struct dp_exchange_config *config,
                                struct dp_strategy_selection *out)
{
    static const char *const names[] = {"nccl", "ipc"};
    static const char *const reasons[] = {"one rank a GPU", "ranks reach each other's GPU memory"};
    char why_not[DP_GPU_PEERS_WHY];
    size_t used = 0;

    out->text = NULL;
    if (dp_exchange_compresses(config)) {
        (void)snprintf(out->why, sizeof(out->why), "codes of compressors cross over the host");
        return DP_OK;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        DP_TRY(dp_gpu_peers_object(group, objection(group, config->ordered, names[i]), why_not));
        if (why_not[0] == '\0') {
            (void)snprintf(out->why + used, sizeof(out->why) - used, "%s%s", used > 0 ? "; " : "",
                           reasons[i]);
            out->text = names[i];
            return DP_OK;
        }
        used += (size_t)snprintf(out->why + used, sizeof(out->why) - used, "%snot %s: %.70s",
                                 used > 0 ? "; " : "", names[i], why_not);
        used = used < sizeof(out->why) ? used : sizeof(out->why) - 1;
    }
    return DP_OK;
}

static const char over_staged[] = "staged:over=";

static dp_status stage_over(struct dp_strategy_selection *out, const char *over)
{
    (void)snprintf(out->name, sizeof(out->name), "%s%.50s", over_staged, over);
    out->text = out->name;
    return DP_OK;
}

bool dp_strategy_select_may_measure(const struct dp_group *group, const struct dp_device *device,
                                    bool ordered, const char *text)
{
    const size_t length = device->host_memory ? 0 : strlen(over_staged);
    struct dp_group asked = *group; /* the order that the group will have; it is set when an
                                     * exchange is made */

    asked.ordered = ordered;
    return strncmp(text, over_staged, length) == 0 &&
           dp_strategy_candidate_runs(&asked, text + length);
}

/* Drops the strategy on all ranks if it cannot run on one; they may be on different machines. */
static dp_status drop_if_it_cannot_run(struct dp_group *group, const char **text)
{
    const char *why_not;
    dp_status worst;

    DP_TRY(dp_strategy_select_supports(group, *text, &why_not));
    worst = dp_group_agree(group, why_not != NULL ? DP_ERR_UNAVAILABLE : DP_OK);
    *text = worst == DP_ERR_UNAVAILABLE ? "auto" : *text;
    return worst == DP_ERR_UNAVAILABLE ? DP_OK : worst;
}

/* Adds the fastest to out->why, which already says why not on GPUs. */
static dp_status select_fastest(struct dp_group *group, const struct dp_exchange_config *config,
                                const struct dp_bucket_plan *plan,
                                struct dp_strategy_selection *out)
{
    const struct dp_strategy_autotune_config autotune = {
        .plan = plan,
        .compressor = config->compressor,
        .budget_s = AUTOTUNE_MS / 1e3,
    };
    struct dp_strategy_autotune_result fastest;
    char why_not[DP_STRATEGY_AUTOTUNE_WHY];

    DP_TRY(dp_strategy_autotune_run(group, &autotune, &fastest));
    memcpy(why_not, out->why, sizeof(why_not));
    if (why_not[0] == '\0') {
        (void)snprintf(out->why, sizeof(out->why), "%s", fastest.why);
    } else {
        (void)snprintf(out->why, sizeof(out->why), "%.110s; %.70s", why_not, fastest.why);
    }
    out->measured = true;
    if (!config->device->host_memory) {
        return stage_over(out, fastest.strategy);
    }
    memcpy(out->name, fastest.strategy, sizeof(out->name));
    out->text = out->name;
    return DP_OK;
}

/*
 * The meaning of `auto`. With servers: ps. Ranks that can share one copy of the weights do so
 * (measured: it takes less of the caches, and half of the optimizer's work for two ranks). Others
 * are replicated, over the strategy that is measured to sum fastest.
 */
dp_status dp_strategy_select(struct dp_group *group, const struct dp_exchange_config *config,
                             const struct dp_bucket_plan *plan, struct dp_strategy_selection *out)
{
    const bool one_memory = dp_group_one_node(group) && !group->unshared;

    out->text = config->strategy;
    DP_TRY(config->recalled ? drop_if_it_cannot_run(group, &out->text) : DP_OK);
    if (strcmp(out->text, "auto") != 0 || group->size == 1) {
        return DP_OK;
    }
    if (config->servers == 0 && group->gpus != NULL) {
        DP_TRY(select_on_gpus(group, config, out));
        if (out->text != NULL) {
            return DP_OK;
        }
    }
    if (config->servers > 0) {
        out->text = "ps";
        return DP_OK;
    }
    if (one_memory && config->device->host_memory) {
        out->text = config->whole ? "auto" : "zero1";
        return DP_OK;
    }
    return one_memory ? stage_over(out, "shm") : select_fastest(group, config, plan, out);
}

static dp_status check_strategy(const struct dp_sharding *sharding,
                                const struct dp_strategy *strategy, const void *state, bool ordered,
                                char *problem, size_t problem_size)
{
    if (strategy->check != NULL) {
        DP_TRY(strategy->check(state, problem, problem_size));
    }
    if (strategy->sum == NULL && !dp_sharding_is_plain(sharding)) {
        (void)snprintf(problem, problem_size, "%s needs a strategy that shares gradients, not %s",
                       sharding->plugin.name, strategy->plugin.name);
        return DP_ERR_CONFIG;
    }
    return ordered ? dp_comm_check_order(strategy, state, NULL, problem, problem_size) : DP_OK;
}

/* Whether the text begins with `auto`, a strategy, or, if `shardings`, a sharding. */
static dp_status check_name(const char *text, bool shardings, char *problem, size_t size)
{
    static const char automatic[] = "auto";
    const struct dp_plugin_names names = {automatic, &dp_strategies,
                                          shardings ? &dp_shardings : NULL};
    const size_t length = strcspn(text, ":");

    if (strcmp(text, automatic) == 0 || dp_plugin_find(&dp_strategies, text, length) != NULL ||
        (shardings && dp_plugin_find(&dp_shardings, text, length) != NULL)) {
        return DP_OK;
    }
    if (length == sizeof(automatic) - 1 && memcmp(text, automatic, length) == 0) {
        (void)snprintf(problem, size, "auto: it has no options: '%s'", text);
    } else {
        dp_plugin_say_unknown(&names, text, length, problem, size);
    }
    return DP_ERR_CONFIG;
}

dp_status dp_strategy_select_check(const char *text, bool ordered, char *problem,
                                   size_t problem_size)
{
    const struct dp_sharding *sharding;
    const struct dp_plugin *plugin;
    const char *strategy;
    void *sharding_state, *state = NULL;
    dp_status status = DP_OK;

    DP_TRY(check_name(text, true, problem, problem_size));
    DP_TRY(dp_sharding_create(text, &sharding, &sharding_state, &strategy, problem, problem_size));
    if (strategy != text) {
        status = check_name(strategy, false, problem, problem_size);
    }
    if (status == DP_OK && strcmp(strategy, "auto") != 0) {
        status = dp_plugin_create(&dp_strategies, strategy, &plugin, &state, problem, problem_size);
        if (status == DP_OK) {
            status = check_strategy(sharding, (const struct dp_strategy *)plugin, state, ordered,
                                    problem, problem_size);
        }
        dp_free(state);
    }
    dp_free(sharding_state);
    return status;
}

dp_status dp_strategy_select_supports(const struct dp_group *group, const char *text,
                                      const char **why_not)
{
    const struct dp_sharding *sharding;
    const struct dp_plugin *plugin;
    const char *strategy, *reason;
    char problem[256];
    void *state;
    const dp_status status =
        dp_sharding_create(text, &sharding, &state, &strategy, problem, sizeof(problem));

    if (status != DP_OK) {
        return DP_FAIL(status, "comm.strategy: %s", problem);
    }
    strategy = strcmp(strategy, "auto") == 0 ? dp_strategy_choose(group, &reason) : strategy;
    plugin = dp_plugin_find(&dp_strategies, strategy, strcspn(strategy, ":"));
    dp_free(state);
    if (plugin == NULL) {
        return DP_FAIL(DP_ERR_CONFIG, "comm.strategy: unknown strategy in '%s'", text);
    }
    *why_not = NULL;
    if (!((const struct dp_strategy *)plugin)->supports(group, &reason)) {
        *why_not = reason;
    }
    return DP_OK;
}
