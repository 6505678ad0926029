/*
 * figures.h - what a run measures: where its time goes, losses, rates, one rank alone.
 *
 * Its functions put what was measured into the members, and rank 0 shows it: in metrics.jsonl, and
 * as progress. Losses, the evaluation and baselines are equal on all ranks; times are of this rank.
 */
#ifndef DP_RUNTIME_RUN_RESULTS_FIGURES_H
#define DP_RUNTIME_RUN_RESULTS_FIGURES_H

#include "collectives/core/clock.h"
#include "runtime/control/stop_criteria.h"
#include "runtime/measure/baseline.h"
#include "runtime/measure/limits.h"
#include "runtime/report/files/metrics.h"
#include "runtime/report/files/report_writer.h"
#include "runtime/report/ledger.h"
#include "runtime/report/live/progress.h"
#include "runtime/run/job.h"
#include "runtime/run/results/resources.h"
#include "runtime/run/roles/eval_messages.h"
#include "runtime/trainer/evaluation.h"

struct dp_figures {
    struct dp_progress progress;
    struct dp_metrics metrics;
    bool metrics_open;                /* on rank 0, where there is a folder: steps are shown */
    struct dp_report_writer *reports; /* owned; NULL: none are written here */
    struct dp_ledger ledger;
    struct dp_throughput throughput; /* rank 0 */
    struct dp_resources resources;
    struct dp_metrics_step line; /* about the last step; step 0: there was none */
    struct {
        uint64_t ns, samples; /* rank 0: of about the last two seconds */
    } recent;
    double first_step_s; /* from the start of the process to the end of the first step */
    struct {
        double sum; /* of the losses of `steps` steps since the last evaluation */
        uint64_t steps;
        double last; /* their mean when the last evaluation began, or the loss that ended the run */
    } train_loss;
    struct dp_evaluation evaluation; /* the last one that was recorded */
    uint64_t evaluated_at;           /* in this run: the step that it belongs to; 0: none so far */
    struct {
        uint64_t step; /* after which `before` is measured */
        double given;  /* samples/s from --baseline; 0: measured */
        struct dp_baseline before, after;
    } baseline;
    struct dp_limits limits; /* owned; measured after `baseline.before` */
    struct dp_clock clock;   /* marked before the first step and after the last */
    struct {
        uint64_t work_ns,
            rows; /* rank 0: of ranks that read for others, and all of their threads */
    } input;
    uint64_t *staleness; /* owned, [staleness_count]: see summary.h */
    size_t staleness_count;
};

/* Nothing is measured yet; quiet: nor is anything printed. */
void dp_figures_init(struct dp_figures *figures, bool quiet);
void dp_figures_close(struct dp_figures *figures);

/* Compares the clocks of hosts. Collective, between steps. Errors: those of dp_clock_mark. */
DP_CHECKED dp_status dp_figures_mark_clock(struct dp_figures *figures,
                                           const struct dp_run_job *job);

/* Leaves the time since the last step out of the ledger. */
void dp_figures_restart(struct dp_figures *figures, const struct dp_run_job *job);

/* The time of a step that this rank has done. */
void dp_figures_time_step(struct dp_figures *figures, const struct dp_run_job *job);

/* What a step came to. Errors: DP_ERR_NOMEM; a file that is given up is none: metrics.given_up. */
DP_CHECKED dp_status dp_figures_add_step(struct dp_figures *figures, const struct dp_run_job *job,
                                         const struct dp_step_result *result);

/* Writes what waits to be written with later steps. A file that is given up is no error here,
 * either. */
void dp_figures_flush(struct dp_figures *figures);

/* An evaluation of the weights after the last step begins: the mean of the losses up to there goes
 * with it. */
void dp_figures_end_losses(struct dp_figures *figures);

/* What it came to, once for each step. Errors: as above. */
DP_CHECKED dp_status dp_figures_add_evaluation(struct dp_figures *figures,
                                               const struct dp_run_job *job,
                                               const struct dp_eval_answer *answer);

/* Samples/s of one rank alone, as given or measured; of a run of one rank `own_rate`. NaN: it was
 * not measured. */
double dp_figures_single_rate(const struct dp_figures *figures, int ranks, double own_rate);

/* (largest - smallest) / mean `single` of all pieces of both baselines; NaN: not both were
 * measured. */
double dp_figures_spread(const struct dp_figures *figures, double single);

#endif
