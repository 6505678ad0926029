/*
 * run_end.c - how a run ends before its last step: on request, or by a decision of its own.
 *
 * Every rank comes to the same end after the same step: requests travel in the tail of the gradient
 * or with what ranks gather anyway, decisions are made from sums that all ranks have.
 */
#include "runtime/run/results/run_end.h"

#include <stdio.h>

#include "base/log.h"
#include "collectives/exchange/exchange_calls.h"
#include "collectives/world/host_names.h"
#include "runtime/run/roles/eval_rank.h"
#include "runtime/run/roles/input_ranks.h"

/* ---- requests ---- */

/* Within local steps an early average would change the training: the end waits for the one that is
 * due, unless a kill is likely to follow the request. */
static bool can_wait(const struct dp_run_job *job, enum dp_stop_cause cause)
{
    return dp_trainer_unaveraged(job->trainer) && cause != DP_STOP_TERM && cause != DP_STOP_INT;
}

/* Lines that are not written are lost, so that cause comes first. Rank 0, which has it, is also the
 * first one that is looked at. */
static enum dp_stop_cause cause_of(const struct dp_training *run)
{
    return run->figures.metrics.given_up ? DP_STOP_WRITE : dp_stop_asked(run->job.stop);
}

/* A request to stop, and the rank that got it. */
struct request {
    int cause; /* enum dp_stop_cause */
    int rank;
};

/* Rank 0 speaks for ranks that help, too. */
static struct request request_of(const struct dp_training *run)
{
    const struct dp_world *world = run->job.world;
    struct request mine = {(int)cause_of(run), world->all->rank};

    if (mine.cause == DP_STOP_NONE && run->job.eval != NULL) {
        mine.cause = (int)dp_eval_rank_asked(run->job.eval);
        mine.rank = dp_role_first(&world->roles, DP_ROLE_EVALUATE);
    }
    if (mine.cause == DP_STOP_NONE && run->job.input != NULL) {
        mine.cause = (int)dp_input_ranks_asked(run->job.input, &mine.rank);
    }
    return mine;
}

dp_status dp_run_judge_stop(struct dp_training *run)
{
    const struct dp_run_job *job = &run->job;
    const int ranks = job->world->train->size;
    const struct request mine = request_of(run);
    struct request *all;
    dp_status status;
    int i = 0;

    if (dp_trainer_steps(job->trainer) == job->total_steps) {
        run->outcome.late_stop = true;
        return DP_OK;
    }
    all = dp_zalloc((size_t)ranks, sizeof(*all));
    if (all == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "requests of %d ranks", ranks);
    }
    status = dp_exchange_gather(dp_trainer_exchange(job->trainer), &mine, sizeof(mine), all);
    while (i + 1 < ranks && all[i].cause == DP_STOP_NONE) {
        i++;
    }
    const enum dp_stop_cause cause = (enum dp_stop_cause)all[i].cause;
    const int rank = all[i].rank;
    if (status == DP_OK && !can_wait(job, cause)) {
        run->outcome.stop_cause = cause;
        run->outcome.unwritable = cause == DP_STOP_WRITE;
        dp_outcome_end(&run->outcome, DP_RUN_STOPPED, "stopped after step %llu: %s on rank %d (%s)",
                       (unsigned long long)dp_trainer_steps(job->trainer), dp_stop_text(cause),
                       rank, dp_host_names_of(job->world->hosts, rank));
    }
    dp_free(all);
    return status;
}

void dp_run_request(struct dp_training *run)
{
    struct dp_trainer *t = run->job.trainer;

    dp_trainer_set_request(t, DP_REQUEST_STOP, request_of(run).cause != DP_STOP_NONE);
    dp_trainer_set_request(
        t, DP_REQUEST_SAVE,
        dp_stop_save_asked(run->job.stop) ||
            (run->job.eval != NULL && dp_eval_rank_save_asked(run->job.eval)) ||
            (run->job.input != NULL && dp_input_ranks_save_asked(run->job.input)));
    dp_trainer_set_request(t, DP_REQUEST_SLOW, run->outcome.too_slow);
}

dp_status dp_run_judge_requests(struct dp_training *run, const bool *request)
{
    const struct dp_run_job *job = &run->job;
    const struct dp_trainer *t = job->trainer;

    run->outcome.save_requested = request[DP_REQUEST_SAVE] && !dp_trainer_unaveraged(t);
    if (request[DP_REQUEST_SAVE] && !run->saver.enabled && dp_run_leads(job)) {
        dp_saver_refuse(&run->saver, job);
    }
    if (run->outcome.exit != DP_RUN_FINISHED) {
        return DP_OK;
    }
    if (request[DP_REQUEST_STOP]) {
        return dp_run_judge_stop(run);
    }
    if (request[DP_REQUEST_SLOW] && dp_trainer_steps(t) < job->total_steps &&
        !dp_trainer_unaveraged(t)) {
        dp_outcome_end(&run->outcome, DP_RUN_STOPPED,
                       "stopped after step %llu: %.0f samples/s, under %g "
                       "(failure_stop.min_samples_per_second), on rank 0 (%s)",
                       (unsigned long long)dp_trainer_steps(t), run->figures.throughput.rate,
                       job->config->failure_stop.min_samples_per_second,
                       dp_host_names_of(job->world->hosts, 0));
    }
    return DP_OK;
}

/* ---- decisions ---- */

void dp_run_judge_throughput(const struct dp_run_job *job, struct dp_figures *figures,
                             struct dp_outcome *outcome)
{
    const double floor = job->config->failure_stop.min_samples_per_second;

    if (dp_run_leads(job) && figures->ledger.steps > 0 && !outcome->too_slow) {
        outcome->too_slow = dp_throughput_add(&figures->throughput, floor, figures->ledger.last_ns,
                                              dp_trainer_batch(job->trainer)->global_rows);
    }
}

/* How many answers an output, or all of them together, may give. */
static size_t answers_of(const struct dp_model *model)
{
    return model->targets > 0 ? 2 : model->classes;
}

void dp_run_judge_step(struct dp_training *run, uint64_t number, size_t rows,
                       const struct dp_step_report *report)
{
    const struct dp_run_job *job = &run->job;
    const struct dp_loss_scaler *scaler = dp_trainer_loss_scaler(job->trainer);
    const size_t batch = (size_t)job->config->train.global_batch;
    const size_t whole = job->data.train_count < batch ? job->data.train_count : batch;
    const struct dp_stop_criteria_step step = {.step = number,
                                               .loss = (double)report->loss,
                                               .correct = (double)report->score,
                                               .rows = (double)rows,
                                               .whole = rows == whole,
                                               .classes = answers_of(job->model)};
    char reason[sizeof(run->outcome.reason)];

    if (report->skipped && scaler->exhausted) {
        run->figures.train_loss.last = step.loss;
        dp_outcome_end(&run->outcome, DP_RUN_DIVERGED,
                       "step %llu: the loss scale falls under 1, and the gradient is still not "
                       "finite, first in %s; try train.precision bf16, or a lower optimizer.lr",
                       (unsigned long long)dp_trainer_steps(job->trainer), scaler->where);
        return;
    }
    if (!report->skipped &&
        dp_stop_criteria_failed(&run->outcome.stop_criteria, &job->config->failure_stop, &step,
                                reason, sizeof(reason))) {
        run->figures.train_loss.last = step.loss;
        dp_outcome_end(&run->outcome, DP_RUN_DIVERGED, "%s", reason);
    }
}

void dp_run_judge_evaluation(const struct dp_run_job *job, const struct dp_figures *figures,
                             struct dp_outcome *outcome)
{
    const struct dp_early_stop_config *config = &job->config->early_stop;
    const double metrics[] = {[DP_METRIC_TEST_ACCURACY] = figures->evaluation.accuracy,
                              [DP_METRIC_TEST_LOSS] = figures->evaluation.loss,
                              [DP_METRIC_TRAIN_LOSS] = figures->train_loss.last,
                              [DP_METRIC_TEST_ERROR] = figures->evaluation.error};

    dp_improvement_add(&outcome->stop_criteria.improvement, config, metrics[config->metric]);
}

void dp_run_judge_improvement(const struct dp_run_job *job, struct dp_outcome *outcome)
{
    const struct dp_early_stop_config *config = &job->config->early_stop;
    const struct dp_improvement *i = &outcome->stop_criteria.improvement;

    if (dp_improvement_ended(i, config) && dp_trainer_steps(job->trainer) < job->total_steps) {
        dp_outcome_end(outcome, DP_RUN_EARLY_STOPPED,
                       "stopped early after step %llu: %llu evaluation%s without a better %s "
                       "than %.6g",
                       (unsigned long long)dp_trainer_steps(job->trainer),
                       (unsigned long long)i->waited, dp_plural(i->waited),
                       dp_improvement_metric(config), i->best);
    }
}

dp_status dp_run_judge_weights(const struct dp_run_job *job, struct dp_outcome *outcome)
{
    struct dp_trainer *t = job->trainer;
    const float *weights;

    if (!job->config->failure_stop.nan || !dp_exchange_sums(dp_trainer_exchange(t)) ||
        outcome->exit == DP_RUN_DIVERGED) {
        return DP_OK;
    }
    DP_TRY(dp_trainer_sync_weights(t)); /* from here on all ranks have the same weights */
    DP_TRY(dp_trainer_wide(t, &weights));
    if (!dp_all_finite(weights, dp_trainer_flat(t)->trained)) { /* they are not worth saving */
        dp_outcome_replace(outcome, DP_RUN_DIVERGED,
                           "step %llu: weights are not numbers any more; try a lower "
                           "optimizer.lr, or optimizer.clip_norm",
                           (unsigned long long)dp_trainer_steps(t));
    }
    return DP_OK;
}

void dp_run_judge_saving(const struct dp_run_job *job, struct dp_outcome *outcome,
                         dp_status written)
{
    const bool diverged = written == DP_ERR_DIVERGED;

    dp_outcome_replace(
        outcome, diverged ? DP_RUN_DIVERGED : DP_RUN_ERROR, "step %llu: %s",
        (unsigned long long)dp_trainer_steps(job->trainer),
        diverged ? "weights are not numbers any more, and no checkpoint of them is written"
                 : "the last checkpoint cannot be written");
}

/* ---- the last line ---- */

/* Rank 0: where a run that ended before its last step can go on from. */
static const char *way_on(const struct dp_training *run, char *text, size_t size)
{
    const unsigned long long saved = run->saver.good_step;
    const enum dp_run_exit exit = run->outcome.exit;
    const char *out = run->job.output.path;

    if (exit == DP_RUN_STOPPED && saved == 0) {
        (void)snprintf(text, size, "nothing was saved, since %s keeps no common weights",
                       dp_exchange_label(dp_trainer_exchange(run->job.trainer)));
    } else if (exit == DP_RUN_STOPPED) {
        (void)snprintf(text, size, "saved in %s/checkpoints/step-%08llu; go on with --resume", out,
                       saved);
    } else if (saved == 0) {
        (void)snprintf(text, size, "no checkpoint was written before");
    } else {
        (void)snprintf(text, size, "the last good checkpoint is %s/checkpoints/step-%08llu", out,
                       saved);
    }
    return text;
}

dp_status dp_run_end_status(const struct dp_outcome *outcome)
{
    return outcome->unwritable                ? DP_ERR_WRITE
           : outcome->exit == DP_RUN_STOPPED  ? DP_STOPPED
           : outcome->exit == DP_RUN_DIVERGED ? DP_ERR_DIVERGED
                                              : DP_OK;
}

dp_status dp_run_last_word(const struct dp_training *run)
{
    const struct dp_outcome *outcome = &run->outcome;
    const dp_status status = dp_run_end_status(outcome);
    const bool leads = dp_run_leads(&run->job);
    char text[DP_PATH_BYTES + 128];

    DP_DEBUG("rank %d ends after step %llu", run->job.world->train->rank,
             (unsigned long long)dp_trainer_steps(run->job.trainer));
    if (outcome->late_stop && outcome->exit == DP_RUN_FINISHED && leads) {
        DP_WARN("asked to stop after the last step: evaluation and measuring that were left "
                "are skipped");
    }
    if (status == DP_OK || !leads) {
        return status;
    }
    (void)way_on(run, text, sizeof(text));
    if (status == DP_STOPPED) { /* as was asked for: no error */
        dp_log_notice("%s; %s", outcome->reason, text);
        return status;
    }
    return DP_FAIL(status, "%s; %s", outcome->reason, text);
}
