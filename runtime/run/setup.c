/*
 * setup.c - everything before the first step, in an order that finds mistakes early: what one rank
 * refuses is agreed on, so that all leave together and the cause is told once.
 */
#include "runtime/run/setup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/thread.h"
#include "collectives/core/consistency.h"
#include "collectives/exchange/exchange_calls.h"
#include "collectives/gpu/gpu_peers.h"
#include "runtime/checkpoint/weights.h"
#include "runtime/config/config_load.h"
#include "runtime/data/rows.h"
#include "runtime/data/source.h"
#include "runtime/run/algo_tuning.h"
#include "runtime/run/check.h"
#include "runtime/run/load_dataset.h"
#include "runtime/run/output_dir.h"
#include "runtime/run/resume.h"
#include "runtime/run/run_plan.h"
#include "runtime/run/save.h"

extern char **environ;

/* mpirun does not carry variables to other hosts: what rank 0 has counts. */
static dp_status share_faults(struct dp_training *run)
{
    const char *text = getenv(DP_FAULT_VARIABLE);
    dp_status status = DP_OK;

    if (dp_run_leads(run)) {
        run->fault_text = dp_strdup(text == NULL ? "" : text);
        status = run->fault_text == NULL ? DP_FAIL(DP_ERR_NOMEM, DP_FAULT_VARIABLE) : DP_OK;
    }
    return dp_group_broadcast_text(run->world->all, &run->fault_text, status);
}

static void append(char *text, size_t size, const char *word)
{
    const size_t used = strlen(text);

    (void)snprintf(text + used, size - used, "%s%s", used > 0 && *word != '\0' ? " " : "", word);
}

/* Of mpirun's several commands one may differ by mistake. Other arguments count on rank 0 alone. */
static dp_status compare_arguments(const struct dp_training *run)
{
    const struct dp_cli *cli = run->cli;
    const char *init = cli->init == NULL ? "" : cli->init;
    const char *plan = cli->plan == NULL ? "" : cli->plan;
    char sets[8192] = "", steps[32] = "", flags[64] = "";

    for (int i = 0; i < cli->set_count; i++) {
        append(sets, sizeof(sets), cli->sets[i]);
    }
    append(flags, sizeof(flags), cli->cached_input ? "--cached-input" : "");
    append(flags, sizeof(flags), cli->data_only ? "--data-only" : "");
    append(flags, sizeof(flags), cli->dry_run ? "--dry-run" : "");
    append(flags, sizeof(flags), cli->print_config ? "--print-config" : "");
    if (cli->steps > 0) {
        (void)snprintf(steps, sizeof(steps), "%lld", (long long)cli->steps);
    }
    const struct dp_consistency_item items[] = {
        dp_consistency_text("version", DP_VERSION), dp_consistency_text("model.cfg", cli->config),
        dp_consistency_text("--set", sets),         dp_consistency_text("--steps", steps),
        dp_consistency_text("flags", flags),        dp_consistency_text("--init", init),
        dp_consistency_text("--plan", plan),
    };

    return dp_consistency_check(run->world->all, items, sizeof(items) / sizeof(items[0]));
}

dp_status dp_run_configure(struct dp_training *run)
{
    const struct dp_cli *cli = run->cli;
    dp_status status = DP_OK;

    DP_TRY(compare_arguments(run));

    if (dp_run_leads(run)) {
        status =
            dp_config_resolve(cli->config, environ, cli->sets, cli->set_count, &run->config_text);
    }
    DP_TRY(dp_group_broadcast_text(run->world->all, &run->config_text, status));
    DP_TRY(share_faults(run));
    dp_log_mute(1);
    status = dp_config_parse(run->config_text, cli->config, &run->config);
    if (status == DP_OK) {
        status = dp_faults_create(run->fault_text, &run->faults);
    }
    if (status == DP_OK) {
        status = dp_run_check_names(run->config);
    }
    if (status == DP_OK) {
        status = dp_model_create(run->config->model.layers, run->config->model.layer_count,
                                 &run->config->model.input, &run->model);
    }
    if (status == DP_OK) {
        status = dp_device_find(run->config->device.name, &run->device);
    }
    dp_log_mute(0);
    DP_TRY(dp_consistency_settle(run->world->all, status));
    dp_world_allow_outage(run->world, run->config->comm.outage_s);
    return run->world->all->size > 1 ? dp_gpu_peers_create(run->world->all, run->device) : DP_OK;
}

dp_status dp_run_place(struct dp_training *run)
{
    struct dp_group *group = run->world->all;
    unsigned char *cpusets;
    struct dp_rank_place mine;
    int local = 0, self = 0, sharding, part;
    dp_status status = dp_machine_create(&run->machine);

    memset(&mine, 0, sizeof(mine));
    run->places = dp_zalloc((size_t)group->size, sizeof(*run->places));
    cpusets = dp_zalloc((size_t)group->size, DP_CPUSET_BYTES);
    if (status == DP_OK && (run->places == NULL || cpusets == NULL)) {
        status = DP_FAIL(DP_ERR_NOMEM, "places of %d ranks", group->size);
    }
    status = dp_group_agree(group, status); /* before any gathers: all, or none */
    if (status != DP_OK || run->places == NULL || cpusets == NULL) {
        dp_free(cpusets);
        return status;
    }
    dp_machine_cpuset_bytes(run->machine, mine.cpuset);
    status = dp_group_allgather(group, &mine, sizeof(mine), run->places);
    for (int i = 0; i < group->size; i++) {
        if (group->node_of[i] == group->node_of[group->rank]) {
            self = i == group->rank ? local : self;
            memcpy(cpusets + (size_t)local++ * DP_CPUSET_BYTES, run->places[i].cpuset,
                   DP_CPUSET_BYTES);
        }
    }
    sharding = dp_machine_sharing(cpusets, local, self, &part);
    dp_free(cpusets);
    DP_TRY(status);
    if (sharding > 1 && dp_machine_bind_self(run->machine, part, sharding)) {
        sharding = 1;
    }
    run->threads = dp_machine_threads(run->machine, sharding);
    mine.threads = run->threads;
    mine.cores = run->machine->cores;
    mine.memory = dp_machine_memory();
    (void)snprintf(mine.host, sizeof(mine.host), "%s", run->machine->host);
    (void)snprintf(mine.cpus, sizeof(mine.cpus), "%s", run->machine->cpus);
    (void)snprintf(mine.isa, sizeof(mine.isa), "%s", run->machine->isa);
    if (sharding > run->machine->cores && self == 0) {
        DP_WARN("%d ranks share %d core%s of this node: they take turns, and run slower", sharding,
                run->machine->cores, dp_plural(run->machine->cores));
    }
    return dp_group_allgather(group, &mine, sizeof(mine), run->places);
}

static dp_status open_files(struct dp_training *run)
{
    char path[DP_PATH_BYTES];

    DP_TRY(dp_run_write_config(run));
    DP_TRY(dp_file_join(path, run->out, "run.json"));
    (void)unlink(path); /* of the run before: this one has not ended yet */
    DP_TRY(dp_file_join(path, run->out, "metrics.jsonl"));
    if (run->resume.continues) {
        DP_TRY(dp_metrics_trim(path, (int64_t)run->resume.step));
    }
    DP_TRY(dp_metrics_open(&run->metrics, path, run->resume.continues));
    run->metrics_open = true;
    return DP_OK;
}

/* Rank 0: what the folder holds before the first step. What cannot begin leaves no config.yaml, for
 * which the next try would be refused. */
static dp_status begin_files(struct dp_training *run)
{
    const dp_status status = open_files(run);
    char path[DP_PATH_BYTES];

    if (status != DP_OK && !run->resume.continues &&
        dp_file_join(path, run->out, "config.yaml") == DP_OK) {
        (void)unlink(path);
    }
    return status;
}

static void count_steps(struct dp_training *run)
{
    const struct dp_train_config *train = &run->config->train;

    run->steps_per_epoch = dp_steps_per_epoch(run->data.train_count, (size_t)train->global_batch,
                                              run->config->data.drop_last);
    run->config_steps =
        train->steps > 0 ? (uint64_t)train->steps : (uint64_t)train->epochs * run->steps_per_epoch;
    run->total_steps = run->cli->steps > 0 ? (uint64_t)run->cli->steps : run->config_steps;
}

static dp_status open_trainer(struct dp_training *run)
{
    const struct dp_trainer_config config = {
        .config = run->config,
        .model = run->model,
        .device = run->device,
        .group = run->world->train,
        .data = &run->data,
        .threads = run->threads,
        .global_batch = (size_t)run->config->train.global_batch,
        .cached_input = run->cli->cached_input,
        .first_step = run->resume.step,
        .total_steps = run->total_steps,
        .schedule_steps = run->config_steps,
        .algo_choices = run->algo_choices,
    };

    DP_TRY(dp_trainer_create(&config, &run->trainer));
    DP_TRY(dp_fault_injection_check(run->faults, run->trainer));
    return dp_run_note_plan(run);
}

/* What all ranks refuse alike is told by the first; what befell others alone is told by them. */
static dp_status make_trainer(struct dp_training *run)
{
    const int errors = dp_log_errors();
    dp_status status;
    bool told;

    dp_log_mute(dp_run_leads(run) ? 0 : 1);
    status = open_trainer(run);
    dp_log_mute(0);
    if (status == DP_OK) {
        return DP_OK;
    }
    told = dp_log_errors() > errors;
    if (run->trainer != NULL || /* all have come to the same */
        (dp_group_broadcast(run->world->all, &told, sizeof(told), 0) == DP_OK && told)) {
        return status;
    }
    dp_log_tell();
    return status;
}

/* Asynchronous training, if that is wanted. */
static dp_status make_async(struct dp_training *run, const struct dp_async_hooks *steps)
{
    struct dp_async_hooks hooks;
    dp_status status;

    if (!dp_config_stale(run->config)) {
        return DP_OK;
    }
    hooks = *steps;
    hooks.context = run;
    dp_log_mute(dp_run_leads(run) ? 0 : 1);
    status = dp_async_create(run->trainer, &hooks, &run->async);
    dp_log_mute(0);
    return status;
}

/* Everything that a resumed run needs: what the trainer has, and what the run itself counts. */
static void keep_rows(struct dp_training *run)
{
    struct dp_state_dict *kept = &run->kept;

    dp_trainer_add_state(run->trainer, kept);
    dp_state_dict_add_f64(kept, "train_loss.sum", &run->train_loss_sum);
    dp_state_dict_add_u64(kept, "train_loss.steps", &run->train_loss_steps);
    dp_state_dict_add_f64(kept, "train_loss.last", &run->last_train_loss);
    dp_state_dict_add_f64(kept, "evaluation.loss", &run->evaluation.loss);
    dp_state_dict_add_f64(kept, "evaluation.accuracy", &run->evaluation.accuracy);
    dp_stop_criteria_add_state(&run->stop_criteria, kept);
}

/* Weights from the seed, or from a file. Collective. Every rank reads the file: it is small, and
 * there is no second way to share weights. Rank 0 comes first, so that what is wrong with the file
 * is told once; the others then tell what is wrong with theirs. */
static dp_status init_weights(struct dp_training *run)
{
    struct dp_trainer *t = run->trainer;
    const struct dp_model *m = run->model;
    const bool leads = dp_run_leads(run);
    int64_t ignored = 0;
    struct dp_weights weights = {m->tensors,  m->tensor_count,  dp_trainer_whole(t),
                                 m->buffers,  m->buffer_count,  dp_trainer_host_flat(t)->running,
                                 m->counters, m->counter_count, &ignored};

    DP_TRY(dp_trainer_init(t));
    if (run->cli->init == NULL) {
        return DP_OK;
    }
    DP_TRY(dp_exchange_agree(dp_trainer_exchange(t),
                             leads ? dp_weights_load(run->cli->init, &weights) : DP_OK));
    DP_TRY(dp_exchange_agree(dp_trainer_exchange(t),
                             leads ? DP_OK : dp_weights_load(run->cli->init, &weights)));
    return dp_trainer_take(t);
}

/* Rank 0: the rate in the file of --baseline. */
static dp_status read_baseline(struct dp_training *run)
{
    const char *path = run->cli->baseline;
    struct dp_json *json = NULL;
    char *text = NULL;
    size_t bytes = 0;
    dp_status status;
    bool found;

    DP_TRY(dp_file_read(path, 1 << 24, &text, &bytes));
    status = dp_json_parse(text, bytes, path, &json);
    dp_free(text);
    DP_TRY(status);
    found = dp_json_real(dp_json_get(json, "single_rank_samples_per_second"), &run->baseline_rate);
    dp_json_destroy(json);
    if (!found || run->baseline_rate <= 0.0) {
        return DP_FAIL(DP_ERR_DATA, "%s has no single_rank_samples_per_second", path);
    }
    return DP_OK;
}

/* Rank 0: its files, those read and those written. */
static dp_status setup_files(struct dp_training *run)
{
    DP_TRY(run->cli->baseline != NULL ? read_baseline(run) : DP_OK);
    DP_TRY(dp_run_find_plan(run));
    if (run->cli->dry_run || run->cli->data_only) {
        return DP_OK;
    }
    DP_TRY(dp_run_lock_out(run)); /* before anything in it is touched */
    DP_TRY(dp_run_find_checkpoint(run));
    return dp_run_make_out(run);
}

/* OpenMP starts its threads in the first step, after ours, and ends the process if it cannot. */
static dp_status begin(struct dp_training *run)
{
    DP_TRY(dp_thread_try(run->threads - 1, "computes"));
    return run->out[0] != '\0' ? begin_files(run) : DP_OK;
}

dp_status dp_run_setup(struct dp_training *run, const struct dp_async_hooks *steps)
{
    struct dp_group *group = run->world->all;

    DP_TRY(dp_group_agree(group, dp_run_leads(run) ? setup_files(run) : DP_OK));
    DP_TRY(dp_group_broadcast(group, &run->baseline_rate, sizeof(run->baseline_rate), 0));
    DP_TRY(dp_run_share_plan(run));
    DP_TRY(dp_run_share_checkpoint(run));
    DP_TRY(dp_run_place(run));
    DP_TRY(dp_run_recall_plan(run));
    DP_TRY(dp_run_load_data(run));
    count_steps(run);
    DP_TRY(dp_run_check_checkpoint(run));
    if (run->resume.finished) {
        return DP_OK;
    }
    DP_TRY(dp_run_find_choices(run));
    DP_TRY(make_trainer(run));
    if (dp_run_leads(run)) {
        dp_run_keep_choices(run);
    }
    keep_rows(run);
    if (run->cli->forget > run->kept.count) {
        return DP_FAIL(DP_ERR_USAGE, "there is no row %d", run->cli->forget);
    }
    DP_TRY(run->resume.on ? dp_run_restore(run) : init_weights(run));
    if (run->cli->dry_run || run->cli->data_only) {
        return DP_OK;
    }
    DP_TRY(dp_exchange_agree(dp_trainer_exchange(run->trainer), make_async(run, steps)));
    DP_TRY(dp_run_open_saving(run));
    return dp_exchange_agree(dp_trainer_exchange(run->trainer), begin(run));
}

void dp_run_teardown(struct dp_training *run)
{
    dp_run_close_saving(run);
    dp_async_destroy(run->async);
    dp_trainer_destroy(run->trainer);
    dp_algo_choices_destroy(run->algo_choices);
    dp_json_destroy(run->resume.state);
    if (run->metrics_open) {
        dp_metrics_close(&run->metrics);
    }
    dp_lock_release(run->lock);
    if (run->made_out && !run->metrics_open) {
        (void)rmdir(run->out); /* nothing came of it */
    }
    dp_group_release_node(run->world->all, &run->data_memory);
    dp_free(run->staleness);
    dp_free(run->places);
    dp_machine_destroy(run->machine);
    dp_model_destroy(run->model);
    dp_config_destroy(run->config);
    dp_free(run->config_text);
    dp_faults_destroy(run->faults);
    dp_free(run->fault_text);
}
