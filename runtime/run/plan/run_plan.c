/*
 * run_plan.c - the plan of a run, and its cache. Only rank 0 looks at files; the others get what it
 * found.
 */
#include "runtime/run/plan/run_plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/files/cache.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/system/wire.h"
#include "collectives/exchange/strategy_select.h"
#include "collectives/world/host_names.h"
#include "runtime/config/config_load.h"
#include "runtime/config/config_print.h"
#include "runtime/config/config_rules.h"
#include "runtime/run/plan/plan.h"
#include "runtime/run/plan/run_fingerprint.h"

extern char **environ;

/* The plan of this run; overlap as far as it is decided. */
static void describe(const struct dp_run_job *job, struct dp_plan *plan)
{
    const struct dp_exchange *e = dp_trainer_exchange(job->trainer);
    const struct dp_overlap *o = &job->overlap;
    const int wanted = job->config->comm.overlap;

    memset(plan, 0, sizeof(*plan));
    (void)snprintf(plan->strategy, sizeof(plan->strategy), "%s", dp_exchange_label(e));
    (void)snprintf(plan->buckets, sizeof(plan->buckets), "%016" PRIx64, dp_exchange_plan(e)->hash);
    (void)snprintf(plan->reason, sizeof(plan->reason), "%s",
                   job->plan.on ? job->plan.reason : dp_exchange_why(e));
    plan->overlap = wanted;
    if (wanted == DP_OVERLAP_AUTO && o->median_ms[0] > 0.0) {
        plan->overlap = o->on ? DP_OVERLAP_ON : DP_OVERLAP_OFF;
    }
    plan->ranks = dp_exchange_group(e)->size;
    plan->nodes = dp_exchange_group(e)->nodes;
}

/* The resolved configuration, plan and choices in a comment each, and a comment for each bucket;
 * *out is owned by the caller. */
static dp_status config_text(const struct dp_run_job *job, const char *plan,
                             const char *algo_choices, char **out)
{
    enum { LINE = 120 };
    const struct dp_bucket_plan *buckets = dp_exchange_plan(dp_trainer_exchange(job->trainer));
    const size_t length = dp_config_text_length(job->config_text);
    const size_t size = length + strlen(plan) + (algo_choices != NULL ? strlen(algo_choices) : 0) +
                        (size_t)(buckets->count + 2) * LINE;
    char *text = dp_zalloc(1, size);
    size_t used;

    if (text == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "config.yaml of %zu bytes", size);
    }
    used = (size_t)snprintf(text, size, "%.*s\n%s%s\n", (int)length, job->config_text, DP_PLAN_MARK,
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

static dp_status config_with_plan(const struct dp_run_job *job, char **out)
{
    char *plan_text = NULL, *algo_choices = NULL;
    struct dp_plan plan;
    dp_status status = DP_OK;

    describe(job, &plan);
    DP_TRY(dp_plan_text(&plan, &plan_text));
    if (job->algo_choices != NULL) {
        status = dp_algo_choices_text(job->algo_choices, false, &algo_choices);
    }
    if (status == DP_OK) {
        status = config_text(job, plan_text, algo_choices, out);
    }
    dp_free(algo_choices);
    dp_free(plan_text);
    return status;
}

dp_status dp_run_write_config(const struct dp_run_job *job)
{
    char path[DP_PATH_BYTES], *text = NULL;
    dp_status status;

    DP_TRY(dp_file_join(path, job->output.path, "config.yaml"));
    DP_TRY(config_with_plan(job, &text));
    status = dp_file_replace(path, text, strlen(text));
    dp_free(text);
    return status;
}

dp_status dp_run_keep_config(struct dp_run_job *job)
{
    const size_t length = dp_config_text_length(job->config_text);

    job->config_alone = dp_zalloc(1, length + 1);
    if (job->config_alone == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "configuration of %zu bytes", length);
    }
    memcpy(job->config_alone, job->config_text, length);
    return DP_OK;
}

/* ---- --plan ---- */

/* A key that the plan pins must be auto, or have the same value. */
static dp_status may_pin(const struct dp_run_job *job, const char *key, const char *pinned)
{
    char value[DP_OPTION_PRINTED], where[256];

    dp_config_value(job->config, key, value, sizeof(value));
    return strcmp(value, "auto") == 0 || strcmp(value, pinned) == 0 || strcmp(pinned, "auto") == 0
               ? DP_OK
               : DP_FAIL(DP_ERR_CONFIG, "%s: is %s, but the plan in %s pins %s: leave it at auto",
                         dp_config_where(job->config, key, where, sizeof(where)), value,
                         job->plan.from, pinned);
}

dp_status dp_run_check_plan(const struct dp_run_job *job, const struct dp_plan *plan,
                            const char *from)
{
    struct dp_config config = *job->config;
    const struct dp_config_rule *refusal;
    const char *why_not = NULL;
    char problem[256];
    const dp_status status =
        dp_strategy_select_check(plan->strategy, config.train.lanes > 0, problem, sizeof(problem));

    if (status != DP_OK) {
        return DP_FAIL(status, "%s: comm.strategy: %s", from, problem);
    }
    DP_TRY(dp_strategy_select_supports(job->world->train, plan->strategy, &why_not));
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

dp_status dp_run_find_plan(struct dp_run_job *job)
{
    struct dp_plan *plan = &job->plan;

    if (job->options->plan == NULL) {
        return DP_OK;
    }
    DP_TRY(dp_file_of_flag("--plan", job->options->plan));
    DP_TRY(dp_plan_read(job->options->plan, plan));
    (void)snprintf(plan->from, sizeof(plan->from), "%s", job->options->plan);
    DP_TRY(may_pin(job, "comm.strategy", plan->strategy));
    DP_TRY(may_pin(job, "comm.overlap", dp_plan_overlap_text(plan->overlap)));
    DP_TRY(dp_run_check_plan(job, plan, plan->from));
    (void)snprintf(plan->why, sizeof(plan->why), "pinned by --plan");
    plan->on = true;
    return DP_OK;
}

static dp_status share_plan(struct dp_run_job *job, struct dp_group *group)
{
    struct dp_comm_config *comm = &job->config->comm;

    DP_TRY(dp_group_broadcast(group, &job->plan, sizeof(job->plan), 0));
    if (job->plan.on) {
        comm->strategy = job->plan.strategy;
        comm->recalled = job->options->plan == NULL;
        comm->overlap = job->plan.overlap != DP_OVERLAP_AUTO ? job->plan.overlap : comm->overlap;
    }
    return DP_OK;
}

dp_status dp_run_share_plan(struct dp_run_job *job)
{
    return share_plan(job, job->world->all);
}

/* ---- the cache ---- */

static uint64_t hash_text(const char *text, uint64_t hash)
{
    return XXH3_64bits_withSeed(text, strlen(text) + 1, hash);
}

/* Of the program file; of its version where that cannot be read. */
static uint64_t hash_program(void)
{
    uint64_t hash = hash_text(DP_VERSION, 0);
    struct dp_log_capture capture;
    char *text = NULL;
    size_t bytes = 0;

    dp_log_capture_begin(&capture, DP_LOG_DEBUG);
    if (dp_file_read("/proc/self/exe", (size_t)1 << 30, &text, &bytes) == DP_OK) {
        hash = XXH3_64bits_withSeed(text, bytes, hash);
    }
    dp_log_capture_end(&capture, DP_LOG_DROP);
    dp_free(text);
    return hash;
}

/* wires: dp_wire_hash() of each rank. */
static uint64_t hash_key(const struct dp_run_job *job, const uint64_t *wires)
{
    uint64_t hash = hash_text(job->world->library, hash_program());

    for (int i = 0; i < job->world->train->size; i++) {
        hash = hash_text(dp_host_names_of(job->world->hosts, i),
                         hash + (uint64_t)job->world->train->node_of[i]);
        hash = XXH3_64bits_withSeed(&wires[i], sizeof(wires[i]), hash);
    }
    for (int i = 0; i < job->model->tensor_count; i++) {
        const size_t count = job->model->tensors[i].count;
        hash = XXH3_64bits_withSeed(&count, sizeof(count), hash);
    }
    return dp_run_fingerprint_hash_for_auto(job, hash);
}

/* Whether it can run here; also true where it is no strategy. */
static bool may_run(const struct dp_run_job *job, const char *strategy)
{
    struct dp_log_capture capture;
    const char *why_not = NULL;
    dp_status status;

    dp_log_capture_begin(&capture, DP_LOG_DEBUG);
    status = dp_strategy_select_supports(job->world->train, strategy, &why_not);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    return status != DP_OK || why_not == NULL;
}

/* Reads what an earlier run has kept. A damaged file is a warning; then `auto` measures again. A
 * strategy that only cannot run for now is taken: where it is made, another one replaces it. */
static void look_up(struct dp_run_job *job)
{
    struct dp_log_capture capture;
    struct dp_plan found;
    struct stat info;
    dp_status status;

    if (stat(job->plan.cache, &info) != 0) {
        DP_DEBUG("no plan in %s", job->plan.cache);
        return;
    }
    found = job->plan;
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = dp_plan_read(job->plan.cache, &found);
    if (status == DP_OK && strcmp(found.key, job->plan.key) != 0) {
        status = DP_FAIL(DP_ERR_DATA, "%s is a plan for something else", job->plan.cache);
    }
    if (status == DP_OK && may_run(job, found.strategy) &&
        !dp_strategy_select_may_measure(job->world->train, job->device,
                                        job->config->train.lanes > 0, found.strategy)) {
        status = DP_FAIL(DP_ERR_DATA, "%s: comm.strategy auto does not measure '%s' here",
                         job->plan.cache, found.strategy);
    }
    dp_log_capture_end(&capture, DP_LOG_SOFTEN);
    if (status == DP_OK) {
        (void)snprintf(found.why, sizeof(found.why), "%s; by an earlier run here", found.reason);
        found.on = true;
        found.overlap = DP_OVERLAP_AUTO;
        job->plan = found;
    }
}

/* Rank 0: the plan in the cache, or the path where one will be kept. */
static void ask_cache(struct dp_run_job *job, const uint64_t *wires)
{
    char name[64];

    (void)snprintf(job->plan.key, sizeof(job->plan.key), "%016" PRIx64, hash_key(job, wires));
    (void)snprintf(name, sizeof(name), "plan-%s.json", job->plan.key);
    if (dp_cache_path(job->plan.cache, name)) {
        look_up(job);
    }
}

/* dp_wire_hash() of every rank, on rank 0; *wires is owned by the caller. Collective. */
static dp_status gather_wires(struct dp_group *group, uint64_t **wires)
{
    const uint64_t mine = dp_wire_hash(DP_WIRE_FOLDER, environ);
    dp_status status = DP_OK;

    *wires = dp_zalloc((size_t)group->size, sizeof(**wires));
    if (*wires == NULL) {
        status = DP_FAIL(DP_ERR_NOMEM, "wires of %d ranks", group->size);
    }
    DP_TRY(dp_group_agree(group, status));
    return dp_group_gather(group, &mine, sizeof(mine), *wires);
}

dp_status dp_run_recall_plan(struct dp_run_job *job)
{
    uint64_t *wires;
    dp_status status;

    if (job->world->train == NULL || job->plan.on || !job->config->comm.plan_cache ||
        job->config->comm.servers > 0 || dp_group_one_node(job->world->train) ||
        strcmp(job->config->comm.strategy, "auto") != 0) {
        return DP_OK;
    }
    status = gather_wires(job->world->train, &wires);
    if (status == DP_OK && dp_run_leads(job)) {
        ask_cache(job, wires);
    }
    dp_free(wires);
    return status == DP_OK ? share_plan(job, job->world->train) : status;
}

/* Rank 0: keeps what was measured, if it can. */
static void keep(const struct dp_run_job *job)
{
    struct dp_plan plan;
    char *text = NULL;

    describe(job, &plan);
    plan.overlap = DP_OVERLAP_AUTO;
    memcpy(plan.key, job->plan.key, sizeof(plan.key));
    if (dp_plan_text(&plan, &text) == DP_OK) {
        dp_cache_keep(job->plan.cache, text);
    }
    dp_free(text);
}

dp_status dp_run_note_plan(struct dp_run_job *job)
{
    const struct dp_exchange *e = dp_trainer_exchange(job->trainer);
    char buckets[17];

    (void)snprintf(buckets, sizeof(buckets), "%016" PRIx64, dp_exchange_plan(e)->hash);
    if (job->options->plan != NULL && strcmp(buckets, job->plan.buckets) != 0) {
        return DP_FAIL(DP_ERR_CONFIG,
                       "%s: its plan is for another model, or other bucket sizes: it cuts the "
                       "gradient elsewhere",
                       job->plan.from);
    }
    if (job->plan.on &&
        dp_exchange_measured(e)) { /* it could not run here: another one does for now */
        job->plan.on = false;
        job->plan.why[0] = '\0';
    } else if (dp_run_leads(job) && dp_exchange_measured(e) && job->plan.cache[0] != '\0') {
        keep(job);
    }
    return DP_OK;
}
