#include "runtime/run/results/figures.h"

#include <math.h>
#include <stdio.h>

#include "base/trace.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/report/figure_text.h"

enum { RECENT_NS = 2000000000 };

void dp_figures_init(struct dp_figures *f, bool quiet)
{
    const bool launched = dp_world_launch_rank() >= 0;
    const double unknown = (double)NAN;

    *f = (struct dp_figures){.train_loss.last = unknown,
                             .evaluation = {unknown, unknown, unknown, unknown}};
    dp_progress_init(&f->progress, stdout, dp_progress_on_terminal(launched), quiet);
    dp_progress_make_way(launched);
}

void dp_figures_close(struct dp_figures *f)
{
    dp_progress_end(&f->progress);
    if (f->metrics_open) {
        dp_metrics_close(&f->metrics);
    }
    dp_report_writer_destroy(f->reports);
    dp_limits_free(&f->limits);
    dp_resources_end(&f->resources);
    dp_free(f->staleness);
}

struct marking {
    struct dp_clock *clock;
    struct dp_group *group;
};

static dp_status mark_clock(void *arg, int index)
{
    const struct marking *marking = arg;
    (void)index;

    return dp_clock_mark(marking->clock, marking->group, dp_now_ns);
}

dp_status dp_figures_mark_clock(struct dp_figures *f, const struct dp_run_job *job)
{
    struct dp_exchange *e = dp_trainer_exchange(job->trainer);
    struct marking marking = {&f->clock, dp_exchange_group(e)};

    return dp_exchange_call(e, mark_clock, &marking, 0);
}

void dp_figures_restart(struct dp_figures *f, const struct dp_run_job *job)
{
    dp_ledger_restart(&f->ledger, dp_exchange_comm_ns(dp_trainer_exchange(job->trainer)));
}

void dp_figures_time_step(struct dp_figures *f, const struct dp_run_job *job)
{
    const struct dp_trainer *t = job->trainer;
    const bool steady = f->ledger.unsteady == 0;

    dp_ledger_mark(&f->ledger, dp_trainer_batch(t)->global_rows, dp_trainer_batch(t)->rows,
                   dp_exchange_comm_ns(dp_trainer_exchange(t)));
    if (!steady && f->ledger.unsteady == 0) {
        dp_exchange_restart_times(dp_trainer_exchange(t));
    }
    dp_resources_step(&f->resources, job, &f->ledger);
    if (f->first_step_s == 0.0) {
        f->first_step_s = dp_process_age_s();
    }
}

/* A file that is given up is no error here: the run saves and stops after the next step, by
 * dp_run_request(). */
static dp_status noted(dp_status status)
{
    return status == DP_ERR_WRITE ? DP_OK : status;
}

/* The epoch, from 1, of a step, from 0. */
static int epoch_of(const struct dp_run_job *job, uint64_t step)
{
    return (int)(step / job->steps_per_epoch) + 1;
}

/* Samples/s of about the last two seconds, with this step. */
static double recent_rate(struct dp_figures *f, size_t rows)
{
    f->recent.ns += f->ledger.last_ns;
    f->recent.samples += rows;
    const double rate = (double)f->recent.samples / ((double)f->recent.ns / 1e9);

    if (f->recent.ns > RECENT_NS) {
        f->recent.ns /= 2;
        f->recent.samples /= 2;
    }
    return rate;
}

/* What metrics.jsonl says of a step. */
static struct dp_metrics_step line_of(const struct dp_figures *f, const struct dp_run_job *job,
                                      const struct dp_step_result *result)
{
    const struct dp_trainer *t = job->trainer;
    const double seconds = (double)f->ledger.last_ns / 1e9;

    return (struct dp_metrics_step){
        .step = (int64_t)result->step,
        .epoch = epoch_of(job, result->step - 1),
        .loss = (double)result->report.loss,
        .lr = result->lr,
        .samples_per_second = (double)result->rows / seconds,
        .step_ms = seconds * 1e3,
        .loss_scale =
            dp_trainer_loss_scaler(t)->on ? (double)dp_trainer_step_params(t)->loss_scale : 0.0,
        .skipped = result->report.skipped,
    };
}

/* Rank 0: a line in metrics.jsonl, and the progress line. */
static dp_status show_step(struct dp_figures *f, const struct dp_run_job *job,
                           const struct dp_step_result *result)
{
    const int ranks = dp_trainer_ranks(job->trainer);
    const double rate = recent_rate(f, result->rows);
    const struct dp_progress_step progress = {
        .epoch = f->line.epoch,
        .epochs = job->config->train.epochs,
        .step = f->line.step,
        .steps = (int64_t)job->total_steps,
        .loss = f->line.loss,
        .lr = result->lr,
        .samples_per_second = rate,
        .efficiency = rate / (ranks * dp_figures_single_rate(f, ranks, rate)),
        .left_s = (double)(job->total_steps - result->step) *
                  (double)job->config->train.global_batch / rate,
    };

    dp_progress_step(&f->progress, &progress);
    DP_TRY(noted(dp_metrics_step(&f->metrics, &f->line)));
    if (f->reports != NULL) {
        dp_report_writer_poll(f->reports);
    }
    return DP_OK;
}

dp_status dp_figures_add_step(struct dp_figures *f, const struct dp_run_job *job,
                              const struct dp_step_result *result)
{
    dp_resources_loss(&f->resources, (double)result->report.loss);
    if (!result->report.skipped) {
        f->train_loss.sum += (double)result->report.loss;
        f->train_loss.steps++;
    }
    f->line = line_of(f, job, result);
    return f->metrics_open ? show_step(f, job, result) : DP_OK;
}

void dp_figures_flush(struct dp_figures *f)
{
    if (f->metrics_open) {
        (void)!dp_metrics_flush(&f->metrics);
    }
}

static dp_status show_evaluation(struct dp_figures *f, const struct dp_run_job *job,
                                 const struct dp_eval_answer *answer)
{
    const struct dp_figure_metric metric =
        dp_figure_metric(f->evaluation.accuracy, f->evaluation.error);
    char value[DP_FIGURE_BYTES], train[DP_GROUPED_BYTES], test[DP_GROUPED_BYTES];
    const struct dp_metrics_eval line = {
        .step = (int64_t)answer->step,
        .epoch = epoch_of(job, answer->step - 1),
        .train_loss = f->train_loss.last,
        .test_loss = f->evaluation.loss,
        .test_accuracy = f->evaluation.accuracy,
        .test_top5 = f->evaluation.top5,
        .test_error = f->evaluation.error,
        .seconds = answer->seconds,
    };

    dp_progress_line(&f->progress, "epoch %d step %lld: train loss %s, test loss %s, test %s %s",
                     line.epoch, (long long)line.step, dp_loss_text(train, line.train_loss),
                     dp_loss_text(test, line.test_loss), metric.name,
                     dp_figure_number(value, metric.kind, metric.value));
    return noted(dp_metrics_eval(&f->metrics, &line));
}

void dp_figures_end_losses(struct dp_figures *f)
{
    if (f->train_loss.steps > 0) {
        f->train_loss.last = f->train_loss.sum / (double)f->train_loss.steps;
    }
    f->train_loss.sum = 0.0;
    f->train_loss.steps = 0;
}

dp_status dp_figures_add_evaluation(struct dp_figures *f, const struct dp_run_job *job,
                                    const struct dp_eval_answer *answer)
{
    if (f->evaluated_at == answer->step) {
        return DP_OK;
    }
    f->evaluated_at = answer->step;
    f->evaluation = answer->found;
    dp_resources_evaluated(&f->resources, job, answer->found.accuracy);
    return f->metrics_open ? show_evaluation(f, job, answer) : DP_OK;
}

double dp_figures_single_rate(const struct dp_figures *f, int ranks, double own_rate)
{
    if (f->baseline.given > 0.0) {
        return f->baseline.given;
    }
    if (ranks == 1) {
        return own_rate;
    }
    return dp_baseline_mean(f->baseline.before.samples_per_second,
                            f->baseline.after.samples_per_second);
}

double dp_figures_spread(const struct dp_figures *f, double single)
{
    const struct dp_baseline *b = &f->baseline.before, *a = &f->baseline.after;

    if (a->samples_per_second <= 0.0 || b->samples_per_second <= 0.0) {
        return (double)NAN;
    }
    return (fmax(a->fastest, b->fastest) - fmin(a->slowest, b->slowest)) / single;
}
