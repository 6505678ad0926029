/*
 * run.c - the loop over steps, and what happens between them: evaluation, checkpoints, measuring.
 *
 * Everything here is decided alike on all ranks, from the step's number and from sums that all of
 * them have, so no rank can be left waiting.
 */
#include "runtime/run/run.h"

#include <stdio.h>

#include "base/log.h"
#include "base/trace.h"
#include "runtime/config/config_print.h"
#include "runtime/run/check.h"
#include "runtime/run/dataset/bad_data.h"
#include "runtime/run/dataset/data_only.h"
#include "runtime/run/plan/resume.h"
#include "runtime/run/plan/run_plan.h"
#include "runtime/run/results/final_report.h"
#include "runtime/run/results/limit_figures.h"
#include "runtime/run/results/run_end.h"
#include "runtime/run/roles/eval_rank.h"
#include "runtime/run/roles/eval_serve.h"
#include "runtime/run/roles/evaluation.h"
#include "runtime/run/roles/input_ranks.h"
#include "runtime/run/roles/rank_roles.h"
#include "runtime/run/run_trace.h"
#include "runtime/run/setup.h"
#include "runtime/run/shrink.h"
#include "runtime/run/training.h"

/* By now overlap is decided. Where that cannot be written, the end of the run tries again. */
static void note_overlap(const struct dp_run_job *job)
{
    struct dp_log_capture capture;

    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    if (dp_run_write_config(job) != DP_OK) {
        DP_DEBUG("config.yaml does not say how overlap was decided");
    }
    dp_log_capture_end(&capture, DP_LOG_SOFTEN);
}

static dp_status measure_baseline(struct dp_training *run, struct dp_baseline *out)
{
    const struct dp_run_job *job = &run->job;
    struct dp_figures *figures = &run->figures;
    dp_status status;

    if (job->world->train->size == 1 || figures->baseline.given > 0.0 ||
        figures->baseline.before.no_memory) {
        return DP_OK;
    }
    DP_TRY(dp_evaluation_settle(run)); /* its rank must not take a core meanwhile */
    if (!dp_outcome_goes_on(&run->outcome) && run->outcome.exit != DP_RUN_EARLY_STOPPED) {
        return DP_OK;
    }
    dp_resources_pause(&figures->resources);
    if (dp_run_leads(job)) {
        dp_progress_line(&figures->progress, "measuring one rank alone (the others sleep)");
        note_overlap(job);
    }
    dp_run_trace_pause(run, true);
    status = dp_baseline_measure(job->trainer, job->threads, (double)figures->ledger.last_ns / 1e9,
                                 job->total_steps - job->resume.step < 40, out);
    dp_run_trace_pause(run, false);
    if (status == DP_STOPPED) {
        status = dp_run_judge_stop(run);
    }
    dp_figures_restart(figures, job);
    return status;
}

/* Before a checkpoint, and before it is evaluated: a run that resumes from it must not inherit one
 * rank's flipped bit. */
static dp_status compare_ranks(struct dp_trainer *trainer)
{
    DP_TRY(dp_trainer_sync_weights(trainer));
    return dp_trainer_compare_replicas(trainer);
}

static dp_status save(struct dp_training *run)
{
    DP_TRY(dp_run_judge_weights(&run->job, &run->outcome));
    if (run->outcome.exit != DP_RUN_FINISHED) {
        return DP_OK;
    }
    DP_TRY(dp_evaluation_settle(run));
    if (run->outcome.exit != DP_RUN_FINISHED) {
        return DP_OK;
    }
    dp_stop_saving(run->job.stop);
    if (run->job.eval != NULL) {
        dp_eval_rank_saving(run->job.eval);
    }
    if (run->job.input != NULL) {
        dp_input_ranks_saving(run->job.input);
    }
    return dp_saver_save(&run->saver, &run->outcome, &run->figures.metrics);
}

static bool save_scheduled(const struct dp_run_job *job, uint64_t step)
{
    const uint64_t steps = (uint64_t)job->config->checkpoint.every_steps;

    return steps > 0 && step % steps == 0;
}

/* What is due after step number `step` (from 1). The checkpoint of a step is the same wherever a
 * run ends (but with local steps, whose weights are averaged for it), so an evaluation that is only
 * due because the run ends comes after it. */
static dp_status between_steps(struct dp_training *run, uint64_t step)
{
    const struct dp_run_job *job = &run->job;
    const struct dp_outcome *outcome = &run->outcome;
    const bool last = step == job->total_steps, scheduled = dp_evaluation_scheduled(job, step);
    const bool saves = last || outcome->save_requested || save_scheduled(job, step);

    if (saves || scheduled || step == run->figures.baseline.step) { /* which may take long */
        dp_figures_flush(&run->figures);
    }
    if (dp_outcome_goes_on(outcome) && saves) {
        DP_TRY(compare_ranks(job->trainer));
    }
    if (dp_outcome_goes_on(outcome) && step == run->figures.baseline.step) {
        DP_TRY(measure_baseline(run, &run->figures.baseline.before));
        DP_TRY(dp_outcome_goes_on(outcome) ? dp_run_measure_limits(run) : DP_OK);
    }
    if (dp_outcome_goes_on(outcome) && scheduled && dp_evaluation_due(run, step)) {
        DP_TRY(dp_run_evaluate(run));
    }
    if (dp_outcome_goes_on(outcome) && saves) {
        DP_TRY(save(run));
    }
    return dp_outcome_goes_on(outcome) && last && dp_evaluation_due(run, step)
               ? dp_run_evaluate(run)
               : DP_OK;
}

/* What a step came to, on every rank. */
static dp_status take_result(struct dp_training *run, const struct dp_step_result *result)
{
    DP_TRY(dp_figures_add_step(&run->figures, &run->job, result));
    dp_run_judge_step(run, result->step, result->rows, &result->report);
    return DP_OK;
}

static void time_step(struct dp_training *run)
{
    dp_figures_time_step(&run->figures, &run->job);
    dp_run_judge_throughput(&run->job, &run->figures, &run->outcome);
}

static dp_status inject_faults(const struct dp_run_job *job)
{
    return job->faults != NULL ? dp_fault_injection_apply(job->faults, job->trainer) : DP_OK;
}

dp_status dp_run_step(struct dp_training *run, struct dp_step_result *result)
{
    struct dp_overlap *overlap = &run->job.overlap;
    struct dp_trainer *t = run->job.trainer;

    DP_TRY(dp_evaluation_poll(run));
    dp_run_request(run);
    dp_overlap_before(overlap, t);
    dp_run_trace_before(run);
    DP_TRY(dp_trainer_step(t, &result->report));
    DP_TRY(dp_run_judge_data(run, &result->report));
    result->step = dp_trainer_steps(t);
    result->rows = dp_trainer_batch(t)->global_rows;
    result->lr = (double)dp_trainer_step_params(t)->lr;
    time_step(run);
    dp_run_trace_after(run, result);
    DP_TRY(take_result(run, result));
    if (run->job.kept != NULL) {
        dp_shrink_note_step(run->job.kept);
    }
    DP_TRY(dp_run_judge_requests(run, result->report.request));
    DP_TRY(inject_faults(&run->job));
    if (overlap->trying) {
        DP_TRY(dp_overlap_after(overlap, t, run->figures.ledger.last_ns));
        dp_figures_restart(&run->figures, &run->job);
    }
    return DP_OK;
}

/* ---- steps of each rank by itself ---- */

static void async_request(void *run)
{
    dp_run_request(run);
}

static dp_status async_stepped(void *run)
{
    time_step(run);
    return dp_evaluation_poll(run);
}

static dp_status async_result(void *context, const struct dp_step_result *result, bool *enough)
{
    struct dp_training *run = context;

    DP_TRY(take_result(run, result));
    *enough = run->outcome.exit != DP_RUN_FINISHED;
    return DP_OK;
}

/* What the loop over steps does in asynchronous training. */
static const struct dp_async_hooks async_hooks = {
    .request = async_request, .stepped = async_stepped, .result = async_result};

static void earlier(uint64_t *step, uint64_t other)
{
    *step = other < *step ? other : *step;
}

/* The next multiple of `every` after `step`; 0: never. */
static void earlier_multiple(uint64_t *next, uint64_t step, uint64_t every)
{
    if (every > 0) {
        earlier(next, (step / every + 1) * every);
    }
}

/* The next step after which all ranks have to synchronise, as far as is known beforehand. Computed,
 * not searched for: it may be a billion steps away. */
static uint64_t next_sync(const struct dp_run_job *job, uint64_t baseline_step, uint64_t step)
{
    uint64_t next = job->total_steps;

    if (baseline_step > step) {
        earlier(&next, baseline_step);
    }
    earlier(&next, dp_fault_injection_next(job->faults, step));
    earlier_multiple(&next, step, dp_evaluation_period(job));
    earlier_multiple(&next, step, (uint64_t)job->config->checkpoint.every_steps);
    return next;
}

static dp_status async_steps(struct dp_training *run)
{
    const uint64_t until =
        next_sync(&run->job, run->figures.baseline.step, dp_trainer_steps(run->job.trainer));
    bool request[DP_REQUEST_COUNT];

    DP_TRY(dp_async_run(run->job.async, until, request));
    DP_TRY(dp_run_judge_requests(run, request));
    return inject_faults(&run->job);
}

/* ---- the whole run ---- */

static dp_status note_start(const struct dp_run_job *job, struct dp_figures *figures)
{
    struct dp_metrics *metrics = &figures->metrics;
    const struct dp_config *c = job->config;

    if (!figures->metrics_open) {
        return DP_OK;
    }
    const struct dp_metrics_start start = {
        .name = c->name,
        .device = job->device->plugin.name,
        .precision = dp_precision_text(c->train.precision),
        .strategy = dp_exchange_label(dp_trainer_exchange(job->trainer)),
        .compressor = c->comm.compressor,
        .world_size = dp_trainer_ranks(job->trainer),
        .global_batch = c->train.global_batch,
        .first_step = (int64_t)dp_trainer_steps(job->trainer),
        .steps = (int64_t)job->total_steps,
        .lost = job->resume.memory ? job->kept->lost + job->kept->lost_before : NULL,
        .lost_count = job->resume.memory ? job->kept->lost_count - job->kept->lost_before : 0,
    };
    if (!job->resume.continues) {
        DP_TRY(dp_metrics_start(metrics, &start));
    }
    if (job->resume.memory && job->kept->line.step == (int64_t)job->kept->step) {
        DP_TRY(dp_metrics_step_once(metrics, &job->kept->line));
    }
    return job->resume.on ? dp_metrics_resume(metrics, &start, job->resume.path) : DP_OK;
}

dp_status dp_run_start(struct dp_training *run)
{
    struct dp_run_job *job = &run->job;
    struct dp_trainer *t = job->trainer;
    const uint64_t steps =
        job->total_steps > dp_trainer_steps(t) ? job->total_steps - dp_trainer_steps(t) : 0;

    run->figures.baseline.step = dp_trainer_steps(t) + (steps > 40 ? 20 : (steps + 1) / 2);
    dp_trainer_set_stop(t, job->stop);
    if (job->stop != NULL && job->options->max_time_s > 0.0 && dp_run_leads(job)) {
        dp_stop_set_deadline(job->stop, job->options->max_time_s, dp_process_age_s());
    }
    DP_TRY(note_start(job, &run->figures));
    DP_TRY(dp_figures_mark_clock(&run->figures, job));
    dp_overlap_begin(&job->overlap, t, job->total_steps);
    dp_ledger_init(&run->figures.ledger, dp_ledger_unsteady(steps),
                   dp_exchange_comm_ns(dp_trainer_exchange(t)));
    /* There may be nothing left to wait for. */
    if (dp_trainer_steps(t) > 0 &&
        (job->eval == NULL || dp_evaluation_scheduled(job, dp_trainer_steps(t)))) {
        dp_run_judge_improvement(job, &run->outcome);
    }
    return DP_OK;
}

/* Everything up to the end of training, whatever ends it. */
static dp_status train_steps(struct dp_training *run)
{
    const struct dp_run_job *job = &run->job;
    const struct dp_outcome *outcome = &run->outcome;
    struct dp_step_result result;

    DP_TRY(dp_run_start(run));
    if (dp_outcome_goes_on(outcome) && dp_evaluation_due(run, dp_trainer_steps(job->trainer))) {
        DP_TRY(dp_run_evaluate(run)); /* one that was broken off */
    }
    while (dp_trainer_steps(job->trainer) < job->total_steps && outcome->exit == DP_RUN_FINISHED) {
        DP_TRY(job->async != NULL ? async_steps(run) : dp_run_step(run, &result));
        DP_TRY(dp_run_trace_write(run, false));
        dp_saver_poll(&run->saver, outcome, &run->figures.metrics);
        DP_TRY(between_steps(run, dp_trainer_steps(job->trainer)));
    }
    DP_TRY(dp_evaluation_finish(run));
    if ((outcome->exit == DP_RUN_FINISHED || outcome->exit == DP_RUN_EARLY_STOPPED) &&
        !outcome->late_stop) {
        DP_TRY(dp_run_measure_limits_again(run));
        DP_TRY(measure_baseline(run, &run->figures.baseline.after));
    }
    if (outcome->exit != DP_RUN_DIVERGED && !dp_outcome_goes_on(outcome)) {
        /* These weights are saved after a step for which no checkpoint was due. */
        DP_TRY(compare_ranks(job->trainer));
    }
    return dp_run_judge_weights(job, &run->outcome);
}

/* dp_status_together() of a whole run. A failure in a step is of one rank, until all know of it. */
static bool ends_together(const struct dp_outcome *outcome, dp_status status)
{
    return outcome->ready
               ? status == DP_OK || status == DP_STOPPED || status == DP_ERR_DIVERGED ||
                     status == DP_ERR_DISAGREE || (status == DP_ERR_WRITE && outcome->unwritable)
               : dp_status_together(status);
}

static dp_status finish_input(struct dp_training *run)
{
    return run->job.input != NULL
               ? dp_input_ranks_finish(run->job.input, &run->figures.input.work_ns,
                                       &run->figures.input.rows)
               : DP_OK;
}

/* Ranks that help end as the others do. */
static dp_status end_helpers(const struct dp_training *run, dp_status status)
{
    if (run->job.input != NULL) {
        DP_TRY(dp_input_ranks_end(run->job.input, status));
    }
    return run->job.eval != NULL ? dp_eval_rank_end(run->job.eval, status) : DP_OK;
}

/* The whole run, with its report. */
static dp_status train(struct dp_training *run)
{
    const dp_status status = train_steps(run);
    dp_status finished;
    bool untraced;

    if (status == DP_ERR_DISAGREE) {
        dp_outcome_replace(&run->outcome, DP_RUN_ERROR, "after step %llu: ranks disagree",
                           (unsigned long long)dp_trainer_steps(run->job.trainer));
    } else if (status != DP_OK) {
        return status;
    }
    DP_TRY(dp_run_trace_write(run, true));
    DP_TRY(finish_input(run));
    finished = dp_run_finish(run);
    if (finished != DP_OK) { /* otherwise ranks that help are aborted as all others are */
        DP_TRY(ends_together(&run->outcome, finished) ? end_helpers(run, finished) : DP_OK);
        return finished;
    }
    untraced = run->trace_failed && status == DP_OK && dp_run_end_status(&run->outcome) == DP_OK;
    DP_TRY(end_helpers(run, status != DP_OK ? status
                            : untraced      ? DP_ERR_WRITE
                                            : dp_run_end_status(&run->outcome)));
    if (untraced) {
        run->outcome.unwritable = true; /* all ranks know */
        return DP_ERR_WRITE;
    }
    return status != DP_OK ? status : dp_run_last_word(run);
}

/* The run of a rank that helps the others, and ends as they do. */
static dp_status help(struct dp_training *run)
{
    dp_status end = DP_OK;

    DP_TRY(run->reader != NULL ? dp_reader_serve(run->reader, &run->job, &end)
                               : dp_eval_serve(&run->job, run->evaluator, &end));
    run->outcome.unwritable = end == DP_ERR_WRITE;
    return end;
}

/* --data-only: instead of training. */
static dp_status read_only(struct dp_training *run)
{
    DP_TRY(dp_run_data_only(&run->job, &run->figures.progress));
    DP_TRY(finish_input(run));
    return end_helpers(run, DP_OK);
}

static dp_status run_all(struct dp_training *run)
{
    struct dp_run_job *job = &run->job;
    struct dp_progress *progress = &run->figures.progress;

    DP_TRY(dp_run_configure(job));
    DP_TRY(dp_shrink_check_world(job));
    if (job->options->print_config) {
        if (dp_run_leads(job)) {
            (void)fwrite(job->config_text, 1, dp_config_text_length(job->config_text), stdout);
        }
        return DP_OK;
    }
    DP_TRY(dp_run_setup(run, &async_hooks));
    if (job->resume.finished) {
        return DP_OK;
    }
    if (!dp_run_shares(job)) {
        run->outcome.ready = true;
        const bool idle = job->options->data_only && job->world->role == DP_ROLE_EVALUATE;
        return job->options->dry_run || idle ? DP_OK : help(run);
    }
    if (dp_run_leads(job)) {
        dp_run_describe(job, progress);
        dp_run_describe_resume(job, progress);
    }
    if (job->options->dry_run) {
        return DP_OK;
    }
    run->outcome.ready = true;
    if (job->options->data_only) {
        return read_only(run);
    }
    dp_world_allow_shrink(job->world, dp_config_shrinks(job->config));
    return train(run);
}

/* Until the run ends, or *shrinks: it goes on in a smaller world. */
static dp_status run_once(struct dp_training *run, struct dp_kept_run *kept, bool *shrinks)
{
    const dp_status status = run_all(run);

    run->outcome.done = status == DP_OK && run->outcome.ready;
    dp_progress_end(&run->figures.progress);
    *shrinks = dp_shrink_may(run, status, kept);
    if (!*shrinks && !ends_together(&run->outcome, status)) {
        dp_figures_flush(&run->figures);
        dp_world_abort(run->job.world, dp_status_exit(status));
    }
    dp_run_teardown(run);
    return status;
}

dp_status dp_run_main(const struct dp_run_options *options, struct dp_world *world,
                      struct dp_stop *stop)
{
    DP_SPAN(DP_PHASE_OTHER, 0);
    struct dp_training *run = dp_zalloc(1, sizeof(*run));
    struct dp_kept_run *kept = dp_zalloc(1, sizeof(*kept));
    dp_status status = DP_OK;
    bool again = true;

    if (run == NULL || kept == NULL) {
        dp_free(run);
        dp_free(kept);
        return DP_FAIL(DP_ERR_NOMEM, "run");
    }
    kept->options = *options;
    while (again) {
        dp_run_init(run, &kept->options, world);
        run->job.stop = stop;
        run->job.kept = kept;
        status = run_once(run, kept, &again);
        if (again && !dp_shrink_world(world, kept)) {
            status = DP_OK;
            again = false;
        }
    }
    dp_kept_run_release(kept);
    dp_free(kept);
    dp_free(run);
    return status;
}
