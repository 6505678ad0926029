#include "runtime/run/plan/algo_tuning.h"

#include <string.h>
#include <sys/stat.h>

#include "base/files/cache.h"
#include "base/log.h"
#include "base/system/openmp.h"
#include "base/system/thread.h"
#include "runtime/run/job.h"
#include "runtime/run/plan/plan.h"

/* ---- what is known at the start ---- */

/* Rank 0: those of --plan. *any: the file has some, whatever machine they were measured on. */
static dp_status read_plan(struct dp_run_job *job, bool *any)
{
    struct dp_json *json = NULL;
    dp_status status;

    DP_TRY(dp_plan_read_choices(job->options->plan, &json));
    *any = json != NULL;
    status =
        json != NULL ? dp_algo_choices_take(job->algo_choices, json, job->options->plan) : DP_OK;
    dp_json_destroy(json);
    return status;
}

/* Rank 0: what earlier runs have kept. A damaged file is a warning; then all is measured again. */
static void read_cache(struct dp_run_job *job)
{
    struct dp_log_capture capture;
    struct dp_json *json = NULL;
    struct stat info;
    char *text = NULL;
    size_t bytes = 0;
    dp_status status;

    if (stat(job->algo_cache, &info) != 0) {
        DP_DEBUG("no choices of algorithms in %s", job->algo_cache);
        return;
    }
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = dp_file_read(job->algo_cache, 1 << 26, &text, &bytes);
    if (status == DP_OK) {
        status = dp_json_parse(text, bytes, job->algo_cache, &json);
    }
    if (status == DP_OK) {
        status = dp_algo_choices_take(job->algo_choices, json, job->algo_cache);
    }
    dp_log_capture_end(&capture, DP_LOG_SOFTEN);
    if (status != DP_OK) {
        DP_DEBUG("choices in %s are not taken: measured anew", job->algo_cache);
    }
    dp_json_destroy(json);
    dp_free(text);
}

/* Rank 0: reads all there is. *on: whether what is missing is to be measured. */
static dp_status read_all(struct dp_run_job *job, bool *on)
{
    const int wanted = job->config->device.tune;
    const struct dp_json *saved = dp_json_get(job->resume.state, "choices");
    const bool caches =
        job->config->comm.plan_cache && dp_cache_path(job->algo_cache, "choices.json");
    bool planned = false;

    if (job->options->plan != NULL) {
        DP_TRY(read_plan(job, &planned));
    }
    if (saved != NULL) {
        DP_TRY(dp_algo_choices_take(job->algo_choices, saved, job->resume.path));
    }
    *on = wanted == DP_TUNE_ON ||
          (wanted == DP_TUNE_AUTO && (job->options->plan != NULL ? planned
                                      : job->resume.on           ? saved != NULL
                                                       : caches && job->config->train.lanes == 0));
    if (*on && caches) {
        read_cache(job);
    }
    return DP_OK;
}

/* Sends rank 0's choices to all ranks: those that are known, or the used ones. */
static dp_status share(struct dp_run_job *job, bool all)
{
    struct dp_group *group = job->world->all;
    struct dp_json *json = NULL;
    char *text = NULL;
    dp_status status = DP_OK;

    if (dp_run_leads(job)) {
        status = dp_algo_choices_text(job->algo_choices, all, &text);
    }
    DP_TRY_GOTO(dp_group_broadcast_text(group, &text, status), status, done);
    if (!dp_run_leads(job)) {
        status = dp_json_parse(text, strlen(text), "choices of rank 0", &json);
        if (status == DP_OK) {
            status = dp_algo_choices_take(job->algo_choices, json, "choices of rank 0");
        }
    }
    status = dp_group_agree(group, status);

done:
    dp_json_destroy(json);
    dp_free(text);
    return status;
}

dp_status dp_run_find_choices(struct dp_run_job *job)
{
    struct dp_group *group = job->world->all;
    char machine[DP_ALGO_CHOICE_MACHINE];
    bool on = false;
    dp_status status;

    if (job->device->machine == NULL) {
        return DP_OK;
    }
    job->device->machine(machine, sizeof(machine));
    status = dp_algo_choices_create(machine, &job->algo_choices);
    if (status == DP_OK && job->device->host_memory &&
        dp_group_leader(group, group->node_of[group->rank]) != group->rank) {
        dp_algo_choices_follow(job->algo_choices);
    }
    if (status == DP_OK && dp_run_leads(job)) {
        status = read_all(job, &on);
    }
    if (status == DP_OK) { /* what measures begins with OpenMP's threads */
        status = dp_thread_try(job->threads - 1, "computes");
    }
    DP_TRY(dp_group_agree(group, status));
    DP_TRY(dp_group_broadcast(group, &on, sizeof(on), 0));
    if (!on) {
        dp_algo_choices_destroy(job->algo_choices);
        job->algo_choices = NULL;
        return DP_OK;
    }
    if (job->device->host_memory) {
        dp_openmp_start(job->threads);
        job->computes = true;
    }
    return group->size > 1 ? share(job, true) : DP_OK;
}

/* ---- what ranks have agreed on ---- */

/* Empties the table. What was known at the start would stay in place of what has replaced it. */
static dp_status begin_anew(struct dp_run_job *job)
{
    char machine[DP_ALGO_CHOICE_MACHINE];

    dp_algo_choices_destroy(job->algo_choices);
    job->algo_choices = NULL;
    job->device->machine(machine, sizeof(machine));
    return dp_algo_choices_create(machine, &job->algo_choices);
}

dp_status dp_run_share_choices(struct dp_run_job *job)
{
    const bool evaluates = job->world->role == DP_ROLE_EVALUATE;

    if (job->algo_choices == NULL || !job->config->train.eval_rank) {
        return DP_OK;
    }
    DP_TRY(dp_group_agree(job->world->all, evaluates ? begin_anew(job) : DP_OK));
    DP_TRY(share(job, false));
    dp_algo_choices_freeze(job->algo_choices);
    return DP_OK;
}

/* ---- what is kept ---- */

void dp_run_keep_choices(struct dp_run_job *job)
{
    struct dp_log_capture capture;
    char *text = NULL;

    if (job->algo_choices == NULL || job->algo_cache[0] == '\0' ||
        dp_algo_choices_count(job->algo_choices).fresh == 0) {
        return;
    }
    dp_log_capture_begin(&capture, DP_LOG_DEBUG);
    read_cache(job); /* what other runs have added since then stays; damage was reported */
    dp_log_capture_end(&capture, DP_LOG_DROP);
    if (dp_algo_choices_text(job->algo_choices, true, &text) == DP_OK) {
        dp_cache_keep(job->algo_cache, text);
    }
    dp_free(text);
}
