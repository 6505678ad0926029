/*
 * lockstep.c - the pieces of a run (runtime/run), one by one, for whoever calls them.
 */
#define _DEFAULT_SOURCE /* on_exit() */
#include "runtime/lockstep.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/trace.h"
#include "collectives/core/consistency.h"
#include "collectives/exchange/exchange_calls.h"
#include "collectives/world/world.h"
#include "runtime/config/config_load.h"
#include "runtime/run/results/run_end.h"
#include "runtime/run/roles/evaluation.h"
#include "runtime/run/run.h"
#include "runtime/run/setup.h"
#include "runtime/run/training.h"

/* What messages call a configuration that is no file. */
static const char unnamed[] = "configuration";

struct dp_lockstep {
    struct dp_run_options options;
    struct dp_training run;
};

/* ---- the job ---- */

dp_status dp_lockstep_join(struct dp_world **out)
{
    return dp_world_create(out);
}

int dp_lockstep_leave(struct dp_world *world, dp_status status)
{
    if (world != NULL && (world->broken || !dp_status_together(status))) {
        dp_world_abort(world, dp_status_exit(status));
    }
    dp_world_destroy(world);
    return dp_status_exit(status);
}

static void leave_at_exit(int code, void *world)
{
    if (code != 0 && dp_lockstep_ranks(world) > 1) {
        dp_log(DP_LOG_ERROR, __FILE__, __LINE__,
               "the program exits with %d while a training is open: all other ranks end, too",
               code);
        dp_world_abort(world, code);
    }
    (void)dp_lockstep_leave(world, DP_OK);
}

dp_status dp_lockstep_leave_at_exit(struct dp_world *world)
{
    return on_exit(leave_at_exit, world) == 0 ? DP_OK : DP_FAIL(DP_ERR_NOMEM, "leaving at exit");
}

int dp_lockstep_rank(const struct dp_world *world)
{
    return world->all->rank;
}

int dp_lockstep_ranks(const struct dp_world *world)
{
    return world->all->size;
}

/* ---- plug-ins ---- */

/* whole: no function is missing that every plug-in of the family has. */
static dp_status add(struct dp_plugin_family *family, const struct dp_plugin *plugin, bool whole)
{
    if (plugin->name == NULL || plugin->name[0] == '\0') {
        return DP_FAIL(DP_ERR_ARG, "a %s has no name", family->noun);
    }
    if (!whole) {
        return DP_FAIL(DP_ERR_ARG, "%s '%s' lacks a function", family->noun, plugin->name);
    }
    return dp_plugin_add(family, plugin);
}

dp_status dp_lockstep_add_source(const struct dp_source *source)
{
    return add(&dp_sources, &source->plugin,
               source->open != NULL && source->load != NULL && source->close != NULL);
}

dp_status dp_lockstep_add_layer(const struct dp_layer_type *type)
{
    return add(&dp_layers, &type->plugin,
               type->plan != NULL && type->forward != NULL && type->backward != NULL);
}

/* ---- a training ---- */

/* What all ranks refuse alike: rank 0 says it. */
static dp_status refuse(const struct dp_run_job *job, dp_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static dp_status refuse(const struct dp_run_job *job, dp_status status, const char *format, ...)
{
    char text[1024];
    va_list args;

    if (!dp_run_leads(job)) {
        return status;
    }
    va_start(args, format);
    dp_text_format(text, sizeof(text), format, args);
    va_end(args);
    return DP_FAIL(status, "%s", text);
}

/* In the run's words. */
static dp_status take_options(struct dp_run_options *to, const struct dp_lockstep_options *from)
{
    if (from->config == NULL && from->text == NULL) {
        return DP_FAIL(DP_ERR_USAGE, "no configuration: options.config is its path");
    }
    if (from->set_count > DP_RUN_SETS) {
        return DP_FAIL(DP_ERR_USAGE, "%d settings, more than %d", from->set_count, DP_RUN_SETS);
    }
    if (from->resume != NULL && strcmp(from->resume, "auto") == 0 && from->out == NULL) {
        return DP_FAIL(DP_ERR_USAGE, "options.resume \"auto\" looks into options.out, which is "
                                     "not given");
    }
    if (from->resume != NULL && from->init != NULL) {
        return DP_FAIL(DP_ERR_USAGE, "options.init and options.resume: weights have one beginning");
    }
    to->config = from->config != NULL ? from->config : unnamed;
    to->text = from->text;
    for (int i = 0; i < from->set_count; i++) {
        to->sets[to->set_count++] = from->sets[i];
    }
    to->out = from->out;
    to->resume = from->resume;
    to->init = from->init;
    to->quiet = to->reopens = true;
    return DP_OK;
}

static dp_status check_mode(const struct dp_run_job *job)
{
    char where[256];

    const bool reads = job->config->data.input_ranks > 0;

    if (dp_config_shrinks(job->config)) {
        return refuse(job, DP_ERR_CONFIG,
                      "%s: a program of your own cannot go back to the beginning of a step: leave "
                      "it out; ddp_train can",
                      dp_config_where(job->config, "train.on_rank_failure", where, sizeof(where)));
    }
    if (job->config->train.eval_rank || reads) {
        return refuse(job, DP_ERR_CONFIG,
                      "%s: in a program of your own all ranks train: leave it out; ddp_train can "
                      "run it",
                      dp_config_where(job->config, reads ? "data.input_ranks" : "train.eval_rank",
                                      where, sizeof(where)));
    }
    return !dp_config_stale(job->config)
               ? DP_OK
               : refuse(job, DP_ERR_CONFIG,
                        "%s: ranks that train at their own pace take no common steps: leave it "
                        "out; ddp_train can run it",
                        dp_config_where(job->config, "train.mode", where, sizeof(where)));
}

static dp_status open_training(struct dp_training *run)
{
    DP_TRY(dp_run_configure(&run->job));
    DP_TRY(check_mode(&run->job));
    DP_TRY(dp_run_setup(run, NULL));
    return dp_exchange_agree(dp_trainer_exchange(run->job.trainer), dp_run_start(run));
}

dp_status dp_lockstep_create(struct dp_world *world, const struct dp_lockstep_options *options,
                             struct dp_lockstep **out)
{
    struct dp_log_capture capture;
    struct dp_lockstep *training;
    dp_status status;

    dp_log_capture_begin(&capture, DP_LOG_DEBUG);
    training = dp_zalloc(1, sizeof(*training));
    status = training == NULL ? DP_FAIL(DP_ERR_NOMEM, "a training")
                              : take_options(&training->options, options);
    status = dp_consistency_agree(world->all, status, &capture);
    if (training != NULL) {
        dp_run_init(&training->run, &training->options, world);
        status = status == DP_OK ? open_training(&training->run) : status;
    }
    if (status != DP_OK || training == NULL) {
        dp_lockstep_destroy(training);
        return status;
    }
    *out = training;
    return DP_OK;
}

void dp_lockstep_destroy(struct dp_lockstep *training)
{
    if (training != NULL) {
        dp_run_teardown(&training->run);
        dp_free(training);
    }
}

uint64_t dp_lockstep_steps(const struct dp_lockstep *training)
{
    return dp_trainer_steps(training->run.job.trainer);
}

bool dp_lockstep_done(const struct dp_lockstep *training)
{
    return dp_lockstep_steps(training) >= training->run.job.total_steps ||
           training->run.outcome.exit != DP_RUN_FINISHED;
}

/* What fails within a step fails on one rank, until all have found out: the others may wait for it,
 * so it waits for nobody any more. */
static dp_status pass_on(struct dp_lockstep *training, dp_status status)
{
    struct dp_world *world = training->run.job.world;

    if (status != DP_OK && status != DP_ERR_DISAGREE) {
        world->broken = true;
        dp_group_leave(world->all, DP_ERR_INTERNAL);
    }
    return status;
}

/* Whether training has ended by what it came to. */
static dp_status check_end(const struct dp_training *run)
{
    const dp_status status = dp_run_end_status(&run->outcome);

    return status == DP_OK ? DP_OK : refuse(&run->job, status, "%s", run->outcome.reason);
}

dp_status dp_lockstep_step(struct dp_lockstep *training, struct dp_lockstep_step *out)
{
    struct dp_training *run = &training->run;
    struct dp_step_result result;

    if (dp_lockstep_steps(training) >= run->job.total_steps) {
        return refuse(&run->job, DP_ERR_USAGE,
                      "all %llu steps are done: more of train.steps or train.epochs would train on",
                      (unsigned long long)run->job.total_steps);
    }
    DP_TRY(check_end(run));

    DP_SPAN(DP_PHASE_OTHER, (int64_t)dp_lockstep_steps(training));
    dp_figures_restart(&run->figures, &run->job);
    DP_TRY(pass_on(training, dp_run_step(run, &result)));
    DP_TRY(check_end(run));
    *out = (struct dp_lockstep_step){
        .step = result.step,
        .rows = result.rows,
        .loss = (double)result.report.loss,
        .accuracy = run->job.model->loss == DP_LOSS_SQUARE
                        ? (double)NAN
                        : (double)result.report.score / (double)result.rows,
        .lr = result.lr,
        .samples_per_second = (double)result.rows * 1e9 / (double)run->figures.ledger.last_ns,
        .skipped = result.report.skipped,
    };
    return DP_OK;
}

/* Evaluations count once for early_stop, and from the first step on. */
static dp_status evaluate(struct dp_training *run, struct dp_evaluation *out)
{
    struct dp_trainer *t = run->job.trainer;

    if (run->outcome.stop_criteria.evaluated_at != dp_trainer_steps(t)) {
        DP_TRY(dp_run_evaluate(run));
        *out = run->figures.evaluation;
        return DP_OK;
    }
    DP_TRY(dp_trainer_sync_weights(t));
    return dp_trainer_evaluate(t, out);
}

dp_status dp_lockstep_evaluate(struct dp_lockstep *training, double *loss, double *accuracy)
{
    struct dp_evaluation found;

    DP_TRY(pass_on(training, evaluate(&training->run, &found)));
    *loss = found.loss;
    *accuracy = found.accuracy;
    return DP_OK;
}

/* Whoever goes on from a checkpoint must not inherit one rank's flipped bit. */
static dp_status prepare_saving(struct dp_training *run)
{
    DP_TRY(dp_trainer_sync_weights(run->job.trainer));
    DP_TRY(dp_trainer_compare_replicas(run->job.trainer));
    return dp_run_judge_weights(&run->job, &run->outcome);
}

dp_status dp_lockstep_save(struct dp_lockstep *training)
{
    struct dp_training *run = &training->run;
    dp_status written = DP_OK;

    if (!dp_run_options_write(&training->options)) {
        return refuse(&run->job, DP_ERR_USAGE, "nowhere to save: options.out was not given");
    }
    if (!run->saver.enabled) {
        return refuse(&run->job, DP_ERR_USAGE,
                      "nothing can be saved, since %s keeps no common weights",
                      dp_exchange_label(dp_trainer_exchange(run->job.trainer)));
    }
    DP_TRY(pass_on(training, prepare_saving(run)));
    if (run->outcome.exit == DP_RUN_DIVERGED) {
        return check_end(run);
    }
    DP_TRY(pass_on(training,
                   dp_saver_finish(&run->saver, &run->outcome, &run->figures.metrics, &written)));
    return written;
}
