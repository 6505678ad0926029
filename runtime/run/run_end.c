/*
 * run_end.c - how a run ends before its last step: on request, or by a decision of its own.
 *
 * Every rank comes to the same end behind the same step: requests travel as requests in the tail of
 * the gradient or with what ranks gather anyway, decisions are made from sums that all ranks have.
 */
#include "runtime/run/run_end.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/log.h"
#include "collectives/exchange/exchange_calls.h"

/* The first end counts. */
static void end_run(struct dp_training *run, enum dp_run_exit exit, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void end_run(struct dp_training *run, enum dp_run_exit exit, const char *format, ...)
{
    va_list args;

    if (run->exit != DP_RUN_FINISHED) {
        return;
    }
    run->exit = exit;
    va_start(args, format);
    (void)vsnprintf(run->reason, sizeof(run->reason), format, args);
    va_end(args);
}

/* Within local steps, an average that comes early makes another training: the end waits for the one
 * that is due, unless a kill is likely to follow the request. */
static bool can_wait(const struct dp_training *run, enum dp_stop_cause cause)
{
    return dp_trainer_unaveraged(run->trainer) && cause != DP_STOP_TERM && cause != DP_STOP_INT;
}

/* What is not written does not come back: that cause goes first, on rank 0, which comes first. */
static enum dp_stop_cause cause_of(const struct dp_training *run)
{
    return run->metrics.given_up ? DP_STOP_WRITE : dp_stop_asked(run->stop);
}

dp_status dp_run_asked(struct dp_training *run)
{
    const int ranks = run->world->train->size, mine = (int)cause_of(run);
    int *all, rank = 0;
    dp_status status;

    if (dp_trainer_steps(run->trainer) == run->total_steps) {
        run->hurried = true;
        return DP_OK;
    }
    all = dp_zalloc((size_t)ranks, sizeof(*all));
    if (all == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "requests of %d ranks", ranks);
    }
    status = dp_exchange_gather(dp_trainer_exchange(run->trainer), &mine, sizeof(mine), all);
    while (rank + 1 < ranks && all[rank] == DP_STOP_NONE) {
        rank++;
    }
    if (status == DP_OK && !can_wait(run, (enum dp_stop_cause)all[rank])) {
        run->unwritable = all[rank] == DP_STOP_WRITE;
        end_run(run, DP_RUN_STOPPED, "stopped behind step %llu: %s on rank %d (%s)",
                (unsigned long long)dp_trainer_steps(run->trainer),
                dp_stop_text((enum dp_stop_cause)all[rank]), rank, run->places[rank].host);
    }
    dp_free(all);
    return status;
}

void dp_run_request(struct dp_training *run)
{
    struct dp_trainer *t = run->trainer;

    dp_trainer_set_request(t, DP_REQUEST_STOP, cause_of(run) != DP_STOP_NONE);
    dp_trainer_set_request(t, DP_REQUEST_SAVE, dp_stop_save_asked(run->stop));
    dp_trainer_set_request(t, DP_REQUEST_SLOW, run->slow);
}

void dp_run_note_throughput(struct dp_training *run)
{
    const double floor = run->config->failure_stop.min_samples_per_second;

    if (dp_run_leads(run) && run->ledger.steps > 0 && !run->slow) {
        run->slow = dp_throughput_add(&run->pace, floor, run->ledger.last_ns,
                                      dp_trainer_batch(run->trainer)->global_rows);
    }
}

void dp_run_judge_step(struct dp_training *run, uint64_t number, size_t rows,
                       const struct dp_step_report *report)
{
    const struct dp_trainer *t = run->trainer;
    const struct dp_failure_stop_config *config = &run->config->failure_stop;
    const size_t batch = (size_t)run->config->train.global_batch;
    const size_t whole = run->data.train_count < batch ? run->data.train_count : batch;
    const struct dp_stop_criteria_step step = {.step = number,
                                               .loss = (double)report->loss,
                                               .correct = (double)report->correct,
                                               .rows = (double)rows,
                                               .whole = rows == whole,
                                               .classes = run->model->classes};
    char reason[sizeof(run->reason)];

    if (report->skipped && dp_trainer_loss_scaler(t)->exhausted) {
        run->last_train_loss = step.loss;
        end_run(run, DP_RUN_DIVERGED,
                "step %llu: the loss scale falls under 1, and the gradient is still not finite, "
                "first in %s; try train.precision bf16, or a lower optimizer.lr",
                (unsigned long long)dp_trainer_steps(t), dp_trainer_loss_scaler(t)->where);
        return;
    }
    if (!report->skipped &&
        dp_stop_criteria_failed(&run->stop_criteria, config, &step, reason, sizeof(reason))) {
        run->last_train_loss = step.loss;
        end_run(run, DP_RUN_DIVERGED, "%s", reason);
    }
}

dp_status dp_run_judge_requests(struct dp_training *run, const bool *request)
{
    const struct dp_trainer *t = run->trainer;
    const struct dp_failure_stop_config *config = &run->config->failure_stop;

    run->save_wished = request[DP_REQUEST_SAVE] && !dp_trainer_unaveraged(t);
    if (request[DP_REQUEST_SAVE] && !run->saves && !run->save_refused && dp_run_leads(run)) {
        DP_WARN("asked to save: nothing can be, since %s keeps no common weights",
                dp_exchange_label(dp_trainer_exchange(t)));
        run->save_refused = true;
    }
    if (run->exit != DP_RUN_FINISHED) {
        return DP_OK;
    }
    if (request[DP_REQUEST_STOP]) {
        return dp_run_asked(run);
    }
    if (request[DP_REQUEST_SLOW] && dp_trainer_steps(t) < run->total_steps &&
        !dp_trainer_unaveraged(t)) {
        end_run(run, DP_RUN_STOPPED,
                "stopped behind step %llu: %.0f samples/s, under %g "
                "(failure_stop.min_samples_per_second), on rank 0 (%s)",
                (unsigned long long)dp_trainer_steps(t), run->pace.rate,
                config->min_samples_per_second, run->places[0].host);
    }
    return DP_OK;
}

void dp_run_judge_evaluation(struct dp_training *run)
{
    const struct dp_early_stop_config *config = &run->config->early_stop;
    const double metrics[] = {[DP_METRIC_TEST_ACCURACY] = run->evaluation.accuracy,
                              [DP_METRIC_TEST_LOSS] = run->evaluation.loss,
                              [DP_METRIC_TRAIN_LOSS] = run->last_train_loss};

    dp_improvement_add(&run->stop_criteria.improvement, config, metrics[config->metric]);
    dp_run_judge_improvement(run);
}

void dp_run_judge_improvement(struct dp_training *run)
{
    const struct dp_early_stop_config *config = &run->config->early_stop;
    const struct dp_improvement *i = &run->stop_criteria.improvement;

    if (dp_improvement_ended(i, config) && dp_trainer_steps(run->trainer) < run->total_steps) {
        end_run(run, DP_RUN_EARLY_STOPPED,
                "stopped early behind step %llu: %llu evaluation%s without a better %s than %.6g",
                (unsigned long long)dp_trainer_steps(run->trainer), (unsigned long long)i->waited,
                dp_plural(i->waited), dp_improvement_metric(config), i->best);
    }
}

dp_status dp_run_judge_weights(struct dp_training *run)
{
    struct dp_trainer *t = run->trainer;
    const float *weights;

    if (!run->config->failure_stop.nan || !dp_exchange_sums(dp_trainer_exchange(t)) ||
        run->exit == DP_RUN_DIVERGED) {
        return DP_OK;
    }
    DP_TRY(dp_trainer_sync_weights(t)); /* from here on all ranks see the same weights */
    DP_TRY(dp_trainer_wide(t, &weights));
    if (dp_all_finite(weights, dp_trainer_flat(t)->trained)) {
        return DP_OK;
    }
    run->exit = DP_RUN_FINISHED; /* whatever ended it: what would be saved is worth nothing */
    end_run(run, DP_RUN_DIVERGED,
            "step %llu: weights are not numbers any more; try a lower optimizer.lr, or "
            "optimizer.clip_norm",
            (unsigned long long)dp_trainer_steps(t));
    return DP_OK;
}

void dp_run_judge_saving(struct dp_training *run, dp_status written)
{
    const bool diverged = written == DP_ERR_DIVERGED;

    run->exit = DP_RUN_FINISHED; /* what had ended it before is not what it ends with */
    end_run(run, diverged ? DP_RUN_DIVERGED : DP_RUN_ERROR, "step %llu: %s",
            (unsigned long long)dp_trainer_steps(run->trainer),
            diverged ? "weights are not numbers any more, and no checkpoint of them is written"
                     : "the last checkpoint cannot be written");
}

/* Rank 0: where the run can go on from, for the last line of a run that ended before its time. */
static const char *way_on(const struct dp_training *run, char *text, size_t size)
{
    const unsigned long long saved = run->saved_at;

    if (run->exit == DP_RUN_STOPPED && saved == 0) {
        (void)snprintf(text, size, "nothing was saved, since %s keeps no common weights",
                       dp_exchange_label(dp_trainer_exchange(run->trainer)));
    } else if (run->exit == DP_RUN_STOPPED) {
        (void)snprintf(text, size, "saved in %s/checkpoints/step-%08llu; go on with --resume",
                       run->out, saved);
    } else if (saved == 0) {
        (void)snprintf(text, size, "no checkpoint was written before");
    } else {
        (void)snprintf(text, size, "the last good checkpoint is %s/checkpoints/step-%08llu",
                       run->out, saved);
    }
    return text;
}

dp_status dp_run_last_word(struct dp_training *run)
{
    const dp_status status = run->unwritable                ? DP_ERR_WRITE
                             : run->exit == DP_RUN_STOPPED  ? DP_STOPPED
                             : run->exit == DP_RUN_DIVERGED ? DP_ERR_DIVERGED
                                                            : DP_OK;
    char text[DP_PATH_BYTES + 128];

    DP_DEBUG("rank %d ends behind step %llu", run->world->train->rank,
             (unsigned long long)dp_trainer_steps(run->trainer));
    if (run->hurried && run->exit == DP_RUN_FINISHED && dp_run_leads(run)) {
        DP_WARN("asked to stop behind the last step: what was left to evaluate and to measure is "
                "left out");
    }
    if (status == DP_OK || !dp_run_leads(run)) {
        return status;
    }
    return DP_FAIL(status, "%s; %s", run->reason, way_on(run, text, sizeof(text)));
}
