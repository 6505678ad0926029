/*
 * final_report.c - what a run leaves: the last checkpoint, run.json, and the table for people.
 */
#include "runtime/run/results/final_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/log.h"
#include "base/trace.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/report/colour.h"
#include "runtime/report/efficiency.h"
#include "runtime/report/summary_print.h"
#include "runtime/report/summary_read.h"
#include "runtime/report/verdict.h"
#include "runtime/run/plan/run_plan.h"
#include "runtime/run/results/limit_figures.h"
#include "runtime/run/results/part_limits.h"
#include "runtime/run/results/run_end.h"
#include "runtime/run/results/slow_link_figures.h"
#include "runtime/run/roles/input_figures.h"
#include "runtime/run/shrink.h"
#include "runtime/timeline/bucket_table.h"
#include "runtime/timeline/collect.h"

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

/* A rate of 0 stands for one that was not measured. */
static double measured(double rate)
{
    return rate > 0.0 ? rate : (double)NAN;
}

static void describe_rank(struct dp_training *run, struct dp_run_rank *rank, int64_t *wire)
{
    const struct dp_run_job *job = &run->job;
    struct dp_figures *figures = &run->figures;
    const int ranks = job->world->train->size, self = job->world->train->rank;
    const struct dp_rank_place *place = &job->place;
    const struct dp_ledger *ledger = &figures->ledger;
    const double seconds = dp_ledger_seconds(ledger);
    const uint64_t done = dp_trainer_steps(job->trainer) - job->resume.step;

    memset(rank, 0, sizeof(*rank));
    rank->rank = self;
    rank->threads = place->threads;
    (void)snprintf(rank->host, sizeof(rank->host), "%s", place->host);
    (void)snprintf(rank->cpus, sizeof(rank->cpus), "%s", place->cpus);
    rank->samples_per_second = seconds > 0.0 ? (double)ledger->rows / seconds : (double)NAN;
    rank->scaling_efficiency =
        rank->samples_per_second / dp_figures_single_rate(figures, ranks, rank->samples_per_second);
    dp_ledger_means(ledger, rank->step_ms);
    rank->compute_efficiency = ranks == 1 ? 1.0
                                          : dp_baseline_mean(figures->baseline.before.compute_ms,
                                                             figures->baseline.after.compute_ms) /
                                                dp_compute_ms(rank->step_ms);
    rank->hidden_comm_ms = dp_ledger_hidden_ms(ledger);
    rank->compute_sd_ms = dp_ledger_spread_ms(ledger);
    dp_run_describe_limits(job->trainer, &figures->limits, rank);
    rank->peak_rss_bytes = peak_rss_bytes();
    rank->peak_device_bytes = peak_device_bytes(job->device);
    *wire = done == 0 ? 0 : (int64_t)(dp_trainer_wire_bytes(job->trainer) / done);
    dp_resources_describe(&figures->resources, job, ledger, rank);
    rank->memory_predicted +=
        rank->memory_predicted > 0 ? (int64_t)dp_run_measuring_bytes(job, figures) : 0;
    rank->copied_sent = *wire;
    rank->copied_snapshot = done == 0 || run->saver.snapshot == NULL
                                ? -1
                                : (int64_t)(run->saver.snapshot->copied_bytes / done);
}

static const char *plan_text(const struct dp_run_job *job, char *text, size_t size)
{
    const struct dp_exchange *e = dp_trainer_exchange(job->trainer);
    const struct dp_overlap *o = &job->overlap;
    int used = snprintf(text, size, "%d bucket%s, overlap %s", dp_exchange_plan(e)->count,
                        dp_plural(dp_exchange_plan(e)->count), o->on ? "on" : "off");

    if (o->median_ms[0] > 0.0 && used > 0 && (size_t)used < size) {
        (void)snprintf(text + used, size - (size_t)used, " (measured: on %.2f ms, off %.2f ms)",
                       o->median_ms[1], o->median_ms[0]);
    }
    return text;
}

/* The rate of one rank alone, and the efficiency that follows. */
static void summarize_baseline(const struct dp_run_job *job, const struct dp_figures *figures,
                               struct dp_run_summary *s)
{
    const double single =
        dp_figures_single_rate(figures, job->world->train->size, s->samples_per_second);

    s->single_rank_samples_per_second = single;
    s->scaling_efficiency = s->samples_per_second / ((double)s->world_size * single);
    s->baseline_source = figures->baseline.given > 0.0 ? job->options->baseline
                         : s->world_size == 1          ? "this run"
                         : isfinite(single)            ? "measured"
                                                       : "not measured";
    s->baseline_before = measured(figures->baseline.before.samples_per_second);
    s->baseline_after = measured(figures->baseline.after.samples_per_second);
    s->baseline_fastest =
        measured(fmax(figures->baseline.before.fastest, figures->baseline.after.fastest));
    s->baseline_spread = dp_figures_spread(figures, single);
}

/* The setup, and how far it came. */
static void summarize_setup(const struct dp_run_job *job, struct dp_run_summary *s)
{
    const uint64_t steps = dp_trainer_steps(job->trainer);

    s->schema = DP_SUMMARY_SCHEMA;
    s->name = job->config->name;
    s->configuration = job->config_alone;
    s->version = DP_VERSION;
    s->started = job->output.started;
    s->world_size = dp_trainer_ranks(job->trainer);
    s->device = job->device->plugin.name;
    s->precision = dp_precision_text(job->config->train.precision);
    s->strategy = dp_exchange_label(dp_trainer_exchange(job->trainer));
    s->fabric = job->world->fabric[0] != '\0' ? job->world->fabric : NULL;
    s->compressor = job->config->comm.compressor;
    s->global_batch = job->config->train.global_batch;
    s->steps = (int64_t)steps;
    s->resumed_from = job->resume.on ? (int64_t)job->resume.step : -1;
    s->epochs = (double)steps / (double)job->steps_per_epoch;
    s->skipped_steps = (int64_t)dp_trainer_loss_scaler(job->trainer)->skipped;
    s->skipped_samples = (int64_t)job->skipped_samples;
    s->restored = dp_trainer_restored(job->trainer);
    s->classes = (struct dp_text_list){job->class_names.at, job->class_names.count};
}

struct dp_run_summary dp_run_summarize(const struct dp_training *run, int64_t wire)
{
    const struct dp_run_job *job = &run->job;
    const struct dp_outcome *outcome = &run->outcome;
    const struct dp_figures *figures = &run->figures;
    const double seconds = dp_ledger_seconds(&figures->ledger);
    const double rate = seconds > 0.0 ? (double)figures->ledger.samples / seconds : (double)NAN;
    struct dp_run_summary s;

    dp_run_summary_clear(&s);
    summarize_setup(job, &s);
    s.exit = outcome->exit;
    s.reason = outcome->exit == DP_RUN_FINISHED ? NULL : outcome->reason;
    s.samples_per_second = rate;
    s.wire_bytes_per_step = wire;
    s.time_to_first_step_s = figures->first_step_s;
    s.seconds = dp_process_age_s();
    dp_resources_cost(&figures->resources, job, &s);
    s.staleness = (struct dp_histogram){figures->staleness, figures->staleness_count};
    summarize_baseline(job, figures, &s);
    /* Of a run that was stopped: the mean since the last evaluation. */
    s.final_train_loss = outcome->exit == DP_RUN_STOPPED && figures->train_loss.steps > 0
                             ? figures->train_loss.sum / (double)figures->train_loss.steps
                             : figures->train_loss.last;
    s.final_test_loss = figures->evaluation.loss;
    s.final_test_accuracy = figures->evaluation.accuracy;
    s.final_test_top5 = figures->evaluation.top5;
    s.final_test_error = figures->evaluation.error;
    if (dp_shrink_summarize(job->kept, &s) != DP_OK) {
        DP_DEBUG("run.json does not name the ranks that were lost");
    }
    return s;
}

/* By now the whole plan is decided: config.yaml has it. */
static dp_status write_json(const struct dp_run_job *job, const struct dp_run_summary *s)
{
    char path[DP_PATH_BYTES];

    DP_TRY(dp_file_join(path, job->output.path, "run.json"));
    DP_TRY(dp_run_summary_write(s, path));
    return dp_run_write_config(job);
}

/* Tries all files: where one cannot be written another may. Only the first failure is an error. */
static dp_status write_files(struct dp_training *run, const struct dp_run_summary *s)
{
    struct dp_log_capture capture;
    const dp_status ended = dp_metrics_end(&run->figures.metrics, s);
    dp_status written;

    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    written = write_json(&run->job, s);
    dp_log_capture_end(&capture, ended == DP_OK ? DP_LOG_PRINT : DP_LOG_DROP);
    if (run->figures.reports != NULL) {
        dp_report_writer_finish(run->figures.reports);
    }
    return ended != DP_OK ? ended : written;
}

/* Rank 0: the files, the table, and the paths of the files. */
static dp_status write_report(struct dp_training *run, const struct dp_run_summary *s)
{
    const struct dp_run_job *job = &run->job;
    struct dp_progress *progress = &run->figures.progress;
    const dp_status status = write_files(run, s);

    if (!job->options->quiet) {
        dp_progress_end(progress);
        dp_colour_allow(progress->terminal);
        dp_run_summary_print(s, stdout);
    }
    if (job->options->explain) {
        dp_verdict_explain(s, !job->options->quiet, stdout);
    }
    if (!job->options->quiet) {
        dp_progress_line(progress, "files: %s/{run.json,metrics.jsonl,config.yaml%s%s}",
                         job->output.path, job->config->report.html ? ",report.html" : "",
                         run->saver.good_step == 0 ? "" : ",checkpoints/latest/model.safetensors");
    }
    return status;
}

/* What a rank has to say. */
struct rank_report {
    struct dp_run_rank rank;
    int64_t wire;
};

/* Buckets and stragglers, and what efficiency is lost to. */
static dp_status summarize_times(const struct dp_training *run, const struct dp_all_times *times,
                                 struct dp_run_summary *s)
{
    const struct dp_baseline *before = &run->figures.baseline.before;
    const struct dp_baseline *after = &run->figures.baseline.after;
    double waiting_ms;

    DP_TRY(dp_bucket_table(times, s->rank_count,
                           dp_exchange_plan(dp_trainer_exchange(run->job.trainer)), s,
                           &waiting_ms));
    for (int i = 0; i < s->straggler_count; i++) {
        memcpy(s->stragglers[i].host, s->ranks[i].host, sizeof(s->stragglers[i].host));
    }
    dp_efficiency_split(s, dp_baseline_mean(before->compute_ms, after->compute_ms), waiting_ms);
    return DP_OK;
}

/* Rank 0, with what all ranks have sent. */
static dp_status summarize_all(struct dp_training *run, const struct rank_report *all,
                               const struct dp_all_times *times)
{
    const int ranks = dp_trainer_ranks(run->job.trainer), senders = run->job.world->train->size;
    struct dp_verdict verdict;
    char plan[160], input[DP_INPUT_VERDICT], link[DP_SLOW_LINK_TEXT];
    struct dp_run_summary s;
    int64_t wire = 0;
    dp_status status;

    for (int i = 0; i < senders; i++) {
        wire = all[i].wire > wire ? all[i].wire : wire;
    }
    s = dp_run_summarize(run, wire);
    status = dp_run_summary_resize(&s, DP_TABLE_RANKS, ranks);
    for (int i = 0; i < s.rank_count; i++) {
        s.ranks[i] = all[i].rank;
    }
    status = status == DP_OK ? dp_run_summarize_limits(&run->figures, &s) : status;
    status = status == DP_OK ? summarize_times(run, times, &s) : status;
    status =
        status == DP_OK ? dp_resources_summarize(&run->figures.resources, &run->job, &s) : status;
    status = status == DP_OK ? dp_part_limits_summarize(run, &s) : status;
    dp_slow_link_summarize(run, &s, link);
    dp_verdict_find(&s, &verdict);
    dp_verdict_put(&verdict, &s);
    s.plan = plan_text(&run->job, plan, sizeof(plan));
    dp_input_figures_summarize(run, &s, input);
    status = status == DP_OK ? write_report(run, &s) : status;
    dp_run_summary_release(&s);
    return status;
}

/* Collects how stale gradients were. Collective. */
static dp_status gather_staleness(const struct dp_run_job *job, struct dp_figures *figures)
{
    const size_t bins = job->async == NULL ? 0 : dp_async_bins(job->async);
    dp_status status;

    if (bins == 0) {
        return DP_OK;
    }
    figures->staleness = dp_zalloc(bins, sizeof(*figures->staleness));
    status = figures->staleness == NULL ? DP_FAIL(DP_ERR_NOMEM, "staleness of gradients") : DP_OK;
    DP_TRY(dp_exchange_agree(dp_trainer_exchange(job->trainer), status));
    DP_TRY(dp_async_histogram(job->async, figures->staleness));
    for (size_t i = 0; figures->staleness != NULL && i < bins; i++) {
        figures->staleness_count = figures->staleness[i] > 0 ? i + 1 : figures->staleness_count;
    }
    return DP_OK;
}

static dp_status take_report(void *context, int rank, const void *data, size_t bytes)
{
    struct rank_report *all = context;

    (void)bytes; /* all ranks run the same program */
    memcpy(&all[rank], data, sizeof(*all));
    return DP_OK;
}

/* Rank 0 collects what all ranks have measured and writes the report; all ranks get its status. */
static dp_status report(struct dp_training *run)
{
    const struct dp_run_job *job = &run->job;
    const size_t size =
        (size_t)job->world->train->size; /* servers included: they send bytes, too */
    struct dp_exchange *e = dp_trainer_exchange(job->trainer);
    struct rank_report mine, *all;
    struct dp_all_times times;
    dp_status status;

    DP_TRY(gather_staleness(job, &run->figures));
    DP_TRY(dp_figures_mark_clock(&run->figures, job));
    DP_TRY(dp_all_times_collect(e, &run->figures.clock, &times));
    all = dp_zalloc(size, sizeof(*all));
    memset(&mine, 0, sizeof(mine));
    describe_rank(run, &mine.rank, &mine.wire);
    status = all == NULL ? DP_FAIL(DP_ERR_NOMEM, "report of %zu ranks", size) : DP_OK;
    status = dp_exchange_agree(e, status);
    status = status == DP_OK ? dp_collect(e, &mine, sizeof(mine), take_report, all) : status;
    if (status == DP_OK) {
        const bool leads = dp_run_leads(job) && all != NULL;
        status = dp_exchange_agree(e, leads ? summarize_all(run, all, &times) : DP_OK);
    }
    dp_free(all);
    dp_all_times_release(&times);
    return status;
}

/* For a run that cannot write: only the cause is reported, not what fails here. No rank leaves, and
 * so ends the others, before the report is written. */
static dp_status report_muted(struct dp_training *run, dp_status cause)
{
    struct dp_log_capture capture;
    dp_status reported;

    dp_log_capture_begin(&capture, DP_LOG_DEBUG);
    reported = report(run);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    return reported == DP_ERR_MPI || reported == DP_ERR_CANCELLED ? reported : cause;
}

/* The cause has been reported; it stays the last line on stderr. */
static dp_status report_failure(struct dp_training *run, dp_status cause)
{
    dp_run_judge_saving(&run->job, &run->outcome, cause);
    return report_muted(run, cause);
}

dp_status dp_run_finish(struct dp_training *run)
{
    const struct dp_outcome *outcome = &run->outcome;
    struct dp_metrics *metrics = &run->figures.metrics;
    dp_status written = DP_OK;

    if (outcome->exit != DP_RUN_DIVERGED && outcome->exit != DP_RUN_ERROR) {
        DP_TRY(dp_saver_finish(&run->saver, outcome, metrics, &written));
    } else {
        dp_saver_wait(&run->saver, outcome, metrics);
    }
    if (written != DP_OK) {
        return report_failure(run, written);
    }
    return outcome->unwritable ? report_muted(run, DP_OK) : report(run);
}
