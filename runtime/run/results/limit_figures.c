#include "runtime/run/results/limit_figures.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/report/summary_read.h"
#include "runtime/run/run_trace.h"
#include "runtime/trainer/prepare/memory_plan.h"

enum { KEY_BYTES = 256 };

/* ---- measuring ---- */

/* What the rates of this rank's machine depend on. */
static void write_host_key(const struct dp_run_job *job, char key[KEY_BYTES])
{
    const struct dp_group *all = job->world->all;
    const struct dp_rank_place *place = &job->place;

    (void)snprintf(key, KEY_BYTES, "%s: %s, %d of %d cores, %d ranks; %s, %s", place->host,
                   place->isa, place->threads, place->cores, all->local_size,
                   job->device->plugin.name, dp_precision_text(job->config->train.precision));
}

/* The folder of a path that is one; "synthetic" data have none. */
static const char *folder_of(const char *path)
{
    return path == NULL || path[0] == '\0' || strstr(path, "://") != NULL ? NULL : path;
}

static bool is_quick(const struct dp_run_job *job)
{
    return job->total_steps - job->resume.step < 40;
}

size_t dp_run_measuring_bytes(const struct dp_run_job *job, const struct dp_figures *figures)
{
    const bool alone = dp_run_leads(job) && job->world->train->size > 1 &&
                       !(figures->baseline.given > 0.0) && !figures->baseline.before.no_memory;
    const struct dp_memory_plan plan = {.config = job->config, .model = job->model};
    const size_t machine = dp_machine_rates_bytes(job->device, is_quick(job));
    const size_t state = alone ? dp_memory_plan_state(&plan) : 0;

    return machine > state ? machine : state;
}

static struct dp_limits_config describe_measuring(const struct dp_training *run,
                                                  char host_key[KEY_BYTES])
{
    const struct dp_run_job *job = &run->job;
    const bool leads = dp_run_leads(job); /* it alone measures disks */
    const bool is_made = strcmp(job->config->data.source, "synthetic") == 0;

    write_host_key(job, host_key);
    return (struct dp_limits_config){
        .threads = job->threads,
        .quick = is_quick(job),
        .step_s = (double)run->figures.ledger.last_ns / 1e9,
        .host_key = job->config->comm.plan_cache ? host_key : NULL,
        .data_folder = leads && !is_made ? folder_of(job->config->data.dir) : NULL,
        .run_folder = leads ? folder_of(job->output.path) : NULL,
    };
}

dp_status dp_run_measure_limits(struct dp_training *run)
{
    char host_key[KEY_BYTES];
    const struct dp_limits_config config = describe_measuring(run, host_key);
    dp_status status;

    dp_resources_pause(&run->figures.resources); /* what is used and copied now is no step's */
    dp_run_trace_pause(run, true);
    status = dp_limits_measure(run->job.trainer, &config, &run->figures.limits);
    dp_run_trace_pause(run, false);
    dp_figures_restart(&run->figures, &run->job);
    return status;
}

dp_status dp_run_measure_limits_again(struct dp_training *run)
{
    char host_key[KEY_BYTES];
    const struct dp_limits_config config = describe_measuring(run, host_key);

    dp_resources_pause(&run->figures.resources);
    dp_run_trace_pause(run, true);
    DP_TRY(dp_limits_measure_again(run->job.trainer, &config, &run->figures.limits));
    dp_run_trace_pause(run, false);
    dp_figures_restart(&run->figures, &run->job);
    return DP_OK;
}

/* ---- reporting ---- */

static const char *const stages[] = {
#define X(name, text) text,
    DP_STAGES(X)
#undef X
};

void dp_run_describe_limits(const struct dp_trainer *trainer, const struct dp_limits *l,
                            struct dp_run_rank *rank)
{
    const struct dp_loader_report input = dp_trainer_input(trainer);
    double work_ns = 0.0;
    int longest = 0;

    for (int i = 0; i < DP_STAGE_COUNT; i++) {
        work_ns += (double)input.stages.ns[i];
        longest = input.stages.ns[i] > input.stages.ns[longest] ? i : longest;
    }
    rank->input_workers = input.workers;
    (void)snprintf(rank->input_stage, sizeof(rank->input_stage), "%s",
                   work_ns > 0.0 ? stages[longest] : "");
    rank->input_samples_per_second =
        work_ns > 0.0 ? (double)input.stages.rows * input.workers / work_ns * 1e9 : (double)NAN;
    rank->peak_gflops = l->measured ? l->machine.peak_gflops : (double)NAN;
    rank->copy_gbs = l->measured ? l->machine.copy_gbs : (double)NAN;
}

/* What memory allows a layer: that of the cache where its arrays stay there. */
static double memory_gbs(const struct dp_limits *l, const struct dp_layer_profile *layer)
{
    return layer->cached && l->machine.cache_gbs > 0.0 ? l->machine.cache_gbs : l->machine.copy_gbs;
}

/* The roofline (Williams, Waterman and Patterson, "Roofline", CACM 52 (2009), section 2): the peak,
 * or the arithmetic that memory has bytes for. */
static double layer_limit(const struct dp_limits *l, const struct dp_layer_profile *layer)
{
    return layer->flops > 0.0
               ? fmin(l->machine.peak_gflops, layer->flops / layer->bytes * memory_gbs(l, layer))
               : (double)NAN;
}

static double layer_seconds(const struct dp_layer_profile *layer)
{
    return layer->seconds[DP_FORWARD] + layer->seconds[DP_BACKWARD];
}

/* Seconds that a layer needs at its limit: a product at the speed that it has alone, or had in a
 * pass. */
static double limit_seconds(const struct dp_limits *l, const struct dp_layer_profile *layer)
{
    return layer->best_s > 0.0
               ? fmin(layer->best_s, layer_seconds(layer))
               : fmax(layer->flops / l->machine.peak_gflops, layer->bytes / memory_gbs(l, layer)) /
                     1e9;
}

/* Forward and backward of a step on rank 0, in ms. */
static double passes_ms(const struct dp_run_summary *s)
{
    return s->ranks[0].step_ms[DP_PART_FORWARD] + s->ranks[0].step_ms[DP_PART_BACKWARD];
}

static void describe_layer(const struct dp_limits *l, const struct dp_layer_profile *layer,
                           double all_s, struct dp_run_layer *out)
{
    const double seconds = layer_seconds(layer);

    (void)snprintf(out->name, sizeof(out->name), "%s", layer->name);
    (void)snprintf(out->kind, sizeof(out->kind), "%s", layer->kind);
    (void)snprintf(out->implementation, sizeof(out->implementation), "%s",
                   layer->path[0] != '\0' ? layer->path : "own code");
    out->forward_ms = 1e3 * layer->seconds[DP_FORWARD];
    out->backward_ms = 1e3 * layer->seconds[DP_BACKWARD];
    out->gflops = layer->flops / seconds / 1e9;
    out->gbs = layer->bytes / seconds / 1e9;
    out->share = seconds / all_s;
    out->limit = layer_limit(l, layer);
}

static dp_status summarize_layers(const struct dp_limits *l, struct dp_run_summary *s)
{
    double all_s = 0.0;

    for (int i = 0; i < l->layers.count; i++) {
        all_s += layer_seconds(&l->layers.layers[i]);
    }
    DP_TRY(dp_run_summary_resize(s, DP_TABLE_LAYERS, l->layers.count));
    for (int i = 0; i < s->layer_count; i++) {
        describe_layer(l, &l->layers.layers[i], all_s, &s->layers[i]);
    }
    return DP_OK;
}

static void summarize_machine(const struct dp_limits *l, struct dp_run_summary *s)
{
    double peaks = 0.0, copies = 0.0, inputs = 0.0, flops = 0.0, compute_s = 0.0;

    for (int i = 0; i < s->rank_count; i++) {
        peaks += s->ranks[i].peak_gflops;
        copies += s->ranks[i].copy_gbs;
        inputs += s->ranks[i].input_samples_per_second;
    }
    for (int i = 0; i < l->layers.count; i++) {
        flops += l->layers.layers[i].flops;
        compute_s += limit_seconds(l, &l->layers.layers[i]);
    }
    s->limit_peak = peaks / s->rank_count;
    s->limit_copy = copies / s->rank_count;
    s->limit_input = inputs;
    s->limit_cache = l->machine.cache_gbs;
    s->limit_disk_read = l->disk_gbs[DP_DISK_READ];
    s->limit_disk_write = l->disk_gbs[DP_DISK_WRITE];
    s->limits_raised = l->raised[0] != '\0' ? l->raised : NULL;
    s->limit_host_device = l->machine.host_device_gbs;
    s->limit_gemm = l->gemm_gflops;
    s->limit_conv = l->conv_gflops;
    if (l->layers.count > 0) {
        s->limit_compute =
            passes_ms(s) > 0.0 ? fmin(1e3 * compute_s, passes_ms(s)) : 1e3 * compute_s;
        s->limit_larger = l->layers.larger_cost > 0.0 ? l->layers.larger_cost : (double)NAN;
        s->mfu = flops / (double)l->layers.rows * s->samples_per_second / (peaks * 1e9);
    }
}

static void add_link(struct dp_run_summary *s, const char *name, double bytes, double seconds)
{
    struct dp_run_link *link = &s->links[s->link_count++];

    (void)snprintf(link->name, sizeof(link->name), "%s", name);
    link->bytes = (int64_t)bytes;
    link->us = 1e6 * seconds;
}

static dp_status summarize_links(const struct dp_limits *l, struct dp_run_summary *s)
{
    struct dp_cost cost = l->links.cost;
    const struct dp_curve *curve;
    const char *name;
    int count = 1; /* flags */

    for (int i = 0; (curve = dp_cost_curve(&cost, i, &name)) != NULL; i++) {
        count += curve->count;
    }
    DP_TRY(dp_run_summary_resize(s, DP_TABLE_LINKS, count));
    s->link_count = 0;
    for (int i = 0; (curve = dp_cost_curve(&cost, i, &name)) != NULL; i++) {
        for (int k = 0; k < curve->count; k++) {
            add_link(s, name, curve->bytes[k], curve->seconds[k]);
        }
    }
    if (cost.peer.count > 0) {
        add_link(s, "flags", 0.0, cost.flags_s);
    }
    return DP_OK;
}

/* What the slowest part of a step allows where all the others are hidden. */
static double bound_rate(const struct dp_run_summary *s)
{
    const double longest_ms = fmax(s->limit_compute, fmin(s->limit_sum, s->limit_whole));

    return fmin((double)s->global_batch / longest_ms * 1e3, s->limit_input);
}

dp_status dp_run_summarize_limits(const struct dp_figures *figures, struct dp_run_summary *s)
{
    const struct dp_limits *l = &figures->limits;

    if (!l->measured) {
        return DP_OK;
    }
    summarize_machine(l, s);
    if (l->sum.bytes > 0.0) {
        s->limit_allreduce = l->sum.bytes / fmin(l->sum.step_s, l->sum.whole_s) / 1e9;
        s->limit_sum = 1e3 * l->sum.step_s;
        s->limit_whole = 1e3 * l->sum.whole_s;
    }
    s->limit_bound = bound_rate(s);
    DP_TRY(summarize_links(l, s));
    return summarize_layers(l, s);
}
