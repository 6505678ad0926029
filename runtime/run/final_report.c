/*
 * final_report.c - what a run leaves behind: the last checkpoint, run.json, and the table for
 * people.
 */
#include "runtime/run/final_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/log.h"
#include "base/trace.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/report/verdict.h"
#include "runtime/run/run_end.h"
#include "runtime/run/run_plan.h"
#include "runtime/run/save.h"

static int64_t peak_rss_bytes(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss * 1024 : -1;
}

static int64_t peak_device_bytes(const struct dp_device *device)
{
    struct dp_device_room room;

    if (device->room == NULL) {
        return -1;
    }
    device->room(&room);
    return (int64_t)room.peak;
}

/* NaN: not measured. */
static double single_rate(const struct dp_training *run, double own_rate)
{
    if (run->baseline_rate > 0.0) {
        return run->baseline_rate;
    }
    if (run->world->train->size == 1) {
        return own_rate;
    }
    return dp_baseline_mean(run->before.samples_per_second, run->after.samples_per_second);
}

/* A rate of 0 stands for one that was not measured. */
static double measured(double rate)
{
    return rate > 0.0 ? rate : (double)NAN;
}

/* (largest - smallest) / mean of all pieces of both measurements. */
static double spread(const struct dp_training *run, double single)
{
    const struct dp_baseline *b = &run->before, *a = &run->after;

    if (a->samples_per_second <= 0.0 || b->samples_per_second <= 0.0) {
        return (double)NAN;
    }
    return (fmax(a->fastest, b->fastest) - fmin(a->slowest, b->slowest)) / single;
}

static void describe_rank(const struct dp_training *run, struct dp_run_rank *rank, int64_t *wire)
{
    const struct dp_rank_place *place = &run->places[run->world->train->rank];
    const double seconds = dp_ledger_seconds(&run->ledger);
    const uint64_t done = dp_trainer_steps(run->trainer) - run->resume.step;
    double single;

    memset(rank, 0, sizeof(*rank));
    rank->rank = run->world->train->rank;
    rank->threads = place->threads;
    (void)snprintf(rank->host, sizeof(rank->host), "%s", place->host);
    (void)snprintf(rank->cpus, sizeof(rank->cpus), "%s", place->cpus);
    rank->samples_per_second = seconds > 0.0 ? (double)run->ledger.rows / seconds : (double)NAN;
    single = single_rate(run, rank->samples_per_second);
    rank->scaling_efficiency = rank->samples_per_second / single;
    dp_ledger_means(&run->ledger, rank->step_ms);
    rank->compute_efficiency =
        run->world->train->size == 1
            ? 1.0
            : dp_baseline_mean(run->before.compute_ms, run->after.compute_ms) /
                  dp_compute_ms(rank->step_ms);
    rank->hidden_comm_ms = dp_ledger_hidden_ms(&run->ledger);
    rank->peak_rss_bytes = peak_rss_bytes();
    rank->peak_device_bytes = peak_device_bytes(run->device);
    *wire = done == 0 ? 0 : (int64_t)(dp_trainer_wire_bytes(run->trainer) / done);
}

static double samples_per_dollar(const struct dp_training *run, double rate)
{
    const struct dp_report_config *r = &run->config->report;
    const int units =
        r->price_per == DP_PRICE_PER_NODE ? run->world->all->nodes : run->world->all->size;

    return rate * 3600.0 / (r->price_per_hour * units);
}

static const char *plan_text(const struct dp_training *run, char *text, size_t size)
{
    const struct dp_exchange *e = dp_trainer_exchange(run->trainer);
    const struct dp_overlap *o = &run->overlap;
    int used = snprintf(text, size, "%d bucket%s, overlap %s", dp_exchange_plan(e)->count,
                        dp_plural(dp_exchange_plan(e)->count), o->on ? "on" : "off");

    if (o->median_ms[0] > 0.0 && used > 0 && (size_t)used < size) {
        (void)snprintf(text + used, size - (size_t)used, " (measured: on %.2f ms, off %.2f ms)",
                       o->median_ms[1], o->median_ms[0]);
    }
    return text;
}

static struct dp_run_summary summarize(const struct dp_training *run,
                                       const struct dp_run_rank *ranks, int64_t wire)
{
    const double seconds = dp_ledger_seconds(&run->ledger);
    const double rate = seconds > 0.0 ? (double)run->ledger.samples / seconds : (double)NAN;
    const double single = single_rate(run, rate);
    const int size = dp_trainer_ranks(run->trainer);
    struct dp_run_summary s = {
        .name = run->config->name,
        .version = DP_VERSION,
        .started = run->started,
        .exit = run->exit,
        .reason = run->exit == DP_RUN_FINISHED ? NULL : run->reason,
        .world_size = size,
        .device = run->device->plugin.name,
        .precision = dp_precision_text(run->config->train.precision),
        .strategy = dp_exchange_label(dp_trainer_exchange(run->trainer)),
        .compressor = run->config->comm.compressor,
        .global_batch = run->config->train.global_batch,
        .steps = (int64_t)dp_trainer_steps(run->trainer),
        .resumed_from = run->resume.on ? (int64_t)run->resume.step : -1,
        .epochs = (double)dp_trainer_steps(run->trainer) / (double)run->steps_per_epoch,
        .samples_per_second = rate,
        .single_rank_samples_per_second = single,
        .scaling_efficiency = rate / (size * single),
        .samples_per_dollar = samples_per_dollar(run, rate),
        .wire_bytes_per_step = wire,
        .skipped_steps = (int64_t)dp_trainer_loss_scaler(run->trainer)->skipped,
        .restored = dp_trainer_restored(run->trainer),
        .time_to_first_step_s = run->first_step_s,
        .seconds = dp_process_age_s(),
        .ranks = ranks,
        .rank_count = size,
        .staleness = run->staleness,
        .staleness_count = run->staleness_count,
    };

    s.baseline.source = run->baseline_rate > 0.0 ? run->cli->baseline
                        : size == 1              ? "this run"
                        : isfinite(single)       ? "measured"
                                                 : "not measured";
    s.baseline.before = measured(run->before.samples_per_second);
    s.baseline.after = measured(run->after.samples_per_second);
    s.baseline.spread = spread(run, single);
    /* Of a run that was stopped: since the last evaluation, as far as it came. */
    s.final.train_loss = run->exit == DP_RUN_STOPPED && run->train_loss_steps > 0
                             ? run->train_loss_sum / (double)run->train_loss_steps
                             : run->last_train_loss;
    s.final.test_loss = run->evaluation.loss;
    s.final.test_accuracy = run->evaluation.accuracy;
    return s;
}

/* Rank 0: run.json, the end of metrics.jsonl, the table, and where everything lies. */
static dp_status write_report(struct dp_training *run, const struct dp_run_rank *ranks,
                              int64_t wire)
{
    struct dp_run_summary s = summarize(run, ranks, wire);
    char path[DP_PATH_BYTES], verdict[256] = "", plan[160];
    const struct dp_metrics_end end = {
        .exit = dp_run_exit_text(s.exit),
        .steps = s.steps,
        .samples_per_second = s.samples_per_second,
        .scaling_efficiency = s.scaling_efficiency,
        .train_loss = s.final.train_loss,
        .test_loss = s.final.test_loss,
        .test_accuracy = s.final.test_accuracy,
        .seconds = s.seconds,
    };
    dp_status noted;

    s.verdict = dp_verdict(&s, verdict, sizeof(verdict));
    s.plan = plan_text(run, plan, sizeof(plan));
    noted = dp_metrics_end(&run->metrics, &end);
    DP_TRY(dp_file_join(path, run->out, "run.json"));
    DP_TRY(dp_run_summary_write(&s, path));
    DP_TRY(dp_run_write_config(run)); /* the plan, all of it decided */
    if (!run->cli->quiet) {
        dp_progress_end(&run->progress);
        dp_run_summary_print(&s, stdout);
        dp_progress_line(&run->progress, "files: %s/{run.json,metrics.jsonl,config.yaml%s}",
                         run->out,
                         run->saved_at == 0 ? "" : ",checkpoints/latest/model.safetensors");
    }
    return noted;
}

/* How stale gradients were: run->staleness. */
static dp_status gather_staleness(struct dp_training *run)
{
    const size_t bins = run->async == NULL ? 0 : dp_async_bins(run->async);
    dp_status status;

    if (bins == 0) {
        return DP_OK;
    }
    run->staleness = dp_zalloc(bins, sizeof(*run->staleness));
    status = run->staleness == NULL ? DP_FAIL(DP_ERR_NOMEM, "staleness of gradients") : DP_OK;
    DP_TRY(dp_exchange_agree(dp_trainer_exchange(run->trainer), status));
    DP_TRY(dp_async_histogram(run->async, run->staleness));
    for (size_t i = 0; run->staleness != NULL && i < bins; i++) {
        run->staleness_count = run->staleness[i] > 0 ? i + 1 : run->staleness_count;
    }
    return DP_OK;
}

/* What all ranks have measured, to rank 0, and what it makes of it: all know what came of that. */
static dp_status report(struct dp_training *run)
{
    const size_t size = (size_t)run->world->train->size; /* servers send bytes, too */
    struct dp_exchange *e = dp_trainer_exchange(run->trainer);
    struct {
        struct dp_run_rank rank;
        int64_t wire;
    } mine, *all;
    struct dp_run_rank *ranks;
    int64_t wire = 0;
    dp_status status;

    DP_TRY(gather_staleness(run));
    all = dp_zalloc(size, sizeof(*all));
    ranks = dp_zalloc(size, sizeof(*ranks));
    memset(&mine, 0, sizeof(mine));
    describe_rank(run, &mine.rank, &mine.wire);
    status =
        all == NULL || ranks == NULL ? DP_FAIL(DP_ERR_NOMEM, "report of %zu ranks", size) : DP_OK;
    status = dp_exchange_agree(e, status);
    status = status == DP_OK ? dp_exchange_gather(e, &mine, sizeof(mine), all) : status;
    for (size_t i = 0; status == DP_OK && ranks != NULL && all != NULL && i < size; i++) {
        ranks[i] = all[i].rank;
        wire = all[i].wire > wire ? all[i].wire : wire;
    }
    if (status == DP_OK) {
        status = dp_exchange_agree(e, dp_run_leads(run) ? write_report(run, ranks, wire) : DP_OK);
    }
    dp_free(ranks);
    dp_free(all);
    return status;
}

/* Of a run that cannot write: what fails here is not told beside the cause. Nobody leaves, and
 * thereby ends the others, before the report is there. */
static dp_status report_muted(struct dp_training *run, dp_status cause)
{
    dp_status told;

    dp_log_mute(1);
    told = report(run);
    dp_log_mute(0);
    return told == DP_ERR_MPI || told == DP_ERR_CANCELLED ? told : cause;
}

/* The cause has been told, and is the last line on stderr. */
static dp_status report_failure(struct dp_training *run, dp_status cause)
{
    dp_run_judge_saving(run, cause);
    return report_muted(run, cause);
}

dp_status dp_run_finish(struct dp_training *run)
{
    dp_status written = DP_OK;

    if (run->exit != DP_RUN_DIVERGED && run->exit != DP_RUN_ERROR) {
        DP_TRY(dp_run_saved(run, &written));
    } else {
        dp_run_settle_saving(run);
    }
    if (written != DP_OK) {
        return report_failure(run, written);
    }
    return run->unwritable ? report_muted(run, DP_OK) : report(run);
}
