/*
 * model.c - measures the buckets of a real model, and what sharing them adds to a training step.
 *
 * For each way to share it creates a trainer, and a second one of the same configuration that
 * shares nothing and never waits for other ranks. That one uses the first one's memory, with its
 * own group; both do steps in turns.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/statistics.h"
#include "base/trace.h"
#include "launch/bench/bench.h"
#include "launch/bench/measure.h"
#include "launch/bench/stats.h"

/* The configuration is set up once; each way to share has its own trainer (bench.h). */
#include "collectives/exchange/exchange_calls.h"
#include "runtime/config/config_load.h"
#include "runtime/config/config_rules.h"
#include "runtime/run/setup.h"

/* More steps than any comparison does; schedules end where the configuration says. */
enum { ENDLESS = 1 << 30 };

enum { WHY = 512, WHERE = 256 };

/* One way to share, while it is measured. */
struct way {
    struct dp_bench *bench;
    const char *strategy, *compressor;
    struct dp_config config;            /* the run's, with this way in it */
    struct dp_config alone_config;      /* without any */
    struct dp_group *group, *elsewhere; /* of the trainer, and of the one that shares nothing */
    struct dp_trainer *trainer, *alone;
    double *mine, *all; /* [2 * iterations], [ranks * 2 * iterations]: us of steps, without sharing
                           first */
    double *added;      /* [iterations]: us by which sharing made a step longer than the other one
                           of its pair */
};

static void way_fini(struct way *w)
{
    dp_trainer_destroy(w->alone);
    dp_trainer_destroy(w->trainer);
    w->alone = w->trainer = NULL;
    dp_free(w->added);
    dp_free(w->all);
    dp_free(w->mine);
    w->added = w->all = w->mine = NULL;
}

/* Creates a trainer with initial weights; one that borrows another's memory shares nothing. */
static dp_status make_trainer(const struct way *w, const struct dp_config *config,
                              struct dp_group *group, struct dp_trainer *lender,
                              struct dp_trainer **out)
{
    struct dp_run_job *job = &w->bench->run->job;
    const struct dp_trainer_config all = {
        .config = config,
        .model = job->model,
        .device = job->device,
        .group = group,
        .data = &job->data,
        .threads = job->threads,
        .total_steps = ENDLESS,
        .schedule_steps = job->schedule_steps,
        .algo_choices = lender == NULL ? job->algo_choices : NULL,
        .lender = lender,
    };

    dp_bench_try_begin(group);
    const dp_status status = dp_trainer_create(&all, out);
    dp_bench_try_end(group, status);
    DP_TRY(status);
    return dp_trainer_init(*out);
}

/* Adds this way to share to the model's options, which setup has checked. False: they cannot be
 * combined, which is reported. */
static bool configure_way(struct way *w)
{
    const struct dp_config_rule *refusal;
    char why[WHY];

    w->config = *w->bench->run->job.config;
    w->config.comm.strategy = w->strategy;
    w->config.comm.compressor = w->compressor;
    refusal = dp_config_rule_of_config(&w->config);
    if (refusal != NULL) {
        (void)snprintf(why, sizeof(why), "%s: %s", refusal->key, refusal->reason);
        dp_bench_leave_out(w->bench, w->strategy, w->compressor, DP_ERR_CONFIG, why);
    }
    return refusal == NULL;
}

static dp_status way_trainer(struct way *w)
{
    return make_trainer(w, &w->config, w->group, NULL, &w->trainer);
}

static dp_status way_alone(struct way *w)
{
    w->alone_config = *w->bench->run->job.config;
    w->alone_config.train.local_steps = 1; /* there is nothing to average */
    return make_trainer(w, &w->alone_config, w->elsewhere, w->trainer, &w->alone);
}

static dp_status timed_step(struct dp_trainer *t, double *us)
{
    struct dp_step_report report;
    uint64_t begin_ns;

    DP_TRY(dp_exchange_barrier(dp_trainer_exchange(t)));
    begin_ns = dp_now_ns();
    DP_TRY(dp_trainer_step(t, &report));
    *us = (double)(dp_now_ns() - begin_ns) / 1e3;
    return DP_OK;
}

/* Lets comm.overlap: auto decide, if it is set. */
static dp_status decide_overlap(struct way *w)
{
    struct dp_overlap overlap;
    double us;

    dp_overlap_begin(&overlap, w->trainer, ENDLESS);
    while (overlap.trying) {
        dp_overlap_before(&overlap, w->trainer);
        DP_TRY(timed_step(w->trainer, &us));
        DP_TRY(dp_overlap_after(&overlap, w->trainer, (uint64_t)(us * 1e3)));
    }
    return DP_OK;
}

/* Does steps without and with sharing in turns, reversing the order in each pair; takes the slowest
 * rank's times. For seconds the machine's speed may change by more than sharing takes. That affects
 * both steps of a pair alike, but not the medians of all steps with and all steps without. */
static dp_status paired_steps(struct way *w)
{
    const struct dp_bench_options *o = w->bench->options;
    const size_t count = (size_t)o->iterations;
    const int ranks = w->group->size;

    for (int i = -o->warmups; i < o->iterations; i++) {
        struct dp_trainer *const pair[2] = {w->alone, w->trainer};
        const int first = i & 1;
        double us[2];
        DP_TRY(timed_step(pair[first], &us[first]));
        DP_TRY(timed_step(pair[1 - first], &us[1 - first]));
        if (i >= 0) {
            w->mine[i] = us[0];
            w->mine[count + (size_t)i] = us[1];
        }
    }
    DP_TRY(dp_exchange_gather(dp_trainer_exchange(w->trainer), w->mine, 2 * count * sizeof(double),
                              w->all));
    for (size_t i = 0; i < 2 * count; i++) {
        w->mine[i] = 0.0;
        for (int r = 0; r < ranks; r++) {
            w->mine[i] = fmax(w->mine[i], w->all[(size_t)r * 2 * count + i]);
        }
    }
    dp_stats_differences(w->mine, w->mine + count, count, w->added);
    dp_sort(w->mine, count);
    dp_sort(w->mine + count, count);
    return DP_OK;
}

static void start_row(const struct way *w, struct dp_bench_row *row)
{
    dp_bench_row_init(row);
    row->strategy = w->strategy;
    row->compressor = w->compressor;
}

/* Adds a bucket's numbers to those of all buckets; a number that one bucket lacks, the sum lacks
 * too. */
static void add_row(struct dp_bench_row *sum, const struct dp_bench_row *row, bool first)
{
    double *const to[] = {&sum->size,   &sum->count, &sum->min_us, &sum->median_us,
                          &sum->p99_us, &sum->wrong, &sum->sent,   &sum->predicted_us};
    const double from[] = {row->size,   row->count, row->min_us, row->median_us,
                           row->p99_us, row->wrong, row->sent,   row->predicted_us};

    for (size_t i = 0; i < sizeof(from) / sizeof(from[0]); i++) {
        *to[i] = first ? from[i] : *to[i] + from[i];
    }
    sum->ranks = row->ranks;
    sum->max_ulp = first ? row->max_ulp : fmax(sum->max_ulp, row->max_ulp);
    sum->rel_l2 = first ? row->rel_l2 : fmax(sum->rel_l2, row->rel_l2);
    sum->algbw = dp_stats_algbw(sum->size, sum->median_us);
    sum->busbw = dp_stats_busbw(sum->size, sum->median_us, (int)sum->ranks);
    sum->ratio = sum->predicted_us > 0.0 ? sum->median_us / sum->predicted_us : (double)NAN;
}

/* What the busiest rank over all buckets sends: that may not be the busiest one of each bucket. */
static dp_status find_busiest(const struct way *w, struct dp_bench_row *sum)
{
    DP_TRY(
        dp_exchange_gather(dp_trainer_exchange(w->trainer), &sum->sent, sizeof(sum->sent), w->all));
    sum->wire_bytes = 0.0;
    for (int r = 0; r < w->group->size; r++) {
        sum->wire_bytes = fmax(sum->wire_bytes, w->all[r]);
    }
    return DP_OK;
}

/* The bucket's traffic; bound_us of all buckets is not known. */
static dp_status measure_buckets(struct way *w, struct dp_bench_row *sum)
{
    struct dp_exchange *e = dp_trainer_exchange(w->trainer);
    const struct dp_cost *cost = dp_bench_plain(w->compressor) ? &w->bench->cost : NULL;

    dp_exchange_begin(e, false); /* with local steps, the last step may have shared nothing */
    for (int b = 0; b < dp_exchange_plan(e)->count; b++) {
        struct dp_bench_row row;
        start_row(w, &row);
        if (dp_exchange_plan(e)->buckets[b].exact) {
            (void)snprintf(row.bucket, sizeof(row.bucket), "tail");
        } else {
            (void)snprintf(row.bucket, sizeof(row.bucket), "%d", b);
        }
        DP_TRY(dp_bench_measure(e, b, w->bench->options, cost, &row));
        DP_TRY(dp_bench_rows_add(&w->bench->rows, &row));
        add_row(sum, &row, b == 0);
    }
    return find_busiest(w, sum);
}

/* Prints what `auto` chose, as ddp_train does. */
static void tell_choice(const struct way *w)
{
    const struct dp_exchange *e = dp_trainer_exchange(w->trainer);

    if (dp_exchange_why(e)[0] != '\0') {
        dp_bench_rows_note(&w->bench->rows, "%s, compressor %s: sharing by %s (%s)", w->strategy,
                           w->compressor, dp_exchange_label(e), dp_exchange_why(e));
    }
}

static dp_status measure_way(struct way *w, struct dp_bench_row *sum)
{
    const size_t count = (size_t)w->bench->options->iterations;

    tell_choice(w);
    DP_TRY(way_alone(w));
    DP_TRY(decide_overlap(w));
    DP_TRY(paired_steps(w));
    sum->step_us = dp_median(w->mine + count, count);
    sum->exposed_us = dp_median(w->added, count);
    sum->exposed_range = dp_stats_median_range(w->added, count);
    dp_bench_rows_note(&w->bench->rows,
                       "%s, compressor %s: a step of %.3f ms, %.3f ms without sharing", w->strategy,
                       w->compressor, sum->step_us / 1e3, dp_median(w->mine, count) / 1e3);
    /* Called after the steps, since it overwrites gradient and weights. */
    dp_exchange_set_run(dp_trainer_exchange(w->trainer), DP_RUN_AT_WAIT);
    return measure_buckets(w, sum);
}

/* Trains from the seed, then evaluates. */
static dp_status train_way(struct way *w, struct dp_bench_row *sum)
{
    struct dp_evaluation evaluation;
    struct dp_step_report report;

    dp_trainer_destroy(w->alone);
    dp_trainer_destroy(w->trainer);
    w->alone = w->trainer = NULL;
    DP_TRY(way_trainer(w));
    for (int i = 0; i < w->bench->options->train_steps; i++) {
        DP_TRY(dp_trainer_step(w->trainer, &report));
    }
    DP_TRY(dp_trainer_sync_weights(w->trainer));
    DP_TRY(dp_trainer_evaluate(w->trainer, &evaluation));
    sum->loss = evaluation.loss;
    sum->accuracy = evaluation.accuracy;
    return DP_OK;
}

static dp_status way_memory(struct way *w)
{
    const size_t count = 2 * (size_t)w->bench->options->iterations;

    w->mine = dp_zalloc(count, sizeof(double));
    w->all = dp_zalloc(count * (size_t)w->group->size, sizeof(double));
    w->added = dp_zalloc(count / 2, sizeof(double));
    if (w->mine == NULL || w->all == NULL || w->added == NULL) {
        dp_group_leave(w->group, DP_ERR_NOMEM);
        return DP_FAIL(DP_ERR_NOMEM, "times of %zu steps", count);
    }
    return DP_OK;
}

static dp_status try_way(struct way *w)
{
    struct dp_bench_row sum;
    dp_status status = way_memory(w);

    start_row(w, &sum);
    (void)snprintf(sum.bucket, sizeof(sum.bucket), "sum");
    if (status == DP_OK) {
        status = way_trainer(w);
    }
    if (status != DP_OK) {
        const bool skipped = dp_bench_skips(w->bench, w->strategy, w->compressor, status);
        way_fini(w);
        return skipped ? DP_OK : status;
    }
    status = measure_way(w, &sum);
    if (status == DP_OK && w->bench->options->train_steps > 0) {
        status = train_way(w, &sum);
    }
    way_fini(w);
    DP_TRY(status);
    return dp_bench_rows_add(&w->bench->rows, &sum);
}

static dp_status compare_ways(struct dp_bench *bench, struct dp_group *elsewhere)
{
    struct dp_group *group = bench->world->train;

    for (int s = 0; s < bench->strategies.count; s++) {
        const char *strategy = bench->strategies.at[s];
        bool usable = false;
        DP_TRY(dp_bench_usable(bench, group, strategy, &usable));
        for (int c = 0; usable && c < bench->compressors.count; c++) {
            struct way w = {.bench = bench,
                            .strategy = strategy,
                            .compressor = bench->compressors.at[c],
                            .group = group,
                            .elsewhere = elsewhere};
            DP_TRY(configure_way(&w) ? try_way(&w) : DP_OK);
        }
    }
    return DP_OK;
}

/* Only steps can be measured in which all ranks train, and share. */
static dp_status check_ranks(const struct dp_run_job *job)
{
    const struct dp_config *config = job->config;
    const char *key = config->train.mode == DP_MODE_ASYNC ? "train.mode"
                      : config->comm.servers > 0          ? "comm.servers"
                      : config->data.input_ranks > 0      ? "data.input_ranks"
                                                          : "train.eval_rank";
    char where[WHERE];

    if (config->train.mode == DP_MODE_SYNC && config->comm.servers == 0 &&
        !config->train.eval_rank && config->data.input_ranks == 0) {
        return DP_OK;
    }
    return !dp_run_leads(job)
               ? DP_ERR_CONFIG
               : DP_FAIL(
                     DP_ERR_CONFIG,
                     "%s: ddp_bench compares steps in which all ranks train together: leave "
                     "out train.mode async, comm.servers, train.eval_rank and data.input_ranks; "
                     "ddp_train measures a run with them",
                     dp_config_where(config, key, where, sizeof(where)));
}

/* Sets up the model, its data and this rank's threads. A first trainer checks the configuration,
 * and shows how long messages are; then it is destroyed. */
static dp_status setup(struct dp_bench *bench, size_t *largest)
{
    const struct dp_bench_options *o = bench->options;
    struct dp_run_options *asked = &bench->asked;
    struct dp_run_job *job = &bench->run->job;

    asked->config = o->buckets;
    asked->steps = ENDLESS;
    for (int i = 0; i < o->set_count; i++) {
        asked->sets[asked->set_count++] = o->sets[i];
    }
    asked->sets[asked->set_count++] = "comm.strategy=auto";
    asked->sets[asked->set_count++] = "comm.compressor=none";
    DP_TRY(dp_run_configure(job));
    DP_TRY(check_ranks(job));
    DP_TRY(dp_run_prepare(bench->run));
    DP_TRY(dp_run_make_trainer(job));
    *largest = dp_exchange_plan(dp_trainer_exchange(job->trainer))->largest * sizeof(float);
    dp_trainer_destroy(job->trainer);
    job->trainer = NULL;
    return DP_OK;
}

dp_status dp_bench_model(struct dp_bench *bench)
{
    struct dp_group *group = NULL;
    size_t largest = 0;
    dp_status status;

    DP_TRY(setup(bench, &largest));
    DP_TRY(dp_bench_probe(bench, bench->world->train, largest));
    DP_TRY(dp_world_group(bench->world, &group));
    status = compare_ways(bench, group);
    dp_group_destroy(group);
    return status;
}
