/*
 * run.c - the loop over steps, and what happens between them: evaluation, checkpoints, measuring.
 *
 * Everything here is decided alike on all ranks, from the step's number and from sums that all of
 * them have, so no rank can be left waiting.
 */
#include "runtime/run/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/trace.h"
#include "runtime/config/config_print.h"
#include "runtime/run/check.h"
#include "runtime/run/final_report.h"
#include "runtime/run/resume.h"
#include "runtime/run/run_end.h"
#include "runtime/run/run_plan.h"
#include "runtime/run/save.h"
#include "runtime/run/setup.h"
#include "runtime/run/training.h"

static int epoch_of(const struct dp_training *run, uint64_t step)
{
    return (int)(step / run->steps_per_epoch) + 1;
}

/* A file that is given up ends the run, but behind a step and saved: dp_run_request(). */
static dp_status noted(dp_status status)
{
    return status == DP_ERR_WRITE ? DP_OK : status;
}

/* Rank 0: one line in metrics.jsonl, and the line that people watch. Steps are from 1. */
static dp_status note_step(struct dp_training *run, const struct dp_step_result *result)
{
    const struct dp_trainer *t = run->trainer;
    const double seconds = (double)run->ledger.last_ns / 1e9;
    double rate;

    if (!dp_run_leads(run)) {
        return DP_OK;
    }
    run->rate_ns += run->ledger.last_ns;
    run->rate_samples += result->rows;
    rate = (double)run->rate_samples / ((double)run->rate_ns / 1e9);
    if (run->rate_ns > 2000000000u) { /* the rate of about the last two seconds */
        run->rate_ns /= 2;
        run->rate_samples /= 2;
    }
    const struct dp_progress_step progress = {
        .epoch = epoch_of(run, result->step - 1),
        .epochs = run->config->train.epochs,
        .step = (int64_t)result->step,
        .steps = (int64_t)run->total_steps,
        .loss = (double)result->report.loss,
        .lr = result->lr,
        .samples_per_second = rate,
        .left_s = (double)(run->total_steps - result->step) *
                  (double)run->config->train.global_batch / rate,
    };
    const struct dp_metrics_step line = {
        .step = (int64_t)result->step,
        .epoch = progress.epoch,
        .loss = (double)result->report.loss,
        .lr = result->lr,
        .samples_per_second = (double)result->rows / seconds,
        .step_ms = seconds * 1e3,
        .loss_scale =
            dp_trainer_loss_scaler(t)->on ? (double)dp_trainer_step_params(t)->loss_scale : 0.0,
        .skipped = result->report.skipped,
    };
    dp_progress_step(&run->progress, &progress);
    return noted(dp_metrics_step(&run->metrics, &line));
}

/* One that is broken off leaves no trace: a resumed run makes up for it. */
static dp_status evaluate(struct dp_training *run)
{
    const uint64_t begin_ns = dp_now_ns();
    const uint64_t steps = run->train_loss_steps;
    struct dp_evaluation found;
    dp_status status;

    DP_TRY(dp_trainer_sync_weights(run->trainer));
    status = dp_trainer_evaluate(run->trainer, &found);
    if (status != DP_OK) {
        return status == DP_STOPPED ? dp_run_asked(run) : status;
    }
    run->evaluation = found;
    run->stop_criteria.evaluated_at = dp_trainer_steps(run->trainer);
    run->last_train_loss = steps > 0 ? run->train_loss_sum / (double)steps : run->last_train_loss;
    run->train_loss_sum = 0.0;
    run->train_loss_steps = 0;
    if (dp_run_leads(run)) {
        const struct dp_metrics_eval line = {
            .step = (int64_t)dp_trainer_steps(run->trainer),
            .epoch = epoch_of(run, dp_trainer_steps(run->trainer) - 1),
            .train_loss = run->last_train_loss,
            .test_loss = run->evaluation.loss,
            .test_accuracy = run->evaluation.accuracy,
            .seconds = (double)(dp_now_ns() - begin_ns) / 1e9,
        };
        dp_progress_line(
            &run->progress,
            "epoch %d step %lld: train loss %.4f, test loss %.4f, test accuracy %.2f %%",
            line.epoch, (long long)line.step, line.train_loss, line.test_loss,
            100.0 * line.test_accuracy);
        DP_TRY(noted(dp_metrics_eval(&run->metrics, &line)));
    }
    dp_run_judge_evaluation(run);
    dp_ledger_restart(&run->ledger, dp_exchange_comm_ns(dp_trainer_exchange(run->trainer)));
    return DP_OK;
}

/* By now overlap is decided. Where that cannot be written the end of the run has another try. */
static void note_overlap(struct dp_training *run)
{
    dp_log_soften(true);
    if (dp_run_write_config(run) != DP_OK) {
        DP_DEBUG("config.yaml does not say how overlap was decided");
    }
    dp_log_soften(false);
}

static dp_status measure_baseline(struct dp_training *run, struct dp_baseline *out)
{
    dp_status status;

    if (run->world->train->size == 1 || run->baseline_rate > 0.0 || run->before.no_memory) {
        return DP_OK;
    }
    if (dp_run_leads(run)) {
        dp_progress_line(&run->progress, "measuring one rank alone (the others sleep)");
        note_overlap(run);
    }
    status = dp_baseline_measure(run->trainer, run->threads,
                                 run->total_steps - run->resume.step < 40, out);
    if (status == DP_STOPPED) {
        status = dp_run_asked(run);
    }
    dp_ledger_restart(&run->ledger, dp_exchange_comm_ns(dp_trainer_exchange(run->trainer)));
    return status;
}

/* Whether the run goes on, and has not been asked to hurry. */
static bool has_time(const struct dp_training *run)
{
    return run->exit == DP_RUN_FINISHED && !run->hurried;
}

/* Whether every run is evaluated behind step number `step` (from 1), wherever it ends. */
static bool evaluation_scheduled(const struct dp_training *run, uint64_t step)
{
    const uint64_t steps = (uint64_t)run->config->train.eval_every * run->steps_per_epoch;

    return steps > 0 && step % steps == 0;
}

/* Whether an evaluation is due behind a step and has not been made. */
static bool evaluation_due(const struct dp_training *run, uint64_t step)
{
    return step > 0 && run->stop_criteria.evaluated_at != step &&
           (step == run->total_steps || evaluation_scheduled(run, step));
}

/* Before a checkpoint, and before it is evaluated: whoever resumes from it must not inherit one
 * rank's flipped bit. */
static dp_status compare_ranks(struct dp_training *run)
{
    DP_TRY(dp_trainer_sync_weights(run->trainer));
    return dp_trainer_compare_replicas(run->trainer);
}

static dp_status save(struct dp_training *run)
{
    DP_TRY(dp_run_judge_weights(run));
    if (run->exit != DP_RUN_FINISHED) {
        return DP_OK;
    }
    dp_stop_saving(run->stop);
    return dp_run_save(run);
}

static bool save_scheduled(const struct dp_training *run, uint64_t step)
{
    const uint64_t steps = (uint64_t)run->config->checkpoint.every_steps;

    return steps > 0 && step % steps == 0;
}

/* What is due behind step number `step` (from 1). A checkpoint is what it is at that step of any
 * run (that shares every step: local steps are averaged for it), so an evaluation only because the
 * run ends comes behind it. */
static dp_status between_steps(struct dp_training *run, uint64_t step)
{
    const bool last = step == run->total_steps, scheduled = evaluation_scheduled(run, step);
    const bool saves = last || run->save_wished || save_scheduled(run, step);

    if (has_time(run) && saves) {
        DP_TRY(compare_ranks(run));
    }
    if (has_time(run) && step == run->baseline_at) {
        DP_TRY(measure_baseline(run, &run->before));
    }
    if (has_time(run) && scheduled && evaluation_due(run, step)) {
        DP_TRY(evaluate(run));
    }
    if (has_time(run) && saves) {
        DP_TRY(save(run));
    }
    return has_time(run) && last && evaluation_due(run, step) ? evaluate(run) : DP_OK;
}

/* What a step came to, on every rank. */
static dp_status take_result(struct dp_training *run, const struct dp_step_result *result)
{
    if (!result->report.skipped) {
        run->train_loss_sum += (double)result->report.loss;
        run->train_loss_steps++;
    }
    DP_TRY(note_step(run, result));
    dp_run_judge_step(run, result->step, result->rows, &result->report);
    return DP_OK;
}

static void time_step(struct dp_training *run)
{
    const struct dp_trainer *t = run->trainer;

    dp_ledger_mark(&run->ledger, dp_trainer_batch(t)->global_rows, dp_trainer_batch(t)->rows,
                   dp_exchange_comm_ns(dp_trainer_exchange(t)));
    if (run->first_step_s == 0.0) {
        run->first_step_s = dp_process_age_s();
    }
    dp_run_note_throughput(run);
}

static dp_status break_something(struct dp_training *run)
{
    return run->faults != NULL ? dp_fault_injection_apply(run->faults, run->trainer) : DP_OK;
}

static dp_status one_step(struct dp_training *run)
{
    struct dp_trainer *t = run->trainer;
    struct dp_step_result result;

    dp_run_request(run);
    dp_overlap_before(&run->overlap, t);
    DP_TRY(dp_trainer_step(t, &result.report));
    result.step = dp_trainer_steps(t);
    result.rows = dp_trainer_batch(t)->global_rows;
    result.lr = (double)dp_trainer_step_params(t)->lr;
    time_step(run);
    DP_TRY(take_result(run, &result));
    DP_TRY(dp_run_judge_requests(run, result.report.request));
    DP_TRY(break_something(run));
    if (run->overlap.trying) {
        DP_TRY(dp_overlap_after(&run->overlap, t, run->ledger.last_ns));
        dp_ledger_restart(&run->ledger, dp_exchange_comm_ns(dp_trainer_exchange(t)));
    }
    return DP_OK;
}

/* ---- steps at every rank's own pace ---- */

static void async_wish(void *run)
{
    dp_run_request(run);
}

static dp_status async_stepped(void *run)
{
    time_step(run);
    return DP_OK;
}

static dp_status async_result(void *context, const struct dp_step_result *result, bool *enough)
{
    struct dp_training *run = context;

    DP_TRY(take_result(run, result));
    *enough = run->exit != DP_RUN_FINISHED;
    return DP_OK;
}

/* What the loop over steps does in asynchronous training. */
static const struct dp_async_hooks async_hooks = {
    .request = async_wish, .stepped = async_stepped, .result = async_result};

/* Whether all ranks have to meet behind step number `step`, as far as is known beforehand. */
static bool meeting_due(const struct dp_training *run, uint64_t step)
{
    bool breaks = false;

    for (const struct dp_fault *fault = run->faults; fault != NULL; fault = fault->next) {
        breaks = breaks || (uint64_t)fault->step == step;
    }
    return breaks || step == run->total_steps || step == run->baseline_at ||
           evaluation_scheduled(run, step) || save_scheduled(run, step);
}

static dp_status async_steps(struct dp_training *run)
{
    uint64_t until = dp_trainer_steps(run->trainer) + 1;
    bool request[DP_REQUEST_COUNT];

    while (!meeting_due(run, until)) {
        until++;
    }
    DP_TRY(dp_async_run(run->async, until, request));
    DP_TRY(dp_run_judge_requests(run, request));
    return break_something(run);
}

static dp_status note_start(struct dp_training *run)
{
    const struct dp_config *c = run->config;

    if (!dp_run_leads(run)) {
        return DP_OK;
    }
    const struct dp_metrics_start start = {
        .name = c->name,
        .device = run->device->plugin.name,
        .precision = dp_precision_text(c->train.precision),
        .strategy = dp_exchange_label(dp_trainer_exchange(run->trainer)),
        .compressor = c->comm.compressor,
        .world_size = dp_trainer_ranks(run->trainer),
        .global_batch = c->train.global_batch,
        .first_step = (int64_t)dp_trainer_steps(run->trainer),
        .steps = (int64_t)run->total_steps,
    };
    if (!run->resume.continues) {
        DP_TRY(dp_metrics_start(&run->metrics, &start));
    }
    return run->resume.on ? dp_metrics_resume(&run->metrics, &start, run->resume.path) : DP_OK;
}

/* A run that goes on from a checkpoint may have nothing left to wait for; and an evaluation that
 * was broken off is made up for. */
static dp_status take_up(struct dp_training *run)
{
    const uint64_t step = dp_trainer_steps(run->trainer);

    if (step > 0) {
        dp_run_judge_improvement(run);
    }
    return has_time(run) && evaluation_due(run, step) ? evaluate(run) : DP_OK;
}

/* Everything up to the end, whichever it is. */
static dp_status train_steps(struct dp_training *run)
{
    struct dp_trainer *t = run->trainer;
    const uint64_t steps =
        run->total_steps > dp_trainer_steps(t) ? run->total_steps - dp_trainer_steps(t) : 0;

    run->baseline_at = dp_trainer_steps(t) + (steps > 40 ? 20 : (steps + 1) / 2);
    dp_trainer_set_stop(t, run->stop);
    if (run->stop != NULL && run->cli->max_time_s > 0.0 && dp_run_leads(run)) {
        dp_stop_set_deadline(run->stop, run->cli->max_time_s, dp_process_age_s());
    }
    DP_TRY(note_start(run));
    dp_overlap_begin(&run->overlap, t, run->total_steps);
    dp_ledger_init(&run->ledger, dp_ledger_unsteady(steps),
                   dp_exchange_comm_ns(dp_trainer_exchange(t)));
    DP_TRY(take_up(run));
    while (dp_trainer_steps(t) < run->total_steps && run->exit == DP_RUN_FINISHED) {
        DP_TRY(run->async != NULL ? async_steps(run) : one_step(run));
        dp_run_note_saving(run);
        DP_TRY(between_steps(run, dp_trainer_steps(t)));
    }
    if ((run->exit == DP_RUN_FINISHED || run->exit == DP_RUN_EARLY_STOPPED) && !run->hurried) {
        DP_TRY(measure_baseline(run, &run->after));
    }
    if (run->exit != DP_RUN_DIVERGED && !has_time(run)) { /* it is not the end that was foreseen */
        DP_TRY(compare_ranks(run));
    }
    return dp_run_judge_weights(run);
}

/* The whole run, and what is left of it. */
static dp_status train(struct dp_training *run)
{
    const dp_status status = train_steps(run);

    if (status == DP_ERR_DISAGREE) {
        run->exit = DP_RUN_ERROR;
        (void)snprintf(run->reason, sizeof(run->reason), "behind step %llu: ranks disagree",
                       (unsigned long long)dp_trainer_steps(run->trainer));
    } else if (status != DP_OK) {
        return status;
    }
    DP_TRY(dp_run_finish(run));
    return status != DP_OK ? status : dp_run_last_word(run);
}

/* --data-only: instead of training. */
static dp_status data_only(struct dp_training *run)
{
    struct dp_trainer *t = run->trainer;
    const uint64_t begin_ns = dp_now_ns();
    uint64_t rows = 0;
    char text[DP_GROUPED_BYTES];

    for (uint64_t i = 0; i < run->total_steps; i++) {
        DP_TRY(dp_trainer_next_batch(t));
        rows += dp_trainer_batch(t)->global_rows;
    }
    if (dp_run_leads(run)) {
        const double seconds = (double)(dp_now_ns() - begin_ns) / 1e9;
        dp_progress_line(&run->progress, "input alone: %llu batch%s, %s samples/s over all ranks",
                         (unsigned long long)run->total_steps, run->total_steps == 1 ? "" : "es",
                         dp_grouped(text, (double)rows / seconds));
    }
    return DP_OK;
}

static dp_status run_all(struct dp_training *run)
{
    DP_TRY(dp_run_configure(run));
    if (run->cli->print_config) {
        if (dp_run_leads(run)) {
            (void)fwrite(run->config_text, 1, dp_config_text_length(run->config_text), stdout);
        }
        return DP_OK;
    }
    DP_TRY(dp_run_setup(run, &async_hooks));
    if (run->resume.finished) {
        return DP_OK;
    }
    if (dp_run_leads(run)) {
        dp_run_describe(run);
        dp_run_tell_resume(run);
    }
    if (run->cli->dry_run) {
        return DP_OK;
    }
    run->begun = true;
    return run->cli->data_only ? data_only(run) : train(run);
}

/* dp_status_together() of a whole run: what fails in a step is one rank's, until all have found
 * out. */
static bool ends_together(const struct dp_training *run, dp_status status)
{
    return run->begun ? status == DP_OK || status == DP_STOPPED || status == DP_ERR_DIVERGED ||
                            status == DP_ERR_DISAGREE || (status == DP_ERR_WRITE && run->unwritable)
                      : dp_status_together(status);
}

dp_status dp_run_main(const struct dp_cli *cli, struct dp_world *world, struct dp_stop *stop)
{
    DP_SPAN(DP_PHASE_OTHER, 0);
    struct dp_training *run = dp_zalloc(1, sizeof(*run));
    dp_status status;

    if (run == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "run");
    }
    run->cli = cli;
    run->world = world;
    run->stop = stop;
    run->exit = DP_RUN_FINISHED;
    run->last_train_loss = run->evaluation.loss = run->evaluation.accuracy = (double)NAN;
    dp_progress_init(&run->progress, stdout, dp_progress_on_terminal(dp_world_launch_rank() >= 0),
                     cli->quiet);
    status = run_all(run);
    dp_progress_end(&run->progress);
    if (!ends_together(run, status)) {
        dp_world_abort(world, dp_status_exit(status));
    }
    dp_run_teardown(run);
    dp_free(run);
    return status;
}
