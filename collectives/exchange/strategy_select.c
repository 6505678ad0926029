/*
 * strategy_select.c - what the text of comm.strategy means: which sharing, over which strategy, and
 * what `auto` takes.
 */
#include <stdio.h>
#include <string.h>

#include "collectives/exchange/exchange.h"
#include "collectives/gpu/gpu_peers.h"

static const struct dp_strategy *find(const char *text)
{
    return (const struct dp_strategy *)dp_plugin_find(&dp_strategies, text, strcspn(text, ":"));
}

/* Why the strategy will not do; NULL: it will. */
static const char *objection(const struct dp_exchange *e, const struct dp_exchange_config *config,
                             const char *name)
{
    const struct dp_strategy *strategy = find(name);
    const char *why_not = "it is not built in";

    if (strategy == NULL || !strategy->supports(e->group, &why_not)) {
        return why_not;
    }
    return config->ordered && !strategy->ordered ? "it keeps no order of sums" : NULL;
}

/* *text becomes "nccl" (one rank a GPU, any order of sums), else "ipc", else NULL: by way of the
 * host. */
static dp_status choose_gpus(struct dp_exchange *e, const struct dp_exchange_config *config,
                             const char **text)
{
    static const char *const names[] = {"nccl", "ipc"};
    static const char *const reasons[] = {"one rank a GPU", "ranks reach each other's GPU memory"};
    const bool coded = config->compressor != NULL && strcmp(config->compressor, "none") != 0;
    char why_not[DP_GPU_PEERS_WHY];
    size_t used = 0;

    *text = NULL;
    if (coded) {
        (void)snprintf(e->why, sizeof(e->why), "codes of compressors cross over the host");
        return DP_OK;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        DP_TRY(dp_gpu_peers_object(e->group, objection(e, config, names[i]), why_not));
        if (why_not[0] == '\0') {
            (void)snprintf(e->why + used, sizeof(e->why) - used, "%s%s", used > 0 ? "; " : "",
                           reasons[i]);
            *text = names[i];
            return DP_OK;
        }
        used += (size_t)snprintf(e->why + used, sizeof(e->why) - used, "%snot %s: %.70s",
                                 used > 0 ? "; " : "", names[i], why_not);
        used = used < sizeof(e->why) ? used : sizeof(e->why) - 1;
    }
    return DP_OK;
}

static const char over_staged[] = "staged:over=";

static dp_status stage_over(struct dp_strategy_autotune_result *room, const char *over,
                            const char **text)
{
    (void)snprintf(room->strategy, sizeof(room->strategy), "%s%.50s", over_staged, over);
    *text = room->strategy;
    return DP_OK;
}

bool dp_exchange_may_measure(const struct dp_group *group, const struct dp_device *device,
                             bool ordered, const char *text)
{
    const size_t length = device->host_memory ? 0 : strlen(over_staged);
    struct dp_group asked = *group; /* whose own order is set when an exchange is made */

    asked.ordered = ordered;
    return strncmp(text, over_staged, length) == 0 &&
           dp_strategy_autotune_admits(&asked, text + length);
}

/* Ranks may see different machines: where one cannot run it, none does. */
static dp_status drop_if_it_cannot_run(struct dp_group *group, const char **text)
{
    const char *why_not;
    dp_status worst;

    DP_TRY(dp_exchange_supports(group, *text, &why_not));
    worst = dp_group_agree(group, why_not != NULL ? DP_ERR_UNAVAILABLE : DP_OK);
    *text = worst == DP_ERR_UNAVAILABLE ? "auto" : *text;
    return worst == DP_ERR_UNAVAILABLE ? DP_OK : worst;
}

/*
 * What `auto` means: servers serve; ranks that can share one copy of the weights do (measured: less
 * of the caches, half of the optimizer's work for two ranks); others are replicated, over what is
 * measured to sum fastest. `room` keeps the name of that.
 */
dp_status dp_exchange_choose(struct dp_exchange *e, const struct dp_exchange_config *config,
                             struct dp_strategy_autotune_result *room, const char **text)
{
    struct dp_group *group = e->group;
    const bool shared = dp_group_one_node(group) && !group->apart;
    const bool here = config->device->host_memory;
    const char *compressor = config->compressor;

    *text = config->strategy;
    DP_TRY(config->recalled ? drop_if_it_cannot_run(group, text) : DP_OK);
    if (strcmp(*text, "auto") != 0 || group->size == 1) {
        return DP_OK;
    }
    if (config->servers == 0 && group->gpus != NULL) {
        DP_TRY(choose_gpus(e, config, text));
        if (*text != NULL) {
            return DP_OK;
        }
    }
    if (config->servers > 0 || (shared && here)) {
        *text = config->servers > 0 ? "ps" : config->whole ? "auto" : "zero1";
        return DP_OK;
    }
    if (shared) {
        return stage_over(room, "shm", text);
    }
    const struct dp_strategy_autotune_config autotune = {
        .plan = e->plan,
        .tail_alone = compressor != NULL && strcmp(compressor, "none") != 0,
        .budget_s = DP_EXCHANGE_AUTOTUNE_S,
    };
    DP_TRY(dp_strategy_autotune_run(group, &autotune, room));
    if (e->why[0] == '\0') {
        (void)snprintf(e->why, sizeof(e->why), "%s", room->why);
    } else { /* why not on GPUs, and the winner */
        char why_not[DP_STRATEGY_AUTOTUNE_WHY];
        memcpy(why_not, e->why, sizeof(why_not));
        (void)snprintf(e->why, sizeof(e->why), "%.110s; %.70s", why_not, room->why);
    }
    e->measured = true;
    if (!here) {
        char over[DP_STRATEGY_AUTOTUNE_TEXT];
        (void)snprintf(over, sizeof(over), "%s", room->strategy);
        return stage_over(room, over, text);
    }
    *text = room->strategy;
    return DP_OK;
}

/* "zero1:over=ring" or "ring": makes the state of the sharing, which the caller releases, and finds
 * the strategy over which it works. */
dp_status dp_exchange_find_sharding(const char *text, const struct dp_sharding **sharding,
                                    void **state, const char **strategy, char *problem,
                                    size_t problem_size)
{
    const bool named = dp_plugin_find(&dp_shardings, text, strcspn(text, ":")) != NULL;
    const struct dp_plugin *plugin;

    DP_TRY(dp_plugin_create(&dp_shardings, named ? text : dp_plugin_at(&dp_shardings, 0)->name,
                            &plugin, state, problem, problem_size));
    *sharding = (const struct dp_sharding *)plugin;
    *strategy = named ? (*sharding)->over(*state) : text;
    return DP_OK;
}

bool dp_exchange_may_defer(const struct dp_exchange *e, const struct dp_exchange_config *config)
{
    const char *text = config->strategy;
    const struct dp_plugin *sharding = dp_plugin_find(&dp_shardings, text, strcspn(text, ":"));
    /* One that is not named is the first; `auto` takes that, too, on several nodes. */
    const bool replicated = sharding == NULL || sharding == dp_plugin_at(&dp_shardings, 0);

    return config->deferred && e->group->nodes > 1 && config->servers == 0 && !config->whole &&
           config->device->host_memory && replicated && strcmp(text, "none") != 0 &&
           dp_compressor_is_elementwise(config->compressor);
}

static dp_status check_strategy(const struct dp_sharding *sharding,
                                const struct dp_strategy *strategy, const void *state, bool ordered,
                                char *problem, size_t problem_size)
{
    if (strategy->check != NULL) {
        DP_TRY(strategy->check(state, problem, problem_size));
    }
    if (strategy->sum == NULL && &sharding->plugin != dp_plugin_at(&dp_shardings, 0)) {
        (void)snprintf(problem, problem_size, "%s needs a strategy that shares gradients, not %s",
                       sharding->plugin.name, strategy->plugin.name);
        return DP_ERR_CONFIG;
    }
    return ordered ? dp_comm_check_order(strategy, state, NULL, problem, problem_size) : DP_OK;
}

/* Whether `auto`, a strategy, or, if `shardings`, one of those stands first. */
static dp_status check_name(const char *text, bool sharings, char *problem, size_t size)
{
    static const char automatic[] = "auto";
    const struct dp_plugin_names names = {automatic, &dp_strategies,
                                          sharings ? &dp_shardings : NULL};
    const size_t length = strcspn(text, ":");

    if (strcmp(text, automatic) == 0 || dp_plugin_find(&dp_strategies, text, length) != NULL ||
        (sharings && dp_plugin_find(&dp_shardings, text, length) != NULL)) {
        return DP_OK;
    }
    if (length == sizeof(automatic) - 1 && memcmp(text, automatic, length) == 0) {
        (void)snprintf(problem, size, "auto: it has no options: '%s'", text);
    } else {
        dp_plugin_say_unknown(&names, text, length, problem, size);
    }
    return DP_ERR_CONFIG;
}

dp_status dp_exchange_check(const char *text, bool ordered, char *problem, size_t problem_size)
{
    const struct dp_sharding *sharding;
    const struct dp_plugin *plugin;
    const char *strategy;
    void *sharding_state, *state = NULL;
    dp_status status = DP_OK;

    DP_TRY(check_name(text, true, problem, problem_size));
    DP_TRY(dp_exchange_find_sharding(text, &sharding, &sharding_state, &strategy, problem,
                                     problem_size));
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

dp_status dp_exchange_supports(const struct dp_group *group, const char *text, const char **why_not)
{
    const struct dp_sharding *sharding;
    const struct dp_plugin *plugin;
    const char *strategy, *reason;
    char problem[256];
    void *state;
    const dp_status status =
        dp_exchange_find_sharding(text, &sharding, &state, &strategy, problem, sizeof(problem));

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
