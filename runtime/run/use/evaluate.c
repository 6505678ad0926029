/*
 * evaluate.c - an evaluation without a training: a trainer is made of the run's configuration, as
 * far as that decides what the figures are, gets the weights alone, or their average, and takes no
 * step.
 */
#include "runtime/run/use/evaluate.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "runtime/report/figure_text.h"
#include "runtime/run/setup.h"
#include "runtime/run/use/saved_run.h"

/* How gradients would be shared does not matter here, and might want other ranks than there are. */
static const char *const alike[] = {"train.mode=sync",
                                    "train.staleness=0",
                                    "train.local_steps=1",
                                    "train.eval_rank=false",
                                    "data.input_ranks=0",
                                    "data.augment=[]",
                                    "train.on_rank_failure=stop",
                                    "comm.strategy=direct",
                                    "comm.servers=0",
                                    "comm.compressor=none"};
enum { ALIKE = sizeof(alike) / sizeof(alike[0]) };

/* Rank 0. The rest of the configuration belongs to the weights. */
static dp_status check_sets(const struct dp_run_options *options)
{
    for (int i = 0; i < options->set_count; i++) {
        const char *set = options->sets[i];
        if (strncmp(set, "data.", 5) != 0 && strncmp(set, "device.", 7) != 0 &&
            strcmp(set, "train.ema=0") != 0) {
            return DP_FAIL(DP_ERR_CONFIG,
                           "--set %s: --evaluate takes the configuration of the run; only data.*, "
                           "device.* and train.ema=0 can be set",
                           set);
        }
    }
    return options->set_count + ALIKE <= DP_RUN_SETS
               ? DP_OK
               : DP_FAIL(DP_ERR_USAGE, "more than %d --set", DP_RUN_SETS - ALIKE);
}

struct evaluation {
    struct dp_run_options options; /* those of the run, as it borrows them */
    struct {
        char weights[DP_PATH_BYTES], average[DP_PATH_BYTES], config[DP_PATH_BYTES];
    } told;                    /* by rank 0 to the others */
    struct dp_saved_run saved; /* rank 0 */
    struct dp_training run;
    bool begun; /* ranks compute: what fails now may fail on one of them */
};

/* Rank 0. */
static dp_status find(struct evaluation *e)
{
    const struct dp_run_options *options = &e->options;

    DP_TRY(check_sets(options));
    DP_TRY(dp_saved_run_find(options->evaluate, options->config, &e->saved));
    memcpy(e->told.config, e->saved.config, sizeof(e->told.config));
    DP_TRY(dp_file_join(e->told.average, e->saved.checkpoint, "optimizer.safetensors"));
    return dp_file_join(e->told.weights, e->saved.checkpoint, "model.safetensors");
}

/* Lanes that cannot be divided over these ranks; without them figures differ by rounding. */
static void leave_odd_lanes(struct dp_run_job *job)
{
    const int lanes = job->config->train.lanes, ranks = job->world->all->size;

    if (lanes > 0 && (lanes % ranks != 0)) {
        if (dp_run_leads(job)) {
            DP_WARN("%d lanes cannot be divided over %d ranks: without them the last digits may "
                    "differ from training's",
                    lanes, ranks);
        }
        job->config->train.lanes = 0;
    }
}

/* ---- printing, on rank 0 ---- */

static dp_status print_json(const struct dp_run_job *job, const struct dp_saved_run *saved,
                            const struct dp_evaluation *found)
{
    struct dp_json *object = dp_json_create();
    char *text = NULL;
    dp_status status;
    const struct {
        const char *name;
        double value;
    } figures[] = {{"test_loss", found->loss},
                   {"test_accuracy", found->accuracy},
                   {"test_top5_accuracy", found->top5},
                   {"test_mean_absolute_error", found->error}};

    status = dp_json_set_text(object, "name", job->config->name);
    status = status == DP_OK ? dp_json_set_text(object, "checkpoint", saved->checkpoint) : status;
    status = status == DP_OK ? dp_json_set_int(object, "step", (int64_t)saved->step) : status;
    status = status == DP_OK ? dp_json_set_int(object, "test_rows", (int64_t)job->data.test_count)
                             : status;
    for (size_t i = 0; status == DP_OK && i < sizeof(figures) / sizeof(figures[0]); i++) {
        status = dp_json_set_real(object, figures[i].name, figures[i].value);
    }
    status = status == DP_OK ? dp_json_dump(object, 2, DP_JSON_READABLE + 3, &text) : status;
    if (status == DP_OK) {
        (void)fwrite(text, 1, strlen(text), stdout);
        (void)fwrite("\n", 1, 1, stdout);
    }
    dp_free(text);
    dp_json_destroy(object);
    return status;
}

static void print_line(const struct dp_run_job *job, const struct dp_saved_run *saved,
                       const struct dp_evaluation *found)
{
    const struct dp_figure_metric metric = dp_figure_metric(found->accuracy, found->error);
    char value[DP_FIGURE_BYTES], rows[DP_GROUPED_BYTES], loss[DP_GROUPED_BYTES];

    dp_text_line(stdout, "step %llu: test loss %s, test %s %s, %s test rows, %s",
                 (unsigned long long)saved->step, dp_loss_text(loss, found->loss), metric.name,
                 dp_figure_number(value, metric.kind, metric.value),
                 dp_grouped_count(rows, job->data.test_count), saved->checkpoint);
}

/* ---- all of it ---- */

/* Sets up a run that only evaluates. */
static dp_status set_up(struct evaluation *e)
{
    struct dp_run_options *options = &e->options;
    struct dp_run_job *job = &e->run.job;
    struct dp_group *all = job->world->all;

    DP_TRY(dp_group_agree(all, dp_run_leads(job) ? find(e) : DP_OK));
    DP_TRY(dp_group_broadcast(all, &e->told, sizeof(e->told), 0));
    options->config = e->told.config;
    options->init = e->told.weights;
    options->average = e->told.average;
    options->own_folder = false;
    for (int i = 0; i < ALIKE; i++) {
        options->sets[options->set_count++] = alike[i];
    }
    DP_TRY(dp_run_configure(job));
    leave_odd_lanes(job);
    DP_TRY(dp_run_setup(&e->run, NULL));
    return dp_group_agree(
        all, dp_run_leads(job)
                 ? dp_class_names_check(&job->class_names, e->saved.state, e->saved.checkpoint)
                 : DP_OK);
}

static dp_status evaluate(struct evaluation *e)
{
    const struct dp_run_job *job = &e->run.job;
    struct dp_evaluation found;

    DP_TRY(set_up(e));
    e->begun = true;
    DP_TRY(dp_trainer_evaluate(job->trainer, &found));
    if (!dp_run_leads(job)) {
        return DP_OK;
    }
    if (e->options.json) {
        return print_json(job, &e->saved, &found);
    }
    print_line(job, &e->saved, &found);
    return DP_OK;
}

dp_status dp_run_evaluate_saved(const struct dp_run_options *options, struct dp_world *world)
{
    struct evaluation *e = dp_zalloc(1, sizeof(*e));
    dp_status status;

    if (e == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "an evaluation");
    }
    e->options = *options;
    dp_run_init(&e->run, &e->options, world);
    status = evaluate(e);
    if (e->begun ? status != DP_OK : !dp_status_together(status)) {
        dp_world_abort(world, dp_status_exit(status));
    }
    dp_run_teardown(&e->run);
    dp_saved_run_release(&e->saved);
    dp_free(e);
    return status;
}
