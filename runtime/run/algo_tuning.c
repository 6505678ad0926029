#include "runtime/run/algo_tuning.h"

#include <string.h>
#include <sys/stat.h>

#include "base/cache.h"
#include "base/log.h"
#include "runtime/run/plan.h"
#include "runtime/run/training.h"

/* ---- what is known at the start ---- */

/* Rank 0: those of --plan. *any: it has some, of whatever machine. */
static dp_status read_plan(struct dp_training *run, bool *any)
{
    struct dp_json *json = NULL;
    dp_status status;

    DP_TRY(dp_plan_read_choices(run->cli->plan, &json));
    *any = json != NULL;
    status = json != NULL ? dp_algo_choices_take(run->algo_choices, json, run->cli->plan) : DP_OK;
    dp_json_destroy(json);
    return status;
}

/* Rank 0: what earlier runs have left. What is not as it should be is a warning, and measured
 * anew. */
static void read_cache(struct dp_training *run)
{
    struct dp_json *json = NULL;
    struct stat info;
    char *text = NULL;
    size_t bytes = 0;
    dp_status status;

    if (stat(run->choices_cache, &info) != 0) {
        DP_DEBUG("no choices of algorithms in %s", run->choices_cache);
        return;
    }
    dp_log_soften(true);
    status = dp_file_read(run->choices_cache, 1 << 26, &text, &bytes);
    if (status == DP_OK) {
        status = dp_json_parse(text, bytes, run->choices_cache, &json);
    }
    if (status == DP_OK) {
        status = dp_algo_choices_take(run->algo_choices, json, run->choices_cache);
    }
    dp_log_soften(false);
    if (status != DP_OK) {
        DP_DEBUG("choices in %s are not taken: measured anew", run->choices_cache);
    }
    dp_json_destroy(json);
    dp_free(text);
}

/* Rank 0: reads all there is. *on: whether what is missing is to be measured. */
static dp_status read_all(struct dp_training *run, bool *on)
{
    const int wanted = run->config->device.tune;
    const struct dp_json *saved = dp_json_get(run->resume.state, "choices");
    const bool caches =
        run->config->comm.plan_cache && dp_cache_path(run->choices_cache, "choices.json");
    bool planned = false;

    if (run->cli->plan != NULL) {
        DP_TRY(read_plan(run, &planned));
    }
    if (saved != NULL) {
        DP_TRY(dp_algo_choices_take(run->algo_choices, saved, run->resume.path));
    }
    *on = wanted == DP_TUNE_ON ||
          (wanted == DP_TUNE_AUTO && (run->cli->plan != NULL ? planned
                                      : run->resume.on       ? saved != NULL
                                                       : caches && run->config->train.lanes == 0));
    if (*on && caches) {
        read_cache(run);
    }
    return DP_OK;
}

/* Rank 0's choices to all ranks. */
static dp_status share(struct dp_training *run)
{
    struct dp_group *group = run->world->all;
    struct dp_json *json = NULL;
    char *text = NULL;
    dp_status status = DP_OK;

    if (dp_run_leads(run)) {
        status = dp_algo_choices_text(run->algo_choices, true, &text);
    }
    DP_TRY_GOTO(dp_group_broadcast_text(group, &text, status), status, done);
    if (!dp_run_leads(run)) {
        status = dp_json_parse(text, strlen(text), "choices of rank 0", &json);
        if (status == DP_OK) {
            status = dp_algo_choices_take(run->algo_choices, json, "choices of rank 0");
        }
    }
    status = dp_group_agree(group, status);

done:
    dp_json_destroy(json);
    dp_free(text);
    return status;
}

dp_status dp_run_find_choices(struct dp_training *run)
{
    struct dp_group *group = run->world->all;
    char machine[DP_ALGO_CHOICE_MACHINE];
    bool on = false;
    dp_status status;

    if (run->device->machine == NULL) {
        return DP_OK;
    }
    run->device->machine(machine, sizeof(machine));
    status = dp_algo_choices_create(machine, &run->algo_choices);
    if (status == DP_OK && dp_run_leads(run)) {
        status = read_all(run, &on);
    }
    DP_TRY(dp_group_agree(group, status));
    DP_TRY(dp_group_broadcast(group, &on, sizeof(on), 0));
    if (!on) {
        dp_algo_choices_destroy(run->algo_choices);
        run->algo_choices = NULL;
        return DP_OK;
    }
    return group->size > 1 ? share(run) : DP_OK;
}

/* ---- what is kept ---- */

void dp_run_keep_choices(struct dp_training *run)
{
    char *text = NULL;

    if (run->algo_choices == NULL || run->choices_cache[0] == '\0' ||
        dp_algo_choices_count(run->algo_choices).fresh == 0) {
        return;
    }
    dp_log_mute(1);
    read_cache(run); /* what others have added meanwhile stays; what is damaged was told */
    dp_log_mute(0);
    if (dp_algo_choices_text(run->algo_choices, true, &text) == DP_OK) {
        dp_cache_keep(run->choices_cache, text);
    }
    dp_free(text);
}
