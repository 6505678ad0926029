/*
 * setup.c - everything before the first step, in an order that finds mistakes early. Ranks agree on
 * what one of them refuses, so that all leave together and the cause is reported once.
 */
#include "runtime/run/setup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/files/disk.h"
#include "base/json.h"
#include "base/log.h"
#include "base/system/thread.h"
#include "collectives/core/consistency.h"
#include "collectives/exchange/exchange_calls.h"
#include "collectives/gpu/gpu_peers.h"
#include "runtime/checkpoint/weights.h"
#include "runtime/config/config_load.h"
#include "runtime/data/rows.h"
#include "runtime/data/source.h"
#include "runtime/run/check.h"
#include "runtime/run/dataset/bad_data.h"
#include "runtime/run/dataset/load_dataset.h"
#include "runtime/run/output_dir.h"
#include "runtime/run/place.h"
#include "runtime/run/plan/algo_tuning.h"
#include "runtime/run/plan/resume.h"
#include "runtime/run/plan/run_plan.h"
#include "runtime/run/results/hang_report.h"
#include "runtime/run/roles/eval_rank.h"
#include "runtime/run/roles/input_ranks.h"
#include "runtime/run/roles/rank_roles.h"
#include "runtime/run/run_files.h"
#include "runtime/run/run_model.h"
#include "runtime/run/run_trace.h"
#include "runtime/run/shrink.h"

extern char **environ;

void dp_run_init(struct dp_training *run, const struct dp_run_options *options,
                 struct dp_world *world)
{
    memset(run, 0, sizeof(*run));
    run->job.options = options;
    run->job.world = world;
    dp_figures_init(&run->figures, options->quiet);
}

/* mpirun does not pass variables on to other hosts: those of rank 0 count. */
static dp_status share_faults(struct dp_run_job *job)
{
    char name[DP_VARIABLE] = DP_FAULT_VARIABLE;
    const char *text = NULL;
    dp_status status = DP_OK;

    if (dp_run_leads(job)) {
        status = dp_config_variable(environ, name, &text);
        job->fault_text = dp_strdup(text == NULL ? "" : text);
        if (status == DP_OK && job->fault_text == NULL) {
            status = DP_FAIL(DP_ERR_NOMEM, DP_FAULT_VARIABLE);
        }
    }
    return dp_group_broadcast_text(job->world->all, &job->fault_text, status);
}

static void append(char *text, size_t size, const char *word)
{
    const size_t used = strlen(text);

    (void)snprintf(text + used, size - used, "%s%s", used > 0 && *word != '\0' ? " " : "", word);
}

/* With several commands of mpirun one may differ by mistake. Others are those of rank 0. */
static dp_status compare_arguments(const struct dp_run_job *job)
{
    const struct dp_run_options *options = job->options;
    const char *init = options->init == NULL ? "" : options->init;
    const char *plan = options->plan == NULL ? "" : options->plan;
    const char *text = options->text == NULL ? "" : options->text;
    const struct dp_trace_request *trace = &options->trace;
    char sets[8192] = "", steps[32] = "", flags[64] = "", traced[64] = "";

    for (int i = 0; i < options->set_count; i++) {
        append(sets, sizeof(sets), options->sets[i]);
    }
    append(flags, sizeof(flags), options->cached_input ? "--cached-input" : "");
    append(flags, sizeof(flags), options->data_only ? "--data-only" : "");
    append(flags, sizeof(flags), options->dry_run ? "--dry-run" : "");
    append(flags, sizeof(flags), options->print_config ? "--print-config" : "");
    if (options->steps > 0) {
        (void)snprintf(steps, sizeof(steps), "%lld", (long long)options->steps);
    }
    if (trace->on) {
        (void)snprintf(traced, sizeof(traced), "%llu-%llu", (unsigned long long)trace->first,
                       (unsigned long long)trace->last);
    }
    const struct dp_consistency_item items[] = {
        dp_consistency_text("version", DP_VERSION),
        dp_consistency_text("model.cfg", options->config),
        dp_consistency_text("--set", sets),
        dp_consistency_text("--steps", steps),
        dp_consistency_text("--trace", traced),
        dp_consistency_text("flags", flags),
        dp_consistency_text("--init", init),
        dp_consistency_text("--plan", plan),
        dp_consistency_text("configuration", text),
    };

    return dp_consistency_check(job->world->all, items, sizeof(items) / sizeof(items[0]));
}

/* Rank 0. */
static dp_status resolve(const struct dp_run_options *options, char **text)
{
    const char *const *sets = options->sets;

    return options->text == NULL
               ? dp_config_resolve(options->config, environ, sets, options->set_count, text)
               : dp_config_resolve_text(options->text, strlen(options->text), options->config,
                                        environ, sets, options->set_count, text);
}

dp_status dp_run_configure(struct dp_run_job *job)
{
    struct dp_log_capture capture;
    dp_status status = DP_OK;

    DP_TRY(compare_arguments(job));

    if (dp_run_leads(job)) {
        status = resolve(job->options, &job->config_text);
    }
    DP_TRY(dp_group_broadcast_text(job->world->all, &job->config_text, status));
    DP_TRY(share_faults(job));
    dp_log_capture_begin(&capture, DP_LOG_DEBUG);
    status = dp_config_parse(job->config_text, job->options->config, &job->config);
    status = status == DP_OK ? dp_run_keep_config(job) : status;
    if (status == DP_OK) {
        status = dp_faults_create(job->fault_text, &job->faults);
        dp_shrink_renumber_faults(job);
        dp_fault_injection_start(job->faults, job->world->all->rank);
    }
    if (status == DP_OK) {
        status = dp_run_check_names(job->config);
    }
    if (status == DP_OK) {
        status = dp_run_make_model(job->config, &job->model);
    }
    if (status == DP_OK) {
        status = dp_device_find(job->config->device.name, &job->device);
    }
    DP_TRY(dp_consistency_agree(job->world->all, status, &capture));
    dp_world_allow_outage(job->world, job->config->comm.outage_s);
    dp_world_allow_hang(job->world, job->config->train.hang_timeout_s,
                        job->config->train.unseen_timeout_s);
    if (job->world->all->size > 1) {
        DP_TRY(dp_gpu_peers_create(job->world->all, job->device)); /* each then has its own */
    }
    return DP_OK;
}

static void count_steps(struct dp_run_job *job)
{
    const struct dp_train_config *train = &job->config->train;

    job->steps_per_epoch = dp_steps_per_epoch(job->data.train_count, (size_t)train->global_batch,
                                              job->config->data.drop_last);
    job->schedule_steps =
        train->steps > 0 ? (uint64_t)train->steps : (uint64_t)train->epochs * job->steps_per_epoch;
    job->total_steps =
        job->options->steps > 0 ? (uint64_t)job->options->steps : job->schedule_steps;
}

static dp_status open_trainer(struct dp_run_job *job)
{
    const struct dp_trainer_config config = {
        .config = job->config,
        .model = job->model,
        .device = job->device,
        .group = job->world->train,
        .data = &job->data,
        .threads = job->threads,
        .speaker = dp_run_speaker(job),
        .cached_input = dp_run_cached_input(job),
        .first_step = job->resume.step,
        .total_steps = job->total_steps,
        .schedule_steps = job->schedule_steps,
        .algo_choices = job->algo_choices,
        .others_read = job->config->data.input_ranks > 0,
    };

    DP_TRY(dp_trainer_create(&config, &job->trainer));
    DP_TRY(dp_fault_injection_check(job->faults, job->trainer));
    dp_fault_injection_arm(job->faults, job->trainer);
    return dp_run_note_plan(job);
}

/* What all ranks refuse alike the first one reports; others report what befalls them alone. */
dp_status dp_run_make_trainer(struct dp_run_job *job)
{
    struct dp_log_capture capture = {0}, *const others = dp_run_leads(job) ? NULL : &capture;
    const int errors = dp_log_errors();
    dp_status status;
    bool reported;

    dp_log_capture_begin(others, DP_LOG_DEBUG);
    status = open_trainer(job);
    reported = status == DP_OK || job->trainer != NULL; /* then all ranks have failed alike */
    if (!reported) {
        struct dp_log_capture asking; /* the others may be in the middle of something else */
        bool by_first = dp_log_errors() > errors;
        dp_log_capture_begin(&asking, DP_LOG_ERROR);
        reported = dp_group_broadcast(job->world->train, &by_first, sizeof(by_first), 0) == DP_OK &&
                   by_first;
        dp_log_capture_end(&asking, DP_LOG_DROP);
    }
    dp_log_capture_end(others, reported ? DP_LOG_DROP : DP_LOG_PRINT);
    if (status == DP_OK && dp_run_leads(job)) {
        dp_run_keep_choices(job);
    }
    return status;
}

/* Asynchronous training, if that is wanted. `steps`: with its context. */
static dp_status make_async(struct dp_run_job *job, const struct dp_async_hooks *steps)
{
    struct dp_log_capture capture = {0}, *const others = dp_run_leads(job) ? NULL : &capture;
    dp_status status;

    if (!dp_config_stale(job->config)) {
        return DP_OK;
    }
    dp_log_capture_begin(others, DP_LOG_DEBUG);
    status = dp_async_create(job->trainer, steps, &job->async);
    dp_log_capture_end(others, DP_LOG_DROP);
    return status;
}

/* Everything that a resumed run needs: what the trainer has, and what the run itself counts. */
static void add_state(struct dp_training *run)
{
    struct dp_state_dict *rows = &run->saver.state_dict;
    struct dp_figures *figures = &run->figures;
    const struct dp_model *model = run->job.model;

    dp_trainer_add_state(run->job.trainer, rows);
    dp_state_dict_add_f64(rows, "train_loss.sum", &figures->train_loss.sum);
    dp_state_dict_add_u64(rows, "train_loss.steps", &figures->train_loss.steps);
    dp_state_dict_add_f64(rows, "train_loss.last", &figures->train_loss.last);
    dp_state_dict_add_f64(rows, "evaluation.loss", &figures->evaluation.loss);
    if (model->loss == DP_LOSS_SQUARE) {
        dp_state_dict_add_f64(rows, "evaluation.mean_absolute_error", &figures->evaluation.error);
    } else {
        dp_state_dict_add_f64(rows, "evaluation.accuracy", &figures->evaluation.accuracy);
    }
    if (dp_model_counts_top(model)) {
        dp_state_dict_add_f64(rows, "evaluation.top5_accuracy", &figures->evaluation.top5);
    }
    dp_stop_criteria_add_state(&run->outcome.stop_criteria, rows);
}

/* The weights of the options' file, or the average beside it. */
static dp_status load(const struct dp_run_job *job, struct dp_weights *weights)
{
    const struct dp_run_options *options = job->options;

    DP_TRY(options->own_folder ? dp_file_of_flag("--init", options->init) : DP_OK);
    DP_TRY(dp_weights_load(options->init, weights));
    return options->average == NULL || job->config->train.ema == 0.0
               ? DP_OK
               : dp_average_load(options->average, weights->params, weights->param_count,
                                 weights->values);
}

/* Weights from the seed, or from a file. Collective. Every rank reads the file: it is small, and
 * needs no messages. Rank 0 reads first, so that a problem of the file is reported once; the others
 * then report problems of theirs. */
static dp_status init_weights(struct dp_run_job *job)
{
    struct dp_trainer *t = job->trainer;
    const struct dp_model *m = job->model;
    const bool leads = dp_run_leads(job);
    int64_t ignored = 0;
    struct dp_weights weights = {m->tensors,  m->tensor_count,  dp_trainer_whole(t),
                                 m->buffers,  m->buffer_count,  dp_trainer_host_flat(t)->running,
                                 m->counters, m->counter_count, &ignored};

    DP_TRY(dp_trainer_init(t));
    if (job->options->init == NULL) {
        return DP_OK;
    }
    DP_TRY(dp_exchange_agree(dp_trainer_exchange(t), leads ? load(job, &weights) : DP_OK));
    DP_TRY(dp_exchange_agree(dp_trainer_exchange(t), leads ? DP_OK : load(job, &weights)));
    return dp_trainer_take(t);
}

/* The rate in the file of --baseline. */
static dp_status read_baseline(const char *path, double *rate)
{
    struct dp_json *json = NULL;
    char *text = NULL;
    size_t bytes = 0;
    dp_status status;
    bool found;

    DP_TRY(dp_file_of_flag("--baseline", path));
    DP_TRY(dp_file_read(path, 1 << 24, &text, &bytes));
    status = dp_json_parse(text, bytes, path, &json);
    dp_free(text);
    DP_TRY(status);
    found = dp_json_real(dp_json_get(json, "single_rank_samples_per_second"), rate);
    dp_json_destroy(json);
    if (!found || *rate <= 0.0) {
        return DP_FAIL(DP_ERR_DATA, "%s has no single_rank_samples_per_second", path);
    }
    return DP_OK;
}

/* Rank 0: its files, those read and those written. */
static dp_status setup_files(struct dp_run_job *job, double *baseline)
{
    const struct dp_run_options *options = job->options;

    DP_TRY(options->baseline != NULL ? read_baseline(options->baseline, baseline) : DP_OK);
    DP_TRY(dp_run_find_plan(job));
    if (options->dry_run || options->data_only) {
        return DP_OK;
    }
    if (!dp_run_options_write(options)) {
        return dp_run_find_checkpoint(job);
    }
    DP_TRY(dp_run_lock_out(job)); /* before anything in it is touched */
    DP_TRY(dp_run_find_checkpoint(job));
    DP_TRY(dp_run_make_out(job));
    return dp_run_mend_out(job);
}

dp_status dp_run_prepare(struct dp_training *run)
{
    struct dp_run_job *job = &run->job;
    struct dp_group *group = job->world->all;
    double *baseline = &run->figures.baseline.given;

    DP_TRY(dp_group_agree(group, dp_run_leads(job) ? setup_files(job, baseline) : DP_OK));
    DP_TRY(dp_group_broadcast(group, baseline, sizeof(*baseline), 0));
    DP_TRY(dp_run_share_plan(job));
    DP_TRY(dp_run_share_checkpoint(job));
    DP_TRY(dp_run_place(job));
    DP_TRY(dp_run_recall_plan(job));
    DP_TRY(dp_run_load_data(job, &run->figures.progress));
    count_steps(job);
    DP_TRY(dp_run_check_checkpoint(job, &run->figures.progress));
    return job->resume.finished ? DP_OK : dp_run_find_choices(job);
}

/* The trainer, with the state that training begins with. */
static dp_status setup_trainer(struct dp_training *run)
{
    struct dp_run_job *job = &run->job;

    DP_TRY(dp_run_make_trainer(job));
    add_state(run);
    return job->resume.on ? dp_run_restore(job, &run->saver) : init_weights(job);
}

static dp_status begin(struct dp_training *run)
{
    const struct dp_run_job *job = &run->job;
    const bool writes = job->output.path[0] != '\0';
    const int own = writes && dp_run_writes_reports(job) ? 1 : 0; /* it writes them */

    DP_TRY(dp_thread_try(dp_run_to_start(job) + own, "computes"));
    return writes ? dp_run_begin_files(job, run->outcome.stop_criteria.evaluated_at, &run->figures)
                  : DP_OK;
}

/* Of ranks that share gradients and weights. */
static dp_status setup_sharing(struct dp_training *run, const struct dp_async_hooks *steps)
{
    struct dp_run_job *job = &run->job;
    struct dp_async_hooks hooks = steps != NULL ? *steps : (struct dp_async_hooks){.context = NULL};
    struct dp_exchange *exchange;

    DP_TRY(setup_trainer(run));
    DP_TRY(dp_shrink_check_state(run));
    if (job->options->dry_run || job->options->data_only) {
        return DP_OK;
    }
    hooks.context = run;
    exchange = dp_trainer_exchange(job->trainer);
    DP_TRY(dp_exchange_agree(exchange, make_async(job, &hooks)));
    DP_TRY(dp_run_trace_open(run));
    DP_TRY(dp_run_options_write(job->options) ? dp_saver_open(&run->saver, job) : DP_OK);
    DP_TRY(dp_exchange_agree(exchange, begin(run)));
    DP_TRY(dp_run_watch_hang(run));
    dp_resources_begin(&run->figures.resources, job);
    return DP_OK;
}

/* Ranks that help come last, since what they refuse the others refuse, too, and report. */
static dp_status setup_helper(struct dp_training *run)
{
    struct dp_run_job *job = &run->job;
    struct dp_evaluator_config config = {
        .config = job->config,
        .model = job->model,
        .device = job->device,
        .data = &job->data,
        .trainers = job->world->roles.count[DP_ROLE_TRAIN],
        .threads = job->threads,
    };

    DP_TRY(dp_run_share_choices(job));
    if (job->world->role == DP_ROLE_READ) {
        return dp_reader_create(job, &run->reader);
    }
    DP_TRY(dp_thread_try(dp_run_to_start(job), "computes"));
    config.algo_choices = job->algo_choices;
    return dp_evaluator_create(&config, &run->evaluator);
}

/* Ranks that train and ranks that help meet after each part. */
static dp_status setup_ranks(struct dp_training *run, const struct dp_async_hooks *steps)
{
    struct dp_run_job *job = &run->job;
    struct dp_group *all = job->world->all;
    const bool shares = dp_run_shares(job);
    dp_status status, worst;

    status = shares ? setup_sharing(run, steps) : DP_OK;
    worst = dp_group_agree(all, status);
    DP_TRY(status != DP_OK ? status : worst);
    status = shares ? dp_run_share_choices(job) : setup_helper(run);
    worst = dp_group_agree(all, status);
    DP_TRY(status != DP_OK ? status : worst);
    dp_run_connect(job);
    if (!shares || job->options->dry_run) {
        return DP_OK;
    }
    DP_TRY(job->config->data.input_ranks > 0 ? dp_input_ranks_open(job, &job->input) : DP_OK);
    return job->config->train.eval_rank && !job->options->data_only
               ? dp_eval_rank_open(job, &job->eval)
               : DP_OK;
}

dp_status dp_run_setup(struct dp_training *run, const struct dp_async_hooks *steps)
{
    DP_TRY(dp_run_divide(&run->job));
    DP_TRY(dp_run_prepare(run));
    if (run->job.resume.finished) {
        return DP_OK;
    }
    return dp_roles_help(&run->job.world->roles) ? setup_ranks(run, steps)
                                                 : setup_sharing(run, steps);
}

/* ---- releasing ---- */

static void release_job(struct dp_run_job *job)
{
    dp_algo_choices_destroy(job->algo_choices);
    dp_json_destroy(job->resume.state);
    dp_run_release_data(job);
    dp_class_names_release(&job->class_names);
    dp_free(job->places);
    dp_machine_destroy(job->machine);
    dp_model_destroy(job->model);
    dp_config_destroy(job->config);
    dp_free(job->config_text);
    dp_free(job->config_alone);
    dp_faults_destroy(job->faults);
    dp_free(job->fault_text);
}

void dp_run_teardown(struct dp_training *run)
{
    dp_world_on_hang(run->job.world, NULL, NULL);
    dp_world_on_loss(run->job.world, NULL, NULL);
    dp_saver_close(&run->saver);
    dp_eval_rank_close(run->job.eval);
    dp_input_ranks_close(run->job.input);
    dp_reader_destroy(run->reader);
    dp_evaluator_destroy(run->evaluator);
    dp_run_disconnect(&run->job);
    dp_async_destroy(run->job.async);
    dp_trainer_destroy(run->job.trainer);
    dp_tracing_destroy(run->tracing);
    dp_figures_close(&run->figures);
    dp_run_release_out(&run->job.output, run->figures.metrics_open);
    dp_fault_injection_end(run->job.faults, run->job.world->all->rank, run->outcome.done,
                           run->job.resume.step);
    release_job(&run->job);
    dp_run_unite(&run->job);
}
