/*
 * run_plan.c - the plan of a run, and its cache. Only rank 0 looks at files; the others get what it
 * found.
 */
#include "runtime/run/run_plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/cache.h"
#include "base/log.h"
#include "collectives/exchange/strategy_select.h"
#include "runtime/config/config_load.h"
#include "runtime/config/config_print.h"
#include "runtime/config/config_rules.h"
#include "runtime/run/plan.h"
#include "runtime/run/run_fingerprint.h"

/* What this run does; overlap: as decided by now. */
static void describe(const struct dp_training *run, struct dp_plan *plan)
{
    const struct dp_exchange *e = dp_trainer_exchange(run->trainer);
    const struct dp_overlap *o = &run->overlap;
    const int wanted = run->config->comm.overlap;

    memset(plan, 0, sizeof(*plan));
    (void)snprintf(plan->strategy, sizeof(plan->strategy), "%s", dp_exchange_label(e));
    (void)snprintf(plan->buckets, sizeof(plan->buckets), "%016" PRIx64, dp_exchange_plan(e)->hash);
    (void)snprintf(plan->reason, sizeof(plan->reason), "%s",
                   run->plan.on ? run->plan.reason : dp_exchange_why(e));
    plan->overlap = wanted;
    if (wanted == DP_OVERLAP_AUTO && o->median_ms[0] > 0.0) {
        plan->overlap = o->on ? DP_OVERLAP_ON : DP_OVERLAP_OFF;
    }
    plan->ranks = dp_exchange_group(e)->size;
    plan->nodes = dp_exchange_group(e)->nodes;
}

/* The resolved configuration, plan and choices in a comment each, and a comment for each bucket;
 * *out is owned by the caller. */
static dp_status config_text(const struct dp_training *run, const char *plan,
                             const char *algo_choices, char **out)
{
    enum { LINE = 120 };
    const struct dp_bucket_plan *buckets = dp_exchange_plan(dp_trainer_exchange(run->trainer));
    const size_t length = dp_config_text_length(run->config_text);
    const size_t size = length + strlen(plan) + (algo_choices != NULL ? strlen(algo_choices) : 0) +
                        (size_t)(buckets->count + 2) * LINE;
    char *text = dp_zalloc(1, size);
    size_t used;

    if (text == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "config.yaml of %zu bytes", size);
    }
    used = (size_t)snprintf(text, size, "%.*s\n%s%s\n", (int)length, run->config_text, DP_PLAN_MARK,
                            plan);
    if (algo_choices != NULL) {
        used += (size_t)snprintf(text + used, size - used, "%s%s\n", DP_PLAN_CHOICES_MARK,
                                 algo_choices);
    }
    for (int b = 0; b < buckets->count; b++) {
        const struct dp_bucket *bucket = &buckets->buckets[b];
        used += (size_t)snprintf(text + used, size - used, "# bucket %d: elements %zu-%zu%s\n", b,
                                 bucket->range.begin, bucket->range.begin + bucket->range.count,
                                 bucket->exact ? ", tail" : "");
    }
    *out = text;
    return DP_OK;
}

static dp_status config_with_plan(const struct dp_training *run, char **out)
{
    char *plan_text = NULL, *algo_choices = NULL;
    struct dp_plan plan;
    dp_status status = DP_OK;

    describe(run, &plan);
    DP_TRY(dp_plan_text(&plan, &plan_text));
    if (run->algo_choices != NULL) {
        status = dp_algo_choices_text(run->algo_choices, false, &algo_choices);
    }
    if (status == DP_OK) {
        status = config_text(run, plan_text, algo_choices, out);
    }
    dp_free(algo_choices);
    dp_free(plan_text);
    return status;
}

dp_status dp_run_write_config(struct dp_training *run)
{
    char path[DP_PATH_BYTES], *text = NULL;
    dp_status status;

    DP_TRY(dp_file_join(path, run->out, "config.yaml"));
    DP_TRY(config_with_plan(run, &text));
    status = dp_file_replace(path, text, strlen(text));
    dp_free(text);
    return status;
}

/* ---- --plan ---- */

/* A key that the plan pins may be left to it, or say the same. */
static dp_status may_pin(const struct dp_training *run, const char *key, const char *pinned)
{
    char value[DP_OPTION_PRINTED], where[256];

    dp_config_value(run->config, key, value, sizeof(value));
    return strcmp(value, "auto") == 0 || strcmp(value, pinned) == 0 || strcmp(pinned, "auto") == 0
               ? DP_OK
               : DP_FAIL(DP_ERR_CONFIG, "%s: is %s, but the plan in %s pins %s: leave it at auto",
                         dp_config_where(run->config, key, where, sizeof(where)), value,
                         run->plan.from, pinned);
}

dp_status dp_run_check_plan(const struct dp_training *run, const struct dp_plan *plan,
                            const char *from)
{
    struct dp_config config = *run->config;
    const struct dp_config_rule *refusal;
    const char *why_not = NULL;
    char problem[256];
    const dp_status status =
        dp_strategy_select_check(plan->strategy, config.train.lanes > 0, problem, sizeof(problem));

    if (status != DP_OK) {
        return DP_FAIL(status, "%s: comm.strategy: %s", from, problem);
    }
    DP_TRY(dp_strategy_select_supports(run->world->train, plan->strategy, &why_not));
    if (why_not != NULL) {
        return DP_FAIL(DP_ERR_UNAVAILABLE,
                       "%s: its strategy %s, taken by %d rank%s on %d node%s, cannot run here: %s",
                       from, plan->strategy, plan->ranks, dp_plural(plan->ranks), plan->nodes,
                       dp_plural(plan->nodes), why_not);
    }
    config.comm.strategy = plan->strategy;
    refusal = dp_config_rule_of_config(&config);
    return refusal == NULL ? DP_OK
                           : DP_FAIL(DP_ERR_CONFIG, "%s: with its strategy %s: %s: %s", from,
                                     plan->strategy, refusal->key, refusal->reason);
}

dp_status dp_run_find_plan(struct dp_training *run)
{
    struct dp_plan *plan = &run->plan;

    if (run->cli->plan == NULL) {
        return DP_OK;
    }
    DP_TRY(dp_plan_read(run->cli->plan, plan));
    (void)snprintf(plan->from, sizeof(plan->from), "%s", run->cli->plan);
    DP_TRY(may_pin(run, "comm.strategy", plan->strategy));
    DP_TRY(may_pin(run, "comm.overlap", dp_plan_overlap_text(plan->overlap)));
    DP_TRY(dp_run_check_plan(run, plan, plan->from));
    (void)snprintf(plan->why, sizeof(plan->why), "pinned by --plan");
    plan->on = true;
    return DP_OK;
}

dp_status dp_run_share_plan(struct dp_training *run)
{
    struct dp_comm_config *comm = &run->config->comm;

    DP_TRY(dp_group_broadcast(run->world->all, &run->plan, sizeof(run->plan), 0));
    if (run->plan.on) {
        comm->strategy = run->plan.strategy;
        comm->recalled = run->cli->plan == NULL;
        comm->overlap = run->plan.overlap != DP_OVERLAP_AUTO ? run->plan.overlap : comm->overlap;
    }
    return DP_OK;
}

/* ---- the cache ---- */

static uint64_t hash_text(const char *text, uint64_t hash)
{
    return XXH3_64bits_withSeed(text, strlen(text) + 1, hash);
}

/* The program itself; its version where it cannot be read. */
static uint64_t hash_program(void)
{
    uint64_t hash = hash_text(DP_VERSION, 0);
    char *text = NULL;
    size_t bytes = 0;

    dp_log_mute(1);
    if (dp_file_read("/proc/self/exe", (size_t)1 << 30, &text, &bytes) == DP_OK) {
        hash = XXH3_64bits_withSeed(text, bytes, hash);
    }
    dp_log_mute(0);
    dp_free(text);
    return hash;
}

static uint64_t hash_key(const struct dp_training *run)
{
    uint64_t hash = hash_text(run->world->library, hash_program());

    for (int i = 0; i < run->world->all->size; i++) {
        hash = hash_text(run->places[i].host, hash + (uint64_t)run->world->all->node_of[i]);
    }
    for (int i = 0; i < run->model->tensor_count; i++) {
        const size_t count = run->model->tensors[i].count;
        hash = XXH3_64bits_withSeed(&count, sizeof(count), hash);
    }
    return dp_run_fingerprint_hash_for_auto(run, hash);
}

/* Whether it is no strategy, or one that can run here. */
static bool may_run(const struct dp_training *run, const char *strategy)
{
    const char *why_not = NULL;
    dp_status status;

    dp_log_mute(1);
    status = dp_strategy_select_supports(run->world->train, strategy, &why_not);
    dp_log_mute(0);
    return status != DP_OK || why_not == NULL;
}

/* Reads what an earlier run has left; what is not as it should be is a warning, and measured
 * anew. What only cannot run for now counts: where gradients are shared it gives way. */
static void look_up(struct dp_training *run)
{
    struct dp_plan found;
    struct stat info;
    dp_status status;

    if (stat(run->plan.cache, &info) != 0) {
        DP_DEBUG("no plan in %s", run->plan.cache);
        return;
    }
    found = run->plan;
    dp_log_soften(true);
    status = dp_plan_read(run->plan.cache, &found);
    if (status == DP_OK && strcmp(found.key, run->plan.key) != 0) {
        status = DP_FAIL(DP_ERR_DATA, "%s is a plan for something else", run->plan.cache);
    }
    if (status == DP_OK && may_run(run, found.strategy) &&
        !dp_strategy_select_may_measure(run->world->train, run->device,
                                        run->config->train.lanes > 0, found.strategy)) {
        status = DP_FAIL(DP_ERR_DATA, "%s: comm.strategy auto does not measure '%s' here",
                         run->plan.cache, found.strategy);
    }
    dp_log_soften(false);
    if (status == DP_OK) {
        (void)snprintf(found.why, sizeof(found.why), "%s; by an earlier run here", found.reason);
        found.on = true;
        found.overlap = DP_OVERLAP_AUTO;
        run->plan = found;
    }
}

/* Rank 0: from the cache, or where in it what is measured goes. */
static void ask_cache(struct dp_training *run)
{
    char name[64];

    (void)snprintf(run->plan.key, sizeof(run->plan.key), "%016" PRIx64, hash_key(run));
    (void)snprintf(name, sizeof(name), "plan-%s.json", run->plan.key);
    if (dp_cache_path(run->plan.cache, name)) {
        look_up(run);
    }
}

dp_status dp_run_recall_plan(struct dp_training *run)
{
    if (run->plan.on || !run->config->comm.plan_cache || run->config->comm.servers > 0 ||
        dp_group_one_node(run->world->train) || strcmp(run->config->comm.strategy, "auto") != 0) {
        return DP_OK;
    }
    if (dp_run_leads(run)) {
        ask_cache(run);
    }
    return dp_run_share_plan(run);
}

/* Rank 0: keeps what was measured. That it cannot be kept is nobody's problem. */
static void keep(const struct dp_training *run)
{
    struct dp_plan plan;
    char *text = NULL;

    describe(run, &plan);
    plan.overlap = DP_OVERLAP_AUTO;
    memcpy(plan.key, run->plan.key, sizeof(plan.key));
    if (dp_plan_text(&plan, &text) == DP_OK) {
        dp_cache_keep(run->plan.cache, text);
    }
    dp_free(text);
}

dp_status dp_run_note_plan(struct dp_training *run)
{
    const struct dp_exchange *e = dp_trainer_exchange(run->trainer);
    char buckets[17];

    (void)snprintf(buckets, sizeof(buckets), "%016" PRIx64, dp_exchange_plan(e)->hash);
    if (run->cli->plan != NULL && strcmp(buckets, run->plan.buckets) != 0) {
        return DP_FAIL(DP_ERR_CONFIG,
                       "%s: its plan is for another model, or other bucket sizes: it cuts the "
                       "gradient elsewhere",
                       run->plan.from);
    }
    if (run->plan.on && dp_exchange_measured(e)) { /* it could not run: for now, another one does */
        run->plan.on = false;
        run->plan.why[0] = '\0';
    } else if (dp_run_leads(run) && dp_exchange_measured(e) && run->plan.cache[0] != '\0') {
        keep(run);
    }
    return DP_OK;
}
